"""Submit the entries and the progress of a run, and act on the store's answers.

An entry is delivered to the run once it is durable. If the store refuses a write, the execution
stops: another process has taken over the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.execution.effects_from_journal import KINDS as EFFECT_KINDS
from outlast.execution.execution_state import EndKind, EndReason, ExecutionState
from outlast.execution.journal import DELIVERED
from outlast.store.commands import Command, Publish, Record, SaveProgress
from outlast.store.rows import EntryKind
from outlast.telemetry.error_text import format_recorded

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")

PROGRESS = frozenset({"step", "attempt", "inner", "child", "session"})
"""Kinds of entries that count as progress of a run in this execution."""


class Enclosing(NamedTuple):
    """A command that contains an entry, and whose answer completes the entry."""

    command: Callable[[Record], Command]
    """Builds the command."""
    value: Callable[[Any], str | None]
    """Returns the entry's value, given the store's answer, or None if no entry was written."""


def record(
    execution: RunExecution,
    kind: EntryKind,
    key: str,
    args: str | None = None,
    value: str | None = None,
    error: str | None = None,
    seconds: float | None = None,
    attempt: int | None = None,
    asked: bool | None = None,
    at_least: float = 0.0,
    cost: str | None = None,
    late: bool = False,
    within: Enclosing | None = None,
) -> int:
    """Submit an entry and return its number. The entry is delivered once it is durable.

    Return 0 and write nothing if this execution stops. `late` still writes an effect's outcome as
    long as this execution can release the run.
    """
    if execution.end_reason is not None and not (late and _may_record_late(execution)):
        return 0
    writes = execution.writes
    effect_log = execution.journal.effect_log
    entry = writes.next_record(
        kind, key, args, value, error, seconds, attempt, asked, cost, at_least
    )
    if kind in EFFECT_KINDS or effect_log.records:
        effect_log.add(entry)
    if within is None:
        alone = (
            kind == "step" and not execution.steps.tasks and len(execution.services.running) == 1
        )
        writes.submit(entry, partial(_recorded, execution), alone=alone)
    else:
        _submit_within(execution, entry, within)
    return entry.seq


def _may_record_late(execution: RunExecution) -> bool:
    assert execution.end_reason is not None
    return execution.state < ExecutionState.ENDED and execution.end_reason.kind is not EndKind.LOST


def _submit_within(execution: RunExecution, entry: Record, within: Enclosing) -> None:
    def answered(_: Any, outcome: Any) -> None:
        value = within.value(outcome)
        _recorded(execution, entry._replace(value=value), outcome if value is None else None)

    execution.writes.submit(within.command(entry), answered)


def _recorded(execution: RunExecution, entry: Record, outcome: Any) -> None:
    writes = execution.writes
    writes.answered()
    if outcome is None:
        if entry.cost is not None or execution.trace.cost is not None:
            execution.trace.add_cost(entry)
    elif entry.kind == "step" and execution.journal.effect_log.get(entry.key) is not None:
        log_lost_outcome(execution, entry.key, entry.error)
    if execution.end_reason is not None:
        return
    if outcome is not None:
        execution.stop(EndReason.write_failed(outcome))
        return
    if writes.is_suspect and entry.kind in PROGRESS:
        _note_progress(execution)
    waited_for = writes.wake(entry.seq)
    if entry.kind in DELIVERED:
        writes.pending.append(entry)
        execution.advance()
    elif not waited_for or execution.journal.effect_log.unknown:
        # A failed attempt: its step waits for the next one, which another execution may make.
        # With an unknown effect, this may have been the last pending write.
        execution.settled()


async def record_and_wait(
    execution: RunExecution, kind: EntryKind, key: str, **fields: Any
) -> None:
    """Record an entry that is not delivered, and wait until it is durable. For step bodies."""
    seq = record(execution, kind, key, **fields)
    execution.check_active()
    await execution.writes.until_durable(seq)


def save(execution: RunExecution, command: SaveProgress, done: Callable[[Any], None]) -> None:
    """Submit a step's progress, and pass the store's answer to `done`."""

    def saved(_: Any, outcome: Any) -> None:
        execution.writes.answered()
        done(outcome)
        if execution.end_reason is None and outcome is not None:
            execution.stop(EndReason.write_failed(outcome))
            return
        _note_progress(execution)
        execution.settled()

    execution.writes.submit(command, saved)


def publish(execution: RunExecution, command: Publish, done: Callable[[Any], None]) -> None:
    """Submit what a step publishes, and pass the store's answer to `done`.

    This is not progress: a step that publishes and then kills its worker becomes a dead letter.
    """

    def published(_: Any, outcome: Any) -> None:
        execution.writes.answered()
        if execution.end_reason is None and outcome is not None:
            execution.stop(EndReason.write_failed(outcome))
        done(outcome)
        execution.settled()

    execution.writes.submit(command, published)


def _note_progress(execution: RunExecution) -> None:
    if execution.writes.take_first_progress():
        # The worker may claim other runs again.
        execution.services.observer.made_progress(execution)


def log_lost_outcome(execution: RunExecution, key: str, error: str | None) -> None:
    """Log that an effect's outcome could not be recorded because this worker lost the run."""
    came = (
        "returned"
        if error is None
        else f"raised {format_recorded(error, execution.services.log_values)}"
    )
    message = (
        "Effect %s of run %s %s after this worker had lost the run. It may have happened twice."
    )
    log.error(message, key, execution.id, came, extra=execution.log_fields(key))
