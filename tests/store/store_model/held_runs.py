"""Writing about a held run: the contracts of `outlast.store.commands.held_runs`."""

from outlast.store.commands import (
    CANCEL,
    FENCE,
    STATUS,
    Ack,
    Record,
    Refused,
    Release,
    Settle,
    Undo,
)
from store_model.rows import Run
from store_model.state import State


def record(model: State, command: Record, _):
    run = model.by_pk(command.run)
    if run is None:
        return FENCE
    if run.recorded.get(command.seq) == command.fence:
        return None
    if run.fence != command.fence or command.seq <= len(run.journal):
        return FENCE
    assert command.seq == len(run.journal) + 1
    run.journal.append((command.kind, command.value))
    run.recorded[command.seq] = command.fence


def settle(model: State, command: Settle, _):
    run = model.by_pk(command.run)
    if run is None:
        return FENCE
    if run.settled_by == command.fence:
        return None
    if run.fence != command.fence:
        return FENCE
    wanted = run.cancel is not None and run.undoing is None
    if command.unless_cancelled and command.status == "parked" and wanted:
        return Refused(CANCEL, run.cancel)
    run.void(command.status)
    run.settled_by = command.fence
    run.value, run.interrupted, run.waits = command.value, None, ()
    run.deaths_in_a_row = run.interruptions_in_a_row = 0
    if command.status == "parked":
        run.due = model.now
    else:
        run.ended, run.undoing = model.now, None
    model.wake_parent(run)


def undo(model: State, command: Undo, _):
    run = model.by_pk(command.run)
    if run is None:
        return FENCE
    if run.fence == -command.fence and run.status == "queued" and run.undoing == command.verdict:
        return None
    if run.fence != command.fence:
        return FENCE
    if run.undoing is not None:
        return Refused(STATUS, "undoing")
    model.begin_undo(run, command.verdict)


def ack(model: State, command: Ack, _):
    run = model.by_pk(command.run)
    if run is None:
        return FENCE
    if run.settled_by == command.fence:
        return None
    if run.fence != command.fence:
        return FENCE
    run.void("done")
    run.settled_by, run.ended = command.fence, model.now


def release(model: State, command: Release, _):
    run = model.by_pk(command.run)
    if run is None:
        return FENCE
    if run.fence == -command.fence and (run.claimable() or run.given_back_by == command.fence):
        return run.status
    if run.fence != command.fence:
        return FENCE
    if command.waiting:
        run.forgive()
        news = (
            run.cancel is not None
            or _mail_after(model, run, command)
            or _child_over(model, command)
        )
        run.interrupted, run.waits = None, command.waits
        return model.give_back(run, "waiting", min(command.due, model.now) if news else command.due)
    if command.failed:
        run.forgive()
        run.failures += 1
        dead = run.failures >= run.attempts_max
        status = model.give_back(run, "dead" if dead else "queued", model.now + command.delay)
        run.journal.append(("failure", None))
        return status
    if command.interrupted:
        worker = run.worker
        assert worker is not None
        draining = worker in model.workers and model.workers[worker].draining
        return model.interrupt(run, model.now + command.delay, worker if draining else None)
    run.forgive()
    return model.give_back(run, "queued", model.now + command.delay)


def _mail_after(model: State, run: Run, command: Release) -> bool:
    return any(
        name in command.waits
        for number, (name, _) in enumerate(run.mail, 1)
        if number > command.seen
    )


def _child_over(model: State, command: Release) -> bool:
    return any(id not in model.runs or model.runs[id].ended is not None for id in command.children)
