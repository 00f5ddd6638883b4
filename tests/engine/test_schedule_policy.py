"""Which firings of a schedule start a run, decided from what a worker has read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outlast.engine.schedule_policy import WAITING_MAX, decide, has_work
from outlast.engine.schedule_rows import Definition, Firing, Overlap, ScheduleRow, State

MINUTE = 60.0
LAST = Firing("nightly@1970-01-01T00:00:00Z", 0.0)


def row(overlap: str = "skip", catch_up: int = 1, **state) -> ScheduleRow:
    definition = Definition(
        workflow="summary",
        args="{}",
        cron=None,
        every=MINUTE,
        tz="UTC",
        overlap=Overlap(overlap),
        catch_up=catch_up,
        jitter=0.0,
        queue="default",
        priority=0,
        timeout=None,
        abandon_after=None,
    )
    return ScheduleRow("nightly", 1, definition, State(**{"start": 0.0, "fired": 0.0, **state}))


def started(decision) -> list[float]:
    return [firing.at / MINUTE for firing in decision.state.pending]


def test_nothing_happens_before_the_first_time():
    decision = decide(row(), 59.0, last_is_active=False)
    assert decision.state == row().state
    assert not has_work(row(), 59.0)


def test_firing_has_the_name_and_the_time_as_its_id():
    decision = decide(row(), 60.5, last_is_active=False)
    assert decision.state.pending == (Firing("nightly@1970-01-01T00:01:00Z", 60.0),)
    assert decision.state.fired == 60.0
    assert has_work(row(), 60.0)


@pytest.mark.parametrize(
    ("catch_up", "minutes"),
    [(0, []), (1, [600]), (3, [480, 540, 600]), (99, [*range(60, 601, 60)])],
)
def test_missed_firings_start_as_many_runs_as_asked_for(catch_up, minutes):
    """Ten hours have passed since the last firing, and half an hour since the tenth."""
    hourly = row("allow", catch_up)
    hourly = hourly._replace(definition=replace(hourly.definition, every=3600.0))
    decision = decide(hourly, 10.5 * 3600, last_is_active=False)
    assert started(decision) == minutes
    assert decision.state.fired == 36_000.0


def test_firing_that_is_over_a_minute_late_is_missed():
    hourly = row(catch_up=0)
    hourly = hourly._replace(definition=replace(hourly.definition, every=3600.0))
    assert started(decide(hourly, 3659.0, last_is_active=False)) == [60]
    assert started(decide(hourly, 3661.0, last_is_active=False)) == []
    assert decide(hourly, 3661.0, last_is_active=False).state.fired == 3600.0


def test_skip_starts_no_run_while_the_one_before_is_active():
    decision = decide(row(last=LAST), 2 * MINUTE, last_is_active=True)
    assert started(decision) == []
    assert (decision.state.fired, decision.state.skipped) == (120.0, 1)


def test_skip_starts_one_run_if_several_are_due():
    decision = decide(row(catch_up=5), 5 * MINUTE, last_is_active=False)
    assert (started(decision), decision.state.skipped) == ([5], 4)


def test_queued_firings_start_one_after_another():
    waiting = decide(row("queue", 3, last=LAST), 3 * MINUTE, last_is_active=True)
    assert started(waiting) == []
    assert waiting.state.waiting == (60.0, 120.0, 180.0)
    assert not waiting.cancels
    first = decide(row("queue")._replace(state=waiting.state), 190.0, last_is_active=False)
    assert started(first) == [1]
    assert first.state.waiting == (120.0, 180.0)


def test_waiting_firings_are_bounded_and_the_newest_are_skipped():
    many = tuple(float(at) for at in range(WAITING_MAX))
    state = decide(row("queue", last=LAST, waiting=many), MINUTE, last_is_active=True).state
    assert (state.waiting, state.skipped) == (many, 1)


def test_cancel_ends_the_run_before_and_keeps_only_the_newest_firing():
    decision = decide(row("cancel", 3, last=LAST), 3 * MINUTE, last_is_active=True)
    assert decision.cancels
    assert (decision.state.waiting, decision.state.skipped) == ((180.0,), 2)
    ended = decide(row("cancel")._replace(state=decision.state), 190.0, last_is_active=False)
    assert (started(ended), ended.state.waiting) == ([3], ())


def test_paused_schedule_starts_nothing_and_remembers_no_times():
    paused = row(paused=True)
    assert decide(paused, 5 * MINUTE, last_is_active=False).state == paused.state
    assert paused.next() is None
    assert not has_work(paused, 5 * MINUTE)


def test_paused_schedule_keeps_what_waits():
    paused = row("queue", paused=True, waiting=(60.0,))
    assert decide(paused, 300.0, last_is_active=False).state == paused.state
    assert not has_work(paused, 300.0)
