"""Submitting: the contracts of `outlast.store.commands.submission`."""

from outlast.store.commands import (
    CONFLICT,
    DEPTH,
    DRAINING,
    WORKER,
    Refused,
    Submit,
    SubmitMany,
    Submitted,
)
from store_model.rows import Limits, Run
from store_model.state import State


def submit(model: State, command: Submit, outcome):
    if command.worker and command.worker not in model.workers:
        return WORKER
    run = model.runs.get(command.id)
    again = run is not None and (run.token, run.worker) == (command.token, command.worker)
    if command.worker and model.workers[command.worker].draining and not again:
        return DRAINING
    if run is None and not command.worker and (full := _full(model, command, 1)):
        return full
    assert isinstance(outcome, Submitted), outcome
    return _submitted(model, command, outcome)


def submit_many(model: State, command: SubmitMany, outcome):
    works: dict[str, tuple[str, str]] = {
        id: (run.workflow, run.args) for id, run in model.runs.items()
    }
    for one in command.runs:
        if works.setdefault(one.id, (one.workflow, one.args)) != (one.workflow, one.args):
            return Refused(CONFLICT, one.id)
    fresh = {one.id: one for one in reversed(command.runs) if one.id not in model.runs}
    for queue in dict.fromkeys(one.queue for one in command.runs):
        there = [one for one in fresh.values() if one.queue == queue]
        if there and (full := _full(model, there[0], len(there))):
            return full
    assert isinstance(outcome, list), outcome
    return [_submitted(model, one, each) for one, each in zip(command.runs, outcome, strict=True)]


def _submitted(model: State, command: Submit, outcome: Submitted) -> Submitted:
    run = model.runs.get(command.id)
    if run is None:
        model.count += 1
        run = model.runs[command.id] = Run(
            command.id, model.count, command.workflow, command.args, command.queue, command.priority, command.parent, command.token,
            model.now + command.delay, command.attempts_max, command.interruptions_max, command.abandon_after, command.key,
        )  # fmt: skip
        model.queues.setdefault(command.queue, Limits())
        new = True
        if command.worker:
            assert outcome.row is not None
            run.status, run.worker, run.started, run.lives = "running", command.worker, True, 1
            model.grant_fence(run, outcome.row.fence)
        elif command.delay <= 0:
            run.make_ready()
    elif command.replace and _may_replace(run, command):
        run.args, run.token, run.priority = command.args, command.token, command.priority
        run.due, run.abandon_after = model.now + command.delay, command.abandon_after
        run.ready, run.turn, new = 0, None, True
        if command.delay <= 0:
            run.make_ready()
    else:
        assert outcome.row is not None
        new = run.token == command.token and (
            run.worker == command.worker
            if command.worker
            else run.status == "queued" and run.lives == 0
        )
    if outcome.row is not None:
        assert (outcome.row.id, outcome.row.args, outcome.row.fence, outcome.row.status) == (
            run.id,
            run.args,
            run.fence,
            run.status,
        )
    return Submitted(outcome.row, new)


def _may_replace(run: Run, command: Submit) -> bool:
    return (
        (run.status, run.lives, run.parent) == ("queued", 0, None)
        and run.token != command.token
        and (run.workflow, run.queue, run.key) == (command.workflow, command.queue, command.key)
    )


def _full(model: State, command: Submit, count: int) -> Refused | None:
    own = model.queues.get(command.queue, Limits()).depth_max
    limit = command.depth_max if own is None else own
    depth = sum(run.status == "queued" for run in model.runs.values() if run.queue == command.queue)
    return (
        Refused(DEPTH, f"{depth}/{limit}/{count}")
        if limit is not None and depth + count > limit
        else None
    )
