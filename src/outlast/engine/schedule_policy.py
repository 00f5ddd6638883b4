"""Decide which firings of a schedule start a run. This is a pure function of what a worker read."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from outlast.engine.schedule_rows import Firing, Overlap, ScheduleRow, State, firing_id

ON_TIME_SECONDS = 60.0
"""A firing that is noticed later than this was missed."""
WAITING_MAX = 1_000
"""How many firings of a schedule may wait for the one before. Further ones are skipped."""


class Decision(NamedTuple):
    state: State
    cancels: bool = False
    """Whether to cancel the run of the last firing, so that the next one can start."""


def has_work(row: ScheduleRow, now: float) -> bool:
    """Return whether a worker has anything to do for a schedule now."""
    state, due = row.state, row.next()
    if state.paused:
        return bool(state.pending)
    return bool(state.pending or state.waiting or (due is not None and due <= now))


def decide(row: ScheduleRow, now: float, *, last_is_active: bool) -> Decision:
    """Return the next state of a schedule, whose `pending` are the firings that start a run.

    `last_is_active` says whether the run of the last firing has not ended.
    """
    state, overlap = row.state, row.definition.overlap
    if state.paused:
        return Decision(state)
    wanted, fired = _due(row, now)
    state = replace(state, fired=fired)
    if overlap is Overlap.ALLOW:
        return Decision(_start(row.name, state, wanted))
    if overlap is Overlap.SKIP:
        start = [] if last_is_active else wanted[-1:]
        state = replace(state, skipped=state.skipped + len(wanted) - len(start))
        return Decision(_start(row.name, state, start))
    waiting = (*state.waiting, *wanted)
    kept = waiting[-1:] if overlap is Overlap.CANCEL else waiting[:WAITING_MAX]
    state = replace(state, skipped=state.skipped + len(waiting) - len(kept), waiting=kept)
    if not kept:
        return Decision(state)
    if last_is_active:
        return Decision(state, cancels=overlap is Overlap.CANCEL)
    state = replace(state, waiting=kept[1:])
    return Decision(_start(row.name, state, list(kept[:1])))


def _due(row: ScheduleRow, now: float) -> tuple[list[float], float]:
    """Return the firings to start now, oldest first, and the time up to which all are dealt with.

    These are the firings that are on time, and the newest of those that were missed.
    """
    timing, fired = row.timing, row.state.fired
    newest = timing.last(fired, now, 1)
    if not newest:
        return [], fired
    on_time = timing.between(max(fired, now - ON_TIME_SECONDS), now)
    catch_up = row.definition.catch_up
    missed = timing.last(fired, now, catch_up) if catch_up else []
    return sorted({*on_time, *missed}), newest[0]


def _start(name: str, state: State, times: list[float]) -> State:
    """Return the state in which the runs of these firings are to be submitted."""
    return replace(state, pending=tuple(Firing(firing_id(name, at), at) for at in times))
