"""End a run execution.

Wake the workflow so that its `finally` blocks execute, stop the step bodies, then settle, park or
release the run.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.codec.exceptions import SEQ, encode_error
from outlast.errors import Diverged, Evicted, LimitExceeded, RunTimeout, StoreError, Unrecordable
from outlast.execution.detached import spawn_detached
from outlast.execution.source_lines import is_of_program, shown
from outlast.store.commands import CANCEL, FENCE, Refused, Release, Settle, Undo, verdict
from outlast.store.rows import ENDED

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.run_loop import RunTask

log = logging.getLogger("outlast.replay")

ROUNDS = 10
"""How often tasks that survive a cancellation are cancelled again."""


class RunOutcome(NamedTuple):
    """How an execution ended.

    `status` is the run's status, or "evicted" if the run continues elsewhere.
    """

    status: str
    value: str | None = None
    error: str | None = None
    reason: str | None = None


def build_settlement(execution: RunExecution, main: RunTask) -> Settle:
    """Build the command that settles the run, after its workflow has returned or raised."""
    if execution.row.undoing is not None:
        said = json.loads(execution.row.undoing)
        return Settle(execution.pk, execution.fence, **said)
    text_max = execution.engine.settings.error_text_max
    error: BaseException | None = execution.refused
    if error is None:
        try:
            error = main.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
    if execution.timed_out:
        text = encode_error(RunTimeout(execution.id), text_max)
        return Settle(
            execution.pk, execution.fence, "failed", error=text, failed_at=execution.cancel_seq
        )
    if execution.cancelling is not None:
        return Settle(
            execution.pk,
            execution.fence,
            "cancelled",
            reason=execution.cancelling,
            failed_at=execution.cancel_seq,
        )
    if error is None:
        try:
            text, _ = execution.workflow.signature.returns().round_trip(main.result())
            execution.engine.check_size(text, f"the result of {execution.workflow.name}")
        except (Unrecordable, LimitExceeded) as unfit:
            error = unfit
        else:
            return Settle(execution.pk, execution.fence, "done", value=text)
    text = encode_error(error, text_max)
    return Settle(execution.pk, execution.fence, "failed", error=text, failed_at=_origin(error))


def wind_down(execution: RunExecution) -> None:
    """Wake what still waits in the workflow, then stop the step bodies.

    Later calls do nothing. Afterwards no entry is delivered or recorded, except the late outcomes
    of effects.
    """
    assert execution.end_reason is not None
    if execution.ending:
        return
    execution.ending = True
    execution.stop_clocks()
    _warn_of_running_tasks(execution)
    _end_tasks(execution)
    if execution.thread is not None:
        execution.thread.evict(execution.end_reason)
    for task, body in execution.step_executions.items():
        if body is None or not body.shielded:
            task.cancel()
    for call_site in list(execution.call_sites.values()):
        if not call_site.awaited:
            _say_not_awaited(execution, call_site)
        if call_site.coro is not None:
            # The call was never awaited. Python's own warning would name a line of Outlast.
            call_site.coro.close()
        if (
            call_site.kind == "child"
            and call_site.stop is not None
            and execution.settlement is not None
        ):
            # A child that the workflow does not await ends with its parent.
            call_site.stop()
    execution.engine.track_task(spawn_detached(execution.host, _conclude(execution)))


def _say_not_awaited(execution: RunExecution, call_site: CallSite) -> None:
    """Log a call without `await`: it did nothing, and the run ended all the same.

    For a run that failed, log only effects. An exception may have come between the call and its
    `await`.
    """
    if execution.settlement is None or (
        execution.settlement.status != "done" and call_site.effect_call is None
    ):
        return
    kind = "effect" if call_site.effect_call is not None else call_site.kind
    line = "" if call_site.line is None else f" at {shown(call_site.line)}"
    level = logging.ERROR if call_site.effect_call is not None else logging.WARNING
    saying = (
        "%s %s of run %s was called%s and not awaited: nothing was done. Await it: `await %s(...)`."
    )
    name = call_site.key.rpartition("/")[2].partition("#")[0]
    log.log(
        level,
        saying,
        kind,
        call_site.key,
        execution.id,
        line,
        name,
        extra=execution.log_fields(call_site.key),
    )


def _warn_of_running_tasks(execution: RunExecution) -> None:
    """Log the program's tasks that still run when a run is done.

    The workflow did not wait for them. Tasks that the workflow has cancelled do not count, nor do
    tasks that a library created for itself.
    """
    if execution.settlement is None or execution.settlement.status != "done" or execution.undoing:
        return
    module = execution.workflow.fn.__module__
    running = [
        (task, task.line)
        for task in execution.loop.tasks
        if not (task is execution.main or task.done() or task.cancelling())
        and task.line is not None
        and is_of_program(task.line, module)
    ]
    if running:
        task, line = running[0]
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        log.warning(
            "run %s ended while task %s, created at %s,%s still ran: what it had not done is lost. "
            "Await the task before the workflow returns, or cancel it.",
            execution.id, task.scope.path.rstrip("/"), shown(line), more,
            extra=execution.log_fields(),
        )  # fmt: skip


def _end_tasks(execution: RunExecution) -> None:
    """Wake every task that waits at a call site, then cancel the remaining tasks.

    The woken tasks get the end reason. Cancellation is repeated up to ROUNDS times.
    """
    loop = execution.loop
    loop.open = True
    for call_site in list(execution.call_sites.values()):
        call_site.wake()
    loop.open = False
    loop.pump(10_000)
    for _ in range(ROUNDS):
        going_on = [task for task in loop.tasks if not task.done()]
        if not going_on:
            break
        loop.open = True
        for task in going_on:
            task.cancel(str(execution.end_reason))
        loop.open = False
        loop.pump(10_000)
    if any(not task.done() for task in loop.tasks):
        # Keep the loop alive, so that no finalizer executes the workflow's code.
        execution.engine.unfinished_loops.append(loop)
    for task in loop.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if task.done() and not task.cancelled():
            # Mark the exception as retrieved. It needs no report.
            task.exception()


async def _conclude(execution: RunExecution) -> None:
    """Settle, park or release the run once its step bodies have stopped."""
    end = RunOutcome("evicted", reason=str(execution.end_reason))
    try:
        await _stopped(execution)
        if (
            execution.had_children
            and execution.settlement is not None
            and execution.settlement.status != "done"
            and not execution.undoing
        ):
            await _look_at_children(execution)
        last = _last_command(execution)
        if last is None:
            execution.concluded = execution.id not in execution.engine.hung
            if not execution.concluded:
                execution.engine.run_after_close(_afterwards(execution))
        else:
            # Nothing of the run executes any more. What the worker claims now is written after the
            # run's end.
            execution.engine.release_slot(execution)
            try:
                outcome = await execution.engine.writer.execute(last)
                if isinstance(outcome, Refused) and outcome.why == CANCEL:
                    last = await _cancelled(execution, outcome.detail)
                    outcome = await execution.engine.writer.execute(last)
            except StoreError as error:
                outcome = error
            execution.concluded = not isinstance(outcome, StoreError)
            if isinstance(outcome, (Refused, StoreError)):
                # This process no longer owns the run, or the store does not answer.
                execution.end_reason, execution.settlement = refusal(outcome), None
                end = RunOutcome("evicted", reason=str(execution.end_reason))
            elif isinstance(last, Undo):
                execution.end_reason, execution.settlement = (
                    Evicted("what it has done is being undone"),
                    None,
                )
                execution.is_to_be_undone = True
            elif isinstance(last, Settle):
                end = RunOutcome(last.status, last.value, last.error, last.reason)
                if last.status == "parked":
                    execution.engine.hooks.tell("parked", execution.id)
            elif outcome == "dead":
                execution.engine.hooks.tell("dead", execution.id)
    finally:
        execution.engine.on_execution_ended(execution)
        if not execution.end.done():
            execution.end.set_result(end)


async def _cancelled(execution: RunExecution, why: str) -> Settle | Undo:
    """Return the command that ends a cancelled run that cannot be replayed.

    Its `finally` blocks cannot execute. Its effects are in the journal, and are compensated from
    there without its code.
    """
    asked = [entry.seq for entry in execution.pending if entry.kind == "cancel"]
    failed_at = (
        execution.cancel_seq if execution.cancel_seq is not None else min(asked, default=None)
    )
    execution.end_reason = Evicted("the run has ended")
    execution.settlement = Settle(
        execution.pk, execution.fence, "cancelled", reason=why, failed_at=failed_at
    )
    if not await execution.engine.read(execution.engine.store.has_dealt, execution.id):
        return execution.settlement
    text = verdict("cancelled", reason=why, failed_at=failed_at)
    return Undo(execution.pk, execution.fence, text)


async def _look_at_children(execution: RunExecution) -> None:
    """Set `children_left` if a child has not ended or has effects.

    Their parent is about to fail or be cancelled.
    """
    engine = execution.engine
    try:
        async with aclosing(engine.children_of(execution.id)) as children:
            async for row in children:
                ended = row.status in ENDED and row.undoing is None
                undone = row.status in ("failed", "cancelled")
                if not ended or (not undone and await engine.read(engine.store.has_dealt, row.id)):
                    execution.children_left = True
                    return
    except StoreError as error:
        execution.end_reason, execution.settlement = refusal(error), None


async def _afterwards(execution: RunExecution) -> None:
    """Write the run's last command once its effects and threads have ended after close.

    The engine closed while they still executed. The run is released only if they end while the
    program is still running.
    """
    engine = execution.engine
    while going_on := [*execution.step_executions, *_threads(execution)]:
        await asyncio.wait(going_on)
        execution.step_executions = {
            task: body for task, body in execution.step_executions.items() if not task.done()
        }
    last = _last_command(execution)
    try:
        if last is not None:
            await engine.writer.execute(last)
    finally:
        # If the store did not accept the command, deregistering the worker releases the run.
        engine.in_flight.drop(execution.fence)
        engine.on_hung_work_ended(execution.id)


async def _stopped(execution: RunExecution) -> None:
    """Wait until nothing of the run executes. If the engine closes, wait at most `close_timeout`.

    A run that has ended does not wait for threads of steps that were cancelled or timed out, since
    their outcome is recorded.
    """
    engine = execution.engine
    while True:
        # A task that was cancelled before its first turn could not remove itself.
        execution.step_executions = {
            task: body for task, body in execution.step_executions.items() if not task.done()
        }
        going_on: list[asyncio.Future[Any]] = [*execution.step_executions, *_threads(execution)]
        if not going_on:
            return
        if engine.shutdown.closing:
            await asyncio.wait(going_on, timeout=engine.shutdown.close_seconds)
            execution.step_executions = {
                task: body for task, body in execution.step_executions.items() if not task.done()
            }
            return
        await asyncio.wait(
            [*going_on, engine.shutdown.close_began], return_when=asyncio.FIRST_COMPLETED
        )


def _threads(execution: RunExecution) -> list[asyncio.Future[Any]]:
    """Return the threads that may still execute something of the run and must end first."""
    own = (
        [execution.thread.ended]
        if execution.thread is not None and not execution.thread.ended.done()
        else []
    )
    if execution.settlement is None:
        return [*execution.threads, *own]
    strays = execution.orphan_threads if execution.journal.effect_log.opened else []
    return [*(thread for thread in strays if not thread.done()), *own]


def _last_command(execution: RunExecution) -> Settle | Release | Undo | None:
    if isinstance(execution.end_reason, Evicted) and execution.end_reason.lost:
        return None
    if execution.step_executions or _threads(execution):
        # The run still executes here. No other worker may get it yet.
        execution.engine.hung.add(execution.id)
        return None
    if execution.settlement is not None:
        effect_log = execution.journal.effect_log
        to_undo = execution.settlement.status != "done" and (
            effect_log.undoable or execution.children_left
        )
        if not execution.undoing and (effect_log.opened or to_undo):
            end = execution.settlement
            text = verdict(end.status, end.value, end.error, end.reason, end.failed_at)
            return Undo(execution.pk, execution.fence, text)
        return execution.settlement
    if isinstance(execution.end_reason, Diverged):
        return Settle(
            execution.pk,
            execution.fence,
            "parked",
            reason=str(execution.end_reason),
            unless_cancelled=True,
        )
    if isinstance(execution.end_reason, Evicted) and execution.end_reason.parked:
        return Settle(execution.pk, execution.fence, "parked", reason=str(execution.end_reason))
    if execution.delay is not None:
        return Release(
            execution.pk,
            execution.fence,
            str(execution.end_reason),
            delay=execution.delay,
            interrupted=False,
        )
    if execution.idle is not None:
        due, names, children, _, seen = execution.idle
        reason = str(execution.end_reason)
        return Release(
            execution.pk,
            execution.fence,
            reason,
            waiting=True,
            due=due,
            waits=names,
            seen=seen,
            children=children,
        )
    return Release(execution.pk, execution.fence, str(execution.end_reason))


def refusal(outcome: Any) -> Evicted:
    """Return the eviction for a run that this process has lost.

    Either another worker has it, or the store did not accept an entry.
    """
    if isinstance(outcome, Refused) and outcome.why == FENCE:
        return lost("another worker has the run now: this one was taken for dead")
    if isinstance(outcome, StoreError):
        return lost(f"the store did not take an entry: {outcome}", outcome)
    return lost(f"the store refused an entry: {outcome}")


def lost(reason: str, cause: StoreError | None = None) -> Evicted:
    """Return an eviction that leaves nothing to release.

    With a cause, the run is not requested again.
    """
    evicted = Evicted(reason)
    evicted.lost, evicted.cause = True, cause
    return evicted


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
