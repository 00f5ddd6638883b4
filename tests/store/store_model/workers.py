"""Workers, drains and deaths: the contracts of `outlast.store.commands.workers`."""

from outlast.store.commands import WORKER, DeregisterWorker, Drain, RegisterWorker, Renew, Sweep
from outlast.store.rows import FLEET_SECONDS, FLEET_SECONDS_MIN, deaths_allowed
from store_model.rows import DrainReport, Run, Worker
from store_model.state import State


def register_worker(model: State, command: RegisterWorker, _):
    worker = model.workers.setdefault(command.worker, Worker(0.0, 0.0, model.now, ()))
    worker.lease, worker.until, worker.queues = (
        command.lease,
        model.now + command.lease,
        command.queues,
    )
    worker.renewed = model.now
    model.note_beat()


def renew(model: State, command: Renew, _):
    if command.worker not in model.workers:
        return WORKER
    worker = model.workers[command.worker]
    worker.lease, worker.until, worker.renewed = command.lease, model.now + command.lease, model.now
    worker.draining = worker.draining or command.draining
    model.note_beat()


def deregister_worker(model: State, command: DeregisterWorker, _):
    for run in model.held(command.worker):
        model.interrupt(
            run, model.now, command.worker if model.workers[command.worker].draining else None
        )
    model.workers.pop(command.worker, None)


def drain(model: State, command: Drain, _):
    worker = model.workers.get(command.worker)
    if worker is None:
        return WORKER
    if not worker.draining:
        model.drains.pop(command.worker, None)
    worker.draining = True
    back = [run for run in model.held(command.worker) if run.fence not in command.keep]
    for run in back:
        run.forgive()
        model.give_back(run, "queued", model.now)
    model.drains.setdefault(
        command.worker, DrainReport(command.reason, model.now, len(model.held(command.worker)))
    )
    return tuple(run.id for run in sorted(back, key=lambda run: run.order))


def sweep(model: State, command: Sweep, outcome):
    model.note_beat()
    workers = {
        id
        for id in model.seem_dead()
        if id in model.gone or model.awake + model.workers[id].lease <= model.now
    }
    swept: list[Run] = []
    for worker in sorted(workers):
        held = model.held(worker)
        if model.workers[worker].draining:
            report = model.drains.setdefault(worker, DrainReport("", model.now, len(held)))
            report.ended = model.now if report.ended is None else report.ended
        parents = {run.id: run.parent for run in held}
        charged = []
        for run in held:
            if model.workers[worker].draining:
                model.interrupt(run, model.now, worker, _seen(model, worker))
            else:
                family = set(_ancestors(model, run, parents)) | {run.id}
                _die(model, run, run.id in parents.values(), family == set(parents), command)
                charged += [run.order] if run.deaths_in_a_row else []
            swept.append(run)
        if not model.workers[worker].draining:
            model.worker_deaths |= {(model.now, worker, run) for run in charged or [0]}
        del model.workers[worker]
    assert sorted(outcome.workers) == sorted(workers)
    assert sorted(outcome.runs) == sorted(run.id for run in swept)
    assert sorted(outcome.dead) == sorted(run.id for run in swept if run.status == "dead")
    return outcome


def _seen(model: State, worker: str) -> float:
    """Return when the worker was last seen."""
    row = model.workers[worker]
    if worker not in model.gone:
        return min(model.now, row.renewed)
    return min(
        model.now, row.until if model.last_beat is None else max(row.renewed, model.last_beat)
    )


def _ancestors(model: State, run: Run, parents: dict[str, str | None]) -> list[str]:
    above = parents.get(run.id)
    return [above, *_ancestors(model, model.runs[above], parents)] if above in parents else []


def _die(model: State, run: Run, has_child: bool, alone: bool, command: Sweep) -> None:
    progress = run.progress()
    run.forgive()
    run.deaths += 1
    due, dead = model.now, False
    if progress or has_child:
        run.deaths_in_a_row = 0
    elif run.deaths_in_a_row < 2 or alone:
        run.deaths_in_a_row += 1
    if run.deaths_in_a_row < 2:
        run.interrupted = model.now if run.interrupted is None else run.interrupted
    else:
        due += min(command.backoff * 2 ** (run.deaths_in_a_row - 2), command.backoff_max)
    if run.deaths_in_a_row and alone:
        dead = run.deaths_in_a_row >= run.attempts_max and _is_final(model, run)
    model.give_back(run, "dead" if dead else "queued", due)
    run.append_mark("death")


def _is_final(model: State, run: Run) -> bool:
    in_a_row = run.deaths_in_a_row
    own = sorted(
        (at for at, _, charged in model.worker_deaths if charged == run.order), reverse=True
    )
    start = max(
        model.now - FLEET_SECONDS, min([model.now - FLEET_SECONDS_MIN, *own[: in_a_row - 1]])
    )
    deaths: dict[tuple[float, str], set[int]] = {}
    for at, worker, charged in model.worker_deaths:
        if start < at <= model.now:
            deaths.setdefault((at, worker), set()).add(charged)
    others = [charged for charged in deaths.values() if run.order not in charged]
    blamed = {min(charged) for charged in others if len(charged) == 1} - {0}
    count = len(blamed) + sum(len(charged) > 1 or charged == {0} for charged in others)
    fleet = {*model.workers, *(worker for at, worker, _ in model.worker_deaths if at == model.now)}
    return in_a_row >= deaths_allowed(run.attempts_max, count, len(fleet))
