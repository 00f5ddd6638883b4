"""Build the last command of a run: settle, park, release or compensate it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from outlast.codec.exceptions import SEQ, encode_error
from outlast.errors import LimitExceeded, RunTimeout, Unrecordable
from outlast.execution.execution_state import EndKind
from outlast.store.commands import Release, Settle, Undo, verdict

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.run_loop import RunTask


def build_settlement(execution: RunExecution, main: RunTask) -> Settle:
    """Build the command that settles the run, after its workflow has returned or raised."""
    if execution.row.undoing is not None:
        recorded = json.loads(execution.row.undoing)
        return Settle(execution.pk, execution.fence, **recorded)
    text_max = execution.services.settings.error_text_max
    reason = execution.end_reason
    error: BaseException | None = None if reason is None else reason.cause
    if error is None:
        try:
            error = main.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
    if execution.cancellation.timed_out:
        timeout = execution.workflow.timeout
        error = RunTimeout(execution.id, "" if timeout is None else f"{timeout:g} s")
        text = encode_error(error, text_max)
        return Settle(
            execution.pk,
            execution.fence,
            "failed",
            error=text,
            failed_at=execution.cancellation.entry,
        )
    if execution.cancellation.reason is not None:
        return Settle(
            execution.pk,
            execution.fence,
            "cancelled",
            reason=execution.cancellation.reason,
            failed_at=execution.cancellation.entry,
        )
    if error is None:
        try:
            text, _ = execution.workflow.signature.returns().round_trip(main.result())
            execution.services.check_size(text, f"the result of {execution.workflow.name}")
        except (Unrecordable, LimitExceeded) as unfit:
            error = unfit
        else:
            return Settle(execution.pk, execution.fence, "done", value=text)
    text = encode_error(error, text_max)
    return Settle(execution.pk, execution.fence, "failed", error=text, failed_at=_origin(error))


def last_command(execution: RunExecution, *, children_left: bool) -> Settle | Release | Undo:
    """Return the command that settles, parks, releases or begins to compensate the run."""
    pk = execution.pk
    fence = execution.fence
    reason = execution.end_reason
    settlement = execution.ending.settlement
    effect_log = execution.journal.effect_log
    assert reason is not None
    if settlement is not None:
        to_undo = settlement.status != "done" and (effect_log.undoable or children_left)
        if not execution.undoing and (effect_log.opened or to_undo):
            return Undo(
                pk,
                fence,
                verdict(
                    settlement.status,
                    settlement.value,
                    settlement.error,
                    settlement.reason,
                    settlement.failed_at,
                ),
            )
        return settlement
    if reason.kind in (EndKind.DIVERGED, EndKind.PARKED):
        unless_cancelled = reason.kind is EndKind.DIVERGED
        return Settle(pk, fence, "parked", reason=str(reason), unless_cancelled=unless_cancelled)
    if reason.delay is not None:
        return Release(pk, fence, str(reason), delay=reason.delay, interrupted=False)
    if reason.wait is not None:
        return Release(
            pk,
            fence,
            str(reason),
            waiting=True,
            due=reason.wait.due,
            waits=reason.wait.names,
            seen=reason.wait.seen,
            children=reason.wait.children,
        )
    return Release(pk, fence, str(reason))


async def command_after_cancel(execution: RunExecution, why: str) -> Settle | Undo:
    """Return the command that ends a cancelled run that cannot be replayed.

    Its `finally` blocks cannot execute. Its effects are in the journal, and are compensated from
    there without its code.
    """
    failed_at = execution.cancellation.entry
    if failed_at is None:
        asked = [entry.seq for entry in execution.writes.pending if entry.kind == "cancel"]
        failed_at = min(asked, default=None)
    if await execution.services.store.read(
        execution.services.store.backend.may_need_compensation, execution.id
    ):
        text = verdict("cancelled", reason=why, failed_at=failed_at)
        return Undo(execution.pk, execution.fence, text)
    return Settle(execution.pk, execution.fence, "cancelled", reason=why, failed_at=failed_at)


def _origin(error: BaseException) -> int | None:
    """Return the number of the entry whose exception ended the run, or None.

    A retry starts there.
    """
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    found: list[int] = []
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if SEQ in one.__dict__:
            # What was handled before this exception is not part of the end.
            found.append(one.__dict__[SEQ])
            continue
        stack += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            stack += one.exceptions
    return min(found, default=None)
