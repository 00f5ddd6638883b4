"""Settings: keywords over the environment over defaults; what is unknown or of the wrong kind is refused at once."""

from typing import get_args, get_type_hints

import pytest

from outlast import BadName, Outlast, SettingsError, run, sync, workflow
from outlast.settings import Settings
from outlast.settings.load import load
from outlast.settings.options import SettingsOptions


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
    texts = {
        "grace": "7",
        "http": ":8080",
        "store": "sqlite:///x.db",
        "queues": "a,b",
        "http_secret": "hush",
        "signals": "0",
        "chaos_mode": "both",
        "metrics": "0",
        "death_backoff_max": "400",
        "server": "https://agents.example.com",
    }
    for name, value in vars_of(Settings()).items():
        text = texts.get(name) or ("0.8" if isinstance(value, float) else "7")
        got = getattr(Settings.load({}, {f"OUTLAST_{name.upper()}": text}), name)
        assert got == type(value)(text)
        assert got != value, f"{name}: the test gives it its default"


def vars_of(settings: Settings) -> dict:
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def test_an_unknown_keyword_is_refused_and_the_known_ones_are_named():
    with pytest.raises(SettingsError, match=r"leese.*lease"):
        Outlast(leese=3)


@pytest.mark.parametrize("name", sorted(set(Settings.__dataclass_fields__) - {"store"}))
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_above_zero_is_refused(name, value):
    may_be_zero = (
        "chaos_kills_per_hour",
        "check_workflows",
        "checkpoint_reserve",
        "effect_margin",
        "exit_reserve",
        "health_stall",
        "log_values",
        "metrics",
        "new_share",
        "ramp",
        "signals",
        "stall_warn",
    )
    if value == 0 and name in may_be_zero:
        assert getattr(Outlast(**{name: value}).settings, name) == 0
        return
    with pytest.raises(SettingsError, match=name):
        Outlast(**{name: value})


def test_unknown_chaos_mode_is_refused():
    assert Outlast(chaos_mode="both").settings.chaos_mode == "both"
    with pytest.raises(SettingsError, match="chaos_mode='explode' must be drain, kill or both"):
        Outlast(chaos_mode="explode")


def test_new_share_of_one_is_refused():
    with pytest.raises(SettingsError, match="new_share"):
        Outlast(new_share=1.0)


@pytest.mark.parametrize("queues", [["a,b"], "a,,b", "", [""], [3], 3])
def test_ambiguous_queue_names_are_refused(queues):
    with pytest.raises((SettingsError, BadName), match="queue"):
        Outlast(queues=queues)


@pytest.mark.parametrize("value", ["thirty", [], "30"])
def test_a_setting_of_the_wrong_type_is_a_settings_error(value):
    with pytest.raises(SettingsError, match="lease"):
        Outlast(lease=value)


def test_fraction_is_refused_for_a_count():
    with pytest.raises(SettingsError, match="batch_size_max"):
        Outlast(batch_size_max=1.5)


@pytest.mark.parametrize("text", ["thirty", "1,5", "1e", "0", "-3", "nan", "inf", "30s"])
def test_environment_variable_that_is_not_a_number_is_refused(monkeypatch, text):
    monkeypatch.setenv("OUTLAST_LEASE", text)
    with pytest.raises(SettingsError, match="OUTLAST_LEASE"):
        Outlast()


@pytest.mark.parametrize("text", ["1.5", "1e3", "many", "20.0"])
def test_fraction_in_the_environment_is_refused_for_a_count(monkeypatch, text):
    monkeypatch.setenv("OUTLAST_CONCURRENCY", text)
    with pytest.raises(
        SettingsError, match=rf"^OUTLAST_CONCURRENCY='{text}' is not a whole number"
    ):
        Outlast()


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("0", 0), ("true", 1), ("FALSE", 0), ("yes", 1), ("no", 0), ("on", 1), ("off", 0)],
)
def test_whether_signals_are_received_may_be_said_in_words(text, number):
    assert Settings.load({}, {"OUTLAST_SIGNALS": text}).signals == number
    assert Settings.load({}, {"OUTLAST_METRICS": text}).metrics == number


@pytest.mark.parametrize(("given", "number"), [(True, 1), (False, 0), (1, 1), (0, 0)])
def test_whether_signals_are_received_may_be_a_bool(given, number):
    settings = Outlast(signals=given).settings
    assert (settings.signals, type(settings.signals)) == (number, int)


@pytest.mark.parametrize("given", [2, 7, "yes"])
def test_signals_are_received_or_not(given):
    with pytest.raises(SettingsError, match="signals"):
        Outlast(signals=given)


def test_only_signals_may_be_a_bool():
    with pytest.raises(SettingsError, match="must be a number"):
        Outlast(lease=True)


def test_the_sync_app_has_the_same_settings(monkeypatch):
    monkeypatch.setenv("OUTLAST_LEASE", "12.5")
    assert sync.Outlast(grace=9).settings == Outlast(grace=9).settings
    monkeypatch.setenv("OUTLAST_LEESE", "12.5")
    with pytest.raises(SettingsError, match="Did you mean OUTLAST_LEASE"):
        sync.Outlast()


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
        "redis://x:port",
        "redis://x?colour=red",
    ],
)
def test_an_address_that_no_store_answers_to_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError):
        run(nothing(), store=address)
    assert list(tmp_path.iterdir()) == []


def test_the_keyword_options_that_type_checkers_see_are_the_settings():
    kinds = {name: get_args(hint)[0] for name, hint in get_type_hints(SettingsOptions).items()}
    own = {"store", "queues"}  # parameters of their own
    assert kinds == {
        name: hint
        for name, hint in get_type_hints(Settings).items()
        if name not in own | {"server", "token"} and not name.startswith("client_")
    }


@pytest.mark.parametrize(
    "url", ["agents.example.com", "ftp://a", "http://", "http://a:x", "http://a?b", "http://u:p@a"]
)
def test_server_that_is_no_url_of_an_api_is_refused(url):
    with pytest.raises(SettingsError, match="server="):
        Settings.load({"server": url})


def test_server_from_an_unnamed_env_file_gets_no_token(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("OUTLAST_SERVER=http://evil.example.com\n")
    with pytest.raises(SettingsError, match="If you trust it"):
        load({}).server()
    monkeypatch.setenv("OUTLAST_ENV_FILE", ".env")
    assert load({}).server() == "http://evil.example.com"
