"""Turns and limits per key: the parts of the contracts of Claim and SetQueueLimits about keys."""

from outlast.store.rows import TURN_STEP
from store_model.rows import Run
from store_model.state import State


def of_key(model: State, queue: str, key: str) -> list[Run]:
    return [run for run in model.runs.values() if (run.queue, run.key) == (queue, key)]


def counts_as_start(model: State, run: Run) -> bool:
    period = model.queues[run.queue].key_period
    return (
        run.key is not None
        and period is not None
        and run.started_at is not None
        and run.started_at > model.now - period
    )


def may_start(model: State, run: Run) -> bool:
    """Return whether the limits of its key allow the run to execute now."""
    if run.key is None or run.undoing is not None:
        return True
    limits, runs = model.queues[run.queue], of_key(model, run.queue, run.key)
    running = sum(one.status == "running" for one in runs)
    if limits.key_concurrency_max is not None and running >= limits.key_concurrency_max:
        return False
    if run.started or limits.key_starts_max is None:
        return True
    starts = sorted((one.started_at for one in runs if one.started_at is not None), reverse=True)
    if len(starts) < limits.key_starts_max:
        return True
    return starts[limits.key_starts_max - 1] + limits.key_period <= model.now


def review(model: State, queue: str, key: str, after: float | None = None) -> None:
    """Give a turn to the first run of each lane, if the limits allow it, and to no other."""
    turn = model.now if after is None else max(model.now, after) + TURN_STEP
    due = [run for run in of_key(model, queue, key) if run.ready and run.undoing is None]
    lanes: dict[tuple[str, int], list[Run]] = {}
    for run in due:
        lanes.setdefault(run.lane(), []).append(run)
    for runs in lanes.values():
        first = min(runs, key=Run.place_in_lane)
        for run in runs:
            if run is first and may_start(model, run):
                run.turn = turn if run.turn is None else run.turn
            else:
                run.turn = None
            run.make_ready()


def take(model: State, run: Run, *, named: bool) -> None:
    """Do what a claim of the run means for its key."""
    place = model.now if named or run.turn is None else run.turn
    run.status, run.ready, run.claimed_turn, run.turn = "running", 0, run.turn, None
    if run.started_at is None:
        run.started_at = model.now
    if run.key is not None:
        # It counts as new until the claim is complete.
        review(model, run.queue, run.key, place)
