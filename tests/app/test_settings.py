"""Settings: keywords over the environment over defaults; what is unknown or impossible is refused at once."""

import pytest

from outlast import BadName, Outlast, SettingsError, run, workflow
from outlast.app.settings import Settings


@workflow
async def nothing() -> None: ...


def test_keywords_win_over_the_environment_which_wins_over_defaults(monkeypatch):
    assert Outlast().settings.lease == 30.0
    monkeypatch.setenv("OUTLAST_LEASE", "12.5")
    monkeypatch.setenv("OUTLAST_STORE", "memory:")
    monkeypatch.setenv("OUTLAST_VALUE_SIZE_MAX", "1000")
    assert Outlast().settings.lease == 12.5
    assert Outlast().settings.store == "memory:"
    assert Outlast().settings.value_size_max == 1000
    assert Outlast("sqlite:///x.db", lease=20).settings.lease == 20
    assert Outlast("sqlite:///x.db").settings.store == "sqlite:///x.db"


def test_every_setting_can_come_from_the_environment():
    for name, value in vars_of(Settings()).items():
        text = "0.5" if isinstance(value, float) else "sqlite:///x.db" if isinstance(value, str) else "7"
        if name in ("heartbeat", "lease"):
            continue  # they bound each other
        got = getattr(Settings.load({}, {f"OUTLAST_{name.upper()}": text}), name)
        assert got == (text if isinstance(value, str) else type(value)(text))


def vars_of(settings: Settings) -> dict:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def test_an_unknown_keyword_is_refused_and_the_known_ones_are_named():
    with pytest.raises(SettingsError, match=r"leese.*lease"):
        Outlast(leese=3)


@pytest.mark.parametrize("name", sorted(set(Settings.__dataclass_fields__) - {"store"}))
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_above_zero_is_refused(name, value):
    may_be_zero = (
        "checkpoint_reserve",
        "effect_margin",
        "exit_reserve",
        "health_stall",
        "new_share",
        "ramp",
        "signals",
    )
    if value == 0 and name in may_be_zero:
        assert getattr(Outlast(**{name: value}).settings, name) == 0
        return
    with pytest.raises(SettingsError, match=name):
        Outlast(**{name: value})


def test_a_share_of_new_runs_that_leaves_none_to_returned_ones_is_refused():
    with pytest.raises(SettingsError, match="new_share"):
        Outlast(new_share=1.0)


@pytest.mark.parametrize("queues", [["a,b"], "a,,b", "", [""], [3], 3])
def test_queues_that_cannot_be_told_apart_are_refused(queues):
    with pytest.raises((SettingsError, BadName), match="queue"):
        Outlast(queues=queues)


@pytest.mark.parametrize("value", ["thirty", [], "30"])
def test_a_setting_of_the_wrong_type_is_a_settings_error(value):
    with pytest.raises(SettingsError, match="lease"):
        Outlast(lease=value)


def test_a_limit_counted_in_pieces_is_a_whole_number():
    with pytest.raises(SettingsError, match="batch_size_max"):
        Outlast(batch_size_max=1.5)


@pytest.mark.parametrize("text", ["thirty", "", "1,5", "1e", "0", "-3", "nan"])
def test_an_environment_that_is_no_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("OUTLAST_LEASE", text)
    with pytest.raises(SettingsError):
        Outlast()


def test_a_lease_shorter_than_four_heartbeats_is_refused():
    with pytest.raises(SettingsError, match="heartbeats"):
        Outlast(lease=1.0, heartbeat=0.5)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "mysql://x",
        "sqlite://host/x.db",
        "sqlite:///",
        "sqlite:///x.db?mode=ro",
        "sqlite:///x?synchronous=off",
        "postgresql://x",
        "redis://x",
    ],
)
def test_an_address_that_no_store_answers_to_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError):
        run(nothing(), store=address)
    assert list(tmp_path.iterdir()) == []
