"""Queue limits and pruning: the contracts of `outlast.store.commands.upkeep`."""

from collections.abc import Iterator

from outlast.store.commands import ITEM, Prune, SetQueueLimits
from store_model import keys
from store_model.rows import Limits, Run
from store_model.state import State


def set_queue_limits(model: State, command: SetQueueLimits, _):
    before = model.queues.get(command.queue, Limits())
    limits = model.queues[command.queue] = Limits(**vars(before))
    if not command.keep_depth:
        limits.depth_max = command.depth_max
    if not command.keep_concurrency:
        limits.concurrency_max = command.concurrency_max
    if not command.keep_key_concurrency:
        limits.key_concurrency_max = command.key_concurrency_max
    if not command.keep_key_rate:
        limits.key_starts_max, limits.key_period = command.key_starts_max, command.key_period
    if command.paused is not None:
        limits.paused = command.paused


def prune(model: State, command: Prune, _):
    dead = bool(command.dead or command.ids)
    gone = [
        run
        for run in model.runs.values()
        if run.ended is not None
        and run.ended < command.before
        and run.undoing is None
        and not keys.counts_as_start(model, run)
        and (dead or not any(one.status == "dead" for one in (run, *_below(model, run))))
        and not any(_needs_those_below(model, one, dead=dead) for one in _above(model, run))
        and (not command.items or (run.workflow == ITEM and run.status == "done"))
        and (not command.ids or run.id in command.ids)
    ]
    for run in gone:
        del model.runs[run.id]
    return len(gone)


def _needs_those_below(model: State, run: Run, *, dead: bool) -> bool:
    return run.ended is None or run.undoing is not None or (run.status == "dead" and not dead)


def _above(model: State, run: Run) -> Iterator[Run]:
    while (above := model.runs.get(run.parent)) is not None:
        yield above
        run = above


def _below(model: State, run: Run) -> Iterator[Run]:
    for one in model.runs.values():
        if one.parent == run.id:
            yield one
            yield from _below(model, one)
