"""End a run execution.

Wake the workflow so that its `finally` blocks execute, stop the step bodies, then settle, park or
release the run.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from outlast.errors import StoreError
from outlast.execution.end_warnings import warn_not_awaited, warn_of_running_tasks
from outlast.execution.execution_state import EndKind, EndReason, OutcomeKind, RunOutcome
from outlast.execution.settlement import command_after_cancel, last_command
from outlast.store.commands import CANCEL, Refused, Settle, Undo

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")

ROUNDS = 10
"""How often tasks that survive a cancellation are cancelled again."""


class Ending:
    """Hold how an execution ends: the run's settlement, and what became of the run."""

    __slots__ = ("finished", "settlement")

    def __init__(self, host: asyncio.AbstractEventLoop) -> None:
        self.settlement: Settle | None = None
        """The command that settles the run, once its workflow has returned or raised."""
        self.finished: asyncio.Future[RunOutcome] = host.create_future()

    def settle_with(self, settlement: Settle | None) -> None:
        """Set the command that settles the run, if the end of its workflow gives one."""
        self.settlement = settlement

    @property
    def outcome(self) -> RunOutcome | None:
        """Return what became of the run, or None while this execution has not ended."""
        return self.finished.result() if self.finished.done() else None


def wind_down(execution: RunExecution) -> None:
    """Wake what still waits in the workflow, then stop the step bodies.

    Later calls do nothing. Afterwards no entry is delivered or recorded, except the late outcomes
    of effects.
    """
    reason = execution.end_reason
    settlement = execution.ending.settlement
    assert reason is not None
    if not execution.begin_ending():
        return
    warn_of_running_tasks(execution)
    _end_tasks(execution)
    if execution.sync_thread is not None:
        execution.sync_thread.evict(reason.error)
    for task, step in execution.steps.tasks.items():
        if step is None or not step.is_shielded:
            task.cancel()
    for call_site in list(execution.calls.sites.values()):
        if not call_site.awaited:
            warn_not_awaited(execution, call_site)
        if call_site.coro is not None:
            # The call was never awaited. Python's own warning would name a line of Outlast.
            call_site.coro.close()
        if call_site.kind == "child" and call_site.stop is not None and settlement is not None:
            # A child that the workflow does not await ends with its parent.
            call_site.stop()
    background = execution.services.background
    background.track_task(background.spawn_detached(_conclude(execution)))


def _end_tasks(execution: RunExecution) -> None:
    """Wake every task that waits at a call site, then cancel the remaining tasks.

    The woken tasks get the end reason. Cancellation is repeated up to ROUNDS times.
    """
    loop = execution.loop
    with loop.opened():
        for call_site in list(execution.calls.sites.values()):
            call_site.wake()
    loop.pump(10_000)
    for _ in range(ROUNDS):
        going_on = [task for task in loop.tasks if not task.done()]
        if not going_on:
            break
        with loop.opened():
            for task in going_on:
                task.cancel(str(execution.end_reason))
        loop.pump(10_000)
    if any(not task.done() for task in loop.tasks):
        # Keep the loop alive, so that no finalizer executes the workflow's code.
        execution.services.unfinished_loops.append(loop)
    for task in loop.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if task.done() and not task.cancelled():
            # Mark the exception as retrieved. It needs no report.
            task.exception()


async def _conclude(execution: RunExecution) -> None:
    """Settle, park or release the run once its steps have stopped, and report its outcome."""
    try:
        await _stopped(execution)
        await _close_resources(execution)
        outcome = await _write_outcome(execution)
    except (Exception, asyncio.CancelledError) as error:
        cause = error if isinstance(error, Exception) else None
        execution.finish(
            RunOutcome(OutcomeKind.LOST, reason=str(execution.end_reason), cause=cause)
        )
        raise
    execution.finish(outcome)


async def _write_outcome(execution: RunExecution) -> RunOutcome:
    """Write the run's last command and return what became of the run."""
    services = execution.services
    reason = execution.end_reason
    settlement = execution.ending.settlement
    assert reason is not None
    if reason.kind is EndKind.LOST:
        return _lost(reason)
    children_left = False
    if _may_leave_children(execution):
        try:
            children_left = await services.children.has_unfinished(execution.id)
        except StoreError as error:
            return _lost(EndReason.write_failed(error))
    if execution.steps.tasks or _threads(execution):
        # The run still executes here. No other worker may get it yet.
        execution.hang()
        services.observer.hung(execution)
        services.background.run_after_close(_finish_late(execution, children_left=children_left))
        error_text = None if settlement is None else settlement.error
        return RunOutcome(OutcomeKind.HUNG, error=error_text, reason=str(reason))
    last = last_command(execution, children_left=children_left)
    # Nothing of the run still executes. What the worker claims now is written after the run's
    # end.
    services.observer.nothing_executes(execution)
    answer: Any
    try:
        answer = await services.store.execute(last)
        if isinstance(answer, Refused) and answer.why == CANCEL:
            last = await command_after_cancel(execution, answer.detail)
            answer = await services.store.execute(last)
    except StoreError as error:
        answer = error
    if isinstance(answer, (Refused, StoreError)):
        # This process no longer owns the run, or the store does not answer.
        return _lost(EndReason.write_failed(answer))
    if isinstance(last, Settle):
        return RunOutcome.settled(last)
    if isinstance(last, Undo):
        return RunOutcome(OutcomeKind.UNDOING, reason="its effects are being compensated")
    kind = OutcomeKind.WAITING if reason.kind is EndKind.WAITING else OutcomeKind.RELEASED
    return RunOutcome(kind, reason=str(reason), became_dead=answer == "dead")


def _lost(reason: EndReason) -> RunOutcome:
    return RunOutcome(OutcomeKind.LOST, reason=str(reason), cause=reason.cause)


def _may_leave_children(execution: RunExecution) -> bool:
    settlement = execution.ending.settlement
    return (
        execution.calls.has_children
        and settlement is not None
        and settlement.status != "done"
        and not execution.undoing
    )


async def _finish_late(execution: RunExecution, *, children_left: bool) -> None:
    """Write the run's last command once its effects and threads have ended after close.

    The engine closed while they still executed. The run is released only if they end while the
    program is still running.
    """
    services = execution.services
    while going_on := [*execution.steps.tasks, *_threads(execution)]:
        await asyncio.wait(going_on)
        execution.steps.forget_done()
    await _close_resources(execution)
    try:
        await services.store.execute(last_command(execution, children_left=children_left))
    finally:
        execution.finish_late()
        # If the store did not accept the command, deregistering the worker releases the run.
        services.observer.finished_late(execution)


async def _stopped(execution: RunExecution) -> None:
    """Wait until nothing of the run executes. If the engine closes, wait at most `close_timeout`.

    A run that has ended does not wait for threads of steps that were cancelled or timed out, since
    their outcome is recorded.
    """
    services = execution.services
    while True:
        execution.steps.forget_done()
        going_on: list[asyncio.Future[Any]] = [*execution.steps.tasks, *_threads(execution)]
        if not going_on:
            return
        if services.shutdown.closing:
            await asyncio.wait(going_on, timeout=services.shutdown.close_seconds)
            execution.steps.forget_done()
            return
        await asyncio.wait(
            [*going_on, services.shutdown.close_began], return_when=asyncio.FIRST_COMPLETED
        )


async def _close_resources(execution: RunExecution) -> None:
    """Close what the steps have opened, before another worker can get the run.

    A step that still executes keeps its resources.
    """
    steps = execution.steps
    if steps.resources and not (steps.tasks or _threads(execution)):
        services = execution.services
        seconds = min(services.settings.close_timeout, services.shutdown.close_seconds)
        await steps.resources.close_all(seconds)


def _threads(execution: RunExecution) -> list[asyncio.Future[Any]]:
    """Return the threads that may still execute something of the run and must end first."""
    thread = execution.sync_thread
    steps = execution.steps
    own = [] if thread is None or thread.ended.done() else [thread.ended]
    if execution.ending.settlement is None:
        return [*steps.threads, *own]
    return [*(steps.orphans_alive if execution.journal.effect_log.opened else []), *own]
