"""Schedules, limiters and bulk actions of the sync API."""

from datetime import UTC, datetime, timedelta

import pytest

from outlast.sync import Outlast, SettingsError, limiter, step, workflow

SEARCH = limiter("search", requests="5/1h")


@step
def search(words: str) -> str:
    with SEARCH.use():
        return words.upper()


@workflow
def research(words: str) -> str:
    return search(words)


def test_schedule_is_set_triggered_filled_in_paused_and_deleted(app: Outlast) -> None:
    made = app.schedule("nightly", research("tides"), cron="0 2 * * *", tz="Europe/Berlin")
    assert (made.name, made.workflow) == ("nightly", research.name)
    assert app.schedules() == [made]
    assert app.trigger_schedule("nightly").startswith("nightly@")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    filled = app.backfill_schedule("nightly", start, start + timedelta(days=2))
    assert filled == ["nightly@2026-01-01T01:00:00Z", "nightly@2026-01-02T01:00:00Z"]
    assert len(app.runs(prefix="nightly@")) == 3
    app.pause_schedule("nightly")
    assert app.schedules()[0].paused
    app.resume_schedule("nightly")
    assert not app.schedules()[0].paused
    app.delete_schedule("nightly")
    assert app.schedules() == []
    with pytest.raises(SettingsError, match="every="):
        app.schedule("often", research("tides"), every=0)


def test_limiter_counts_uses_in_steps_and_in_scripts(app: Outlast) -> None:
    assert app.limiters() == []
    assert app.start(research("tides"), id="r-1").result() == "TIDES"
    with app.limiter("tokens", tokens="100/1h").use(tokens=30):
        pass
    found = {info.name: info.limits for info in app.limiters()}
    assert found["search"]["requests"].used == 1
    assert found["tokens"]["tokens"].used == 30


def test_bulk_counts_first_and_then_acts(app: Outlast) -> None:
    for number in range(3):
        app.submit(research("tides"), id=f"r-{number}", delay=3600.0)
    counted = app.bulk("cancel", prefix="r-", dry_run=True)
    assert (counted.matched, counted.done) == (3, 0)
    done = app.bulk("cancel", prefix="r-", why="enough")
    assert (done.matched, done.done) == (3, 3)
    assert {info.status for info in app.runs(prefix="r-")} == {"cancelled"}
