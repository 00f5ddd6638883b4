"""Claiming: the contract of Claim."""

from outlast.store.commands import DRAINING, EACH, WORKER, Claim
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
    return able and max(run.due, awake) + run.abandon_after < model.now


def _recover(model: State, run: Run) -> None:
    if run.left is not None and run.left[0] in model.drains:
        worker, at = run.left
        model.drains[worker].recoveries[run.order] = max(model.now - at, 0.0)
    run.left = None


def _named(model: State, command: Claim) -> list[Run]:
    named = [run for run in model.runs.values() if run.id in command.ids and run.claimable()]
    due = [run for run in named if run.ready or run.due <= model.now]
    return sorted(due, key=lambda run: run.order)[: command.limit]


def _first(model: State, command: Claim) -> list[Run]:
    for run in model.runs.values():
        if run.claimable() and not run.ready and run.due <= model.now:
            run.make_ready()
    room = {
        name: bounds.concurrency_max - model.running(name)
        for name, bounds in model.queues.items()
        if bounds.concurrency_max is not None
    }
    chosen: list[Run] = []
    for run in sorted(model.runs.values(), key=Run.place):
        if (
            run.ready == (2 if command.suspects else 1)
            and run.queue in (command.queues or model.queues)
            and (run.workflow in command.workflows if command.workflows else run.workflow != EACH)
            and len(chosen) < command.limit
            and (run.parent is not None or room.get(run.queue, 1) > 0)
        ):
            back = sum(one.interrupted is not None for one in chosen)
            if (
                run.interrupted is not None
                and command.returned is not None
                and back >= command.returned
            ):
                continue
            if run.queue in room and run.parent is None:
                room[run.queue] -= 1
            chosen.append(run)
    return chosen
