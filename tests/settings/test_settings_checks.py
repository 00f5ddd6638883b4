"""What cannot be is an error where the app is made, before anything is opened, and says what to do."""

import pytest

from outlast import Outlast, SettingsError, sync
from outlast.settings import Settings
from outlast.testing import App


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"grace": 0.9}, "at least 1 second"),
        ({"grace": 4, "checkpoint_reserve": 3}, "Raise grace to 4.3 or more"),
        ({"grace": 30, "checkpoint_reserve": 30}, "shorter than its reserves"),
        ({"exit_reserve": 40}, "grace=30.0 is shorter"),
        ({"grace": 10, "checkpoint_reserve": 5, "exit_reserve": 5}, "Raise grace to 10.3"),
        ({"lease": 1.0, "heartbeat": 0.5}, "four heartbeats"),
        ({"heartbeat": 0.001}, "at least 0.01"),
        ({"poll": 0.001}, "at least 0.01"),
        ({"stall_max": 0.01}, "stall_max=0.01 must be at least 0.1"),
        ({"stall_warn": 0.01}, "stall_warn=0.01 must be at least 0.1"),
        ({"death_backoff": 600}, "death_backoff_max too"),
        ({"new_share": 1.0}, "new_share"),
        ({"http": "8080"}, "host:port"),
        ({"http": "host:99999"}, "no port 99999"),
        ({"http": "http://h:80"}, "host:port"),
        ({"http_secret": "two\nlines"}, "control character"),
        ({"store": ""}, "store is empty"),
        ({"store": " "}, "store is empty"),
        ({"store": "sqlite:///a\nb"}, "control character"),
        ({"queues": "a,,b"}, "queue"),
        ({"queues": "a/b"}, "contains '/'"),
    ],
)
@pytest.mark.parametrize("kind", [Outlast, sync.Outlast])
def test_what_cannot_be_is_refused_when_the_app_is_made(kind, given, says, tmp_path):
    with pytest.raises((SettingsError, ValueError), match=says):
        kind(**given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "reserves"),
    [
        ({}, (3.0, 2.0)),
        ({"grace": 60}, (3.0, 2.0)),
        ({"grace": 8}, (2.0, 2.0)),
        ({"grace": 4}, (1.0, 1.0)),
        ({"grace": 1}, (0.25, 0.25)),
        ({"grace": 30, "checkpoint_reserve": 20}, (20, 2.0)),
        ({"grace": 8, "checkpoint_reserve": 3.0}, (3.0, 2.0)),
        ({"grace": 2, "checkpoint_reserve": 0, "exit_reserve": 0}, (0, 0)),
    ],
)
def test_reserves_are_as_given_and_otherwise_a_quarter_of_a_short_grace(given, reserves):
    settings = Outlast(**given).settings
    assert (settings.checkpoint_reserve, settings.exit_reserve) == reserves


@pytest.mark.parametrize(
    ("given", "drained_in", "told_after"),
    [
        ({"grace": 30, "checkpoint_reserve": 20}, None, 7.7),
        ({"grace": 30, "checkpoint_reserve": 20}, 15, 15 - 10 - 2.3),
        ({"grace": 30}, 8, 8 - 2 - 2.3),
        ({"grace": 60, "exit_reserve": 10}, None, 60 - 3 - 10.3),
    ],
)
def test_a_drain_keeps_the_reserves_that_were_given(given, drained_in, told_after):
    app = App(**given)

    async def main(app):
        drain = app._shutdown
        drain.begin("test", grace=drained_in)
        left = app._open.shutdown.step_seconds_left
        await app._open.shutdown.finished
        return left

    assert app.do(main) == pytest.approx(told_after)


def test_an_error_says_where_the_values_came_from(monkeypatch):
    monkeypatch.setenv("SHUTDOWN_TIMEOUT", "3")
    monkeypatch.setenv("OUTLAST_CHECKPOINT_RESERVE", "5")
    with pytest.raises(SettingsError) as raised:
        Outlast(exit_reserve=1)
    assert str(raised.value).endswith(
        "Here grace is from SHUTDOWN_TIMEOUT; checkpoint_reserve is from OUTLAST_CHECKPOINT_RESERVE."
    )


@pytest.mark.parametrize("text", ["a,,b", ",", "a/b", "x" * 300, "a\tb"])
def test_names_of_queues_in_the_environment_are_checked_too(monkeypatch, text):
    monkeypatch.setenv("OUTLAST_QUEUES", text)
    with pytest.raises(SettingsError, match="queues is from OUTLAST_QUEUES"):
        Outlast()


@pytest.mark.parametrize("value", [3, "hush\x00", "s3cr3t\n\n\x01"])
def test_no_error_shows_a_secret(value):
    with pytest.raises(SettingsError) as raised:
        Outlast(http_secret=value)
    assert "hush" not in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_a_store_that_is_no_text_shows_no_password():
    with pytest.raises(SettingsError) as raised:
        Settings(store="postgresql://u:s3cr3t@h\x00")
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [{"poll": 60.0, "lease": 30}, {"stall_max": 60, "lease": 1}, {"lease": 0.8, "heartbeat": 0.2}],
)
def test_what_can_stand_beside_each_other_is_accepted(given):
    Outlast(**given)
