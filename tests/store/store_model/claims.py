"""Claiming: the contract of Claim."""

from outlast.store.commands import DRAINING, EACH, WORKER, Claim
from store_model import keys
from store_model.rows import Run
from store_model.state import State


def claim(model: State, command: Claim, outcome):
    if command.worker not in model.workers:
        return WORKER
    again = [
        run
        for run in model.runs.values()
        if run.worker == command.worker and run.token == command.token
    ]
    if again:
        ids = [run.id for run in sorted(again, key=lambda run: run.fence)]
        assert [row.id for row in outcome] == ids
        return outcome
    if model.workers[command.worker].draining:
        return DRAINING
    found = _named(model, command) if command.ids else _first(model, command)
    assert [row.id for row in outcome] == [run.id for run in found], (command, outcome)
    for row, run in zip(outcome, found, strict=True):
        if not command.ids and _abandoned(model, run):
            model.begin_undo(run, row.undoing)
        run.status, run.worker, run.token, run.started = (
            "running",
            command.worker,
            command.token,
            True,
        )
        run.lives += 1
        _recover(model, run)
        run.ready, run.waits, run.given_back_by = 0, (), None
        model.grant_fence(run, row.fence)
        assert (row.status, row.worker, row.lives) == (run.status, run.worker, run.lives)
        assert row.undoing == run.undoing
        assert run.undoing is None or run.lives > 1
    return outcome


def _abandoned(model: State, run: Run) -> bool:
    if run.abandon_after is None or run.undoing or run.cancel or not run.started:
        return False
    able = any(
        run.queue in worker.queues and worker.started <= run.due and not worker.draining
        for id, worker in model.workers.items()
        if id not in model.seem_dead()
    )
    awake = model.awake if model.no_gap() else model.now
    since = run.due if run.claimed_turn is None else run.claimed_turn
    return able and max(since, awake) + run.abandon_after < model.now


def _recover(model: State, run: Run) -> None:
    if run.left is not None and run.left[0] in model.drains:
        worker, at = run.left
        model.drains[worker].recoveries[run.order] = max(model.now - at, 0.0)
    run.left = None


def _named(model: State, command: Claim) -> list[Run]:
    found: list[Run] = []
    named = [run for run in model.runs.values() if run.id in command.ids and run.claimable()]
    due = [run for run in named if run.ready or run.due <= model.now]
    for run in sorted(due, key=lambda run: run.order)[: command.limit]:
        if keys.may_start(model, run):
            keys.take(model, run, named=True)
            found.append(run)
    return found


def _first(model: State, command: Claim) -> list[Run]:
    """Choose one run after the other, so that each choice knows the turns that came before."""
    for run in model.runs.values():
        if run.claimable() and not run.ready and run.due <= model.now:
            run.make_ready()
    if command.limit > 0:
        for queue, key in {(run.queue, run.key) for run in model.runs.values()}:
            if key is not None and queue in (command.queues or model.queues):
                keys.review(model, queue, key)
    chosen: list[Run] = []
    while len(chosen) < command.limit:
        back = sum(one.interrupted is not None for one in chosen)
        may_return = command.returned is None or back < command.returned
        found = [run for run in model.runs.values() if _may_choose(model, command, run, may_return)]
        if not found:
            break
        run = min(found, key=Run.place)
        if not keys.may_start(model, run):
            keys.review(model, run.queue, run.key)
            continue
        chosen.append(run)
        keys.take(model, run, named=False)
    return chosen


def _may_choose(model: State, command: Claim, run: Run, may_return: bool) -> bool:
    limits = model.queues[run.queue]
    room = (
        0
        if limits.paused
        else 1
        if limits.concurrency_max is None
        else limits.concurrency_max - model.running(run.queue)
    )
    return (
        run.ready == (2 if command.suspects else 1)
        and run.queue in (command.queues or model.queues)
        and (run.workflow in command.workflows if command.workflows else run.workflow != EACH)
        and (may_return or run.interrupted is None)
        and (run.parent is not None or room > 0)
    )
