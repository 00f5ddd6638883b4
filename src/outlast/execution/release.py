"""Let a run leave this process before it has ended.

A run is released because it only waits, because of a drain, or because another worker must continue
it. It is parked because a person must decide.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING

from outlast.errors.reasons import EXHAUSTED, STUCK, UNKNOWN
from outlast.execution.cancellation import CancelState
from outlast.execution.effects_from_journal import UNDO
from outlast.execution.execution_state import EndReason, ExecutionState, IdleState
from outlast.store.rows import NEVER
from outlast.telemetry.error_text import cut

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

BUDGET = "[budget]"
"""What precedes the id of a use of a budget among the unknown effects. No call site begins so."""

log = logging.getLogger("outlast.replay")


def release_if_idle(execution: RunExecution, why: str) -> None:
    """Release the run during a drain if nothing of it is in flight.

    A run that only waits is not recorded as interrupted. A run with an unknown effect is parked.
    """
    if not execution.is_idle:
        return
    if execution.journal.effect_log.unknown:
        park_if_idle(execution)
        return
    rest = None if execution.steps.interrupted else what_it_waits_for(execution, children_too=True)
    if rest is not None and rest.children and not execution.claimed:
        # There may be no worker that takes the children. The process that restarts the parent
        # must get it at once.
        rest = rest._replace(due=execution.clock.now())
    if rest is not None:
        execution.stop(EndReason.waiting(rest))
    else:
        execution.stop(EndReason.released(f"drain: {why}"))


def what_it_waits_for(execution: RunExecution, *, children_too: bool = False) -> IdleState | None:
    """Return what the run waits for, or None if some of it is in flight here.

    A run that only waits needs no process. It stays while one of its children executes here, unless
    `children_too` releases them as well.
    """
    writes = execution.writes
    steps = execution.steps
    thread = execution.sync_thread
    if (
        execution.state is not ExecutionState.LIVE
        or execution.cancellation.state is not CancelState.NONE
        or writes.in_flight
        or writes.pending
        or execution.calls.deferred
        or steps.threads
        or (thread is not None and thread.busy)
        or execution.journal.effect_log.unknown
        or execution.mailbox.has_news
    ):
        return None
    called = execution.calls.awaited
    waiting = [
        step.due for step in steps.tasks.values() if step is not None and step.due is not None
    ]
    children = tuple(site.child for site in called if site.child is not None)
    here = any(child in execution.services.running for child in children) and not children_too
    if not len(called) == len(children) + len(waiting) == len(steps.tasks) or here:
        return None
    deadline = NEVER if execution.row.deadline is None else execution.row.deadline
    due = min(execution.clock.next_due(), deadline, *waiting)
    names = execution.mailbox.waiting
    if due < NEVER or names or children:
        return IdleState(due, names, children, writes.seq, execution.mailbox.last)
    return None


def mark_unknown(execution: RunExecution, key: str, why: str) -> None:
    """Mark an effect's outcome as unknown: only a person can decide it.

    The run is parked once nothing else of it executes.
    """
    execution.journal.effect_log.unknown[key] = why
    if key.startswith(UNDO) and not _is_of_children(execution, key):
        execution.services.metrics.compensation("failed")
    characters = execution.services.log_values
    reason = (
        f": {cut(why, characters)}"
        if characters
        else f" (`outlast show {quote(execution.id)}` shows why)"
    )
    log.warning(
        "The outcome of effect %s of run %s is unknown%s",
        key,
        execution.id,
        reason,
        extra=execution.log_fields(key),
    )
    execution.settled()


def mark_exhausted(execution: RunExecution, use: str, question: str) -> None:
    """Mark that a use of a budget waits until a person raises the budget.

    The run is parked once nothing else of it executes.
    """
    execution.journal.effect_log.unknown[BUDGET + use] = question
    execution.settled()


def unmark_exhausted(execution: RunExecution, use: str) -> None:
    """Mark that a use of a budget no longer waits."""
    execution.journal.effect_log.unknown.pop(BUDGET + use, None)


def park_if_idle(execution: RunExecution) -> None:
    """Park a run once nothing of it is in flight, if an effect is unknown or a budget exhausted."""
    if execution.state is not ExecutionState.LIVE:
        return
    writes = execution.writes
    # During a drain, another execution makes the deferred calls.
    deferred = execution.calls.deferred and not execution.services.shutdown.begun
    in_flight = writes.in_flight or writes.pending or deferred or execution.is_executing
    if not in_flight and execution.journal.effect_log.unknown:
        execution.stop(EndReason.parked(_why_parked(execution)))


def _why_parked(execution: RunExecution) -> str:
    """Return the reason for parking, with the commands that a person can use to decide."""
    marked = execution.journal.effect_log.unknown
    unknown = {key: why for key, why in marked.items() if not key.startswith(BUDGET)}
    questions = {why: None for key, why in marked.items() if key.startswith(BUDGET)}
    exhausted = f"{EXHAUSTED}{' '.join(questions)}" if questions else ""
    if not unknown:
        return exhausted
    return " ".join([_what_is_unknown(execution, unknown), *([exhausted] if exhausted else [])])


def _what_is_unknown(execution: RunExecution, unknown: Mapping[str, str]) -> str:
    lines = [f"{key}{_which(execution, key)}: {why}" for key, why in unknown.items()]
    stuck = all(key.startswith(UNDO) for key in unknown)
    # A failed rollback of a unit stops a run that has not ended, so there is nothing to retry.
    again = "retry" if execution.undoing else "resume"
    dealt = [execution.journal.effect_log.get(key) for key in unknown]
    can = not execution.undoing and any(
        one is not None and one.compensation is not None for one in dealt
    )
    compensate = ", or `--compensate`" if can else ""
    only = next(iter(unknown)) if len(unknown) == 1 else None
    effect = "EFFECT" if only is None else f"{only}{_which(execution, only)}"
    if all(_is_of_children(execution, key) for key in unknown):
        return f"{STUCK}{' '.join(lines)} Then run `outlast {again} {quote(execution.id)}`."
    commands = (
        f"`outlast {again} {quote(execution.id)}` to try again, or, if it was done by hand, "
        f"`outlast decide {quote(execution.id)} {effect} --happened null`"
        if stuck
        else f"`outlast decide {quote(execution.id)} {effect} "
        f"--happened RESULT` or `--did-not`{compensate}"
    )
    return f"{STUCK if stuck else UNKNOWN}{' '.join(lines)} Run {commands}."


def _is_of_children(execution: RunExecution, key: str) -> bool:
    of = execution.journal.effect_log.get(key.removeprefix(UNDO))
    return key.startswith(UNDO) and (of is None or of.kind == "child")


def _which(execution: RunExecution, key: str) -> str:
    """Return the `--intent` option if a decision must name one of several intents, else ""."""
    effect_record = execution.journal.effect_log.get(key)
    return (
        f" --intent {effect_record.intent}"
        if effect_record is not None and effect_record.tried_again
        else ""
    )


def release(execution: RunExecution, why: str, delay: float) -> None:
    """Release a run that this process cannot continue.

    Another worker may take it over after `delay` seconds.
    """
    log.warning(
        "Run %s was released for other workers: %s", execution.id, why, extra=execution.log_fields()
    )
    execution.stop(EndReason.released(why, delay))
