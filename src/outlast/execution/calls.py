"""Start the calls of a workflow, and wait for the entries that answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from outlast.codec.exceptions import CANCELLED
from outlast.execution import recording
from outlast.execution.call_site import CallSite, EffectSite
from outlast.execution.definitions import WorkflowCall
from outlast.execution.execution_state import ExecutionState
from outlast.execution.unit_scope import UNIT

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

Launch = Callable[["RunExecution", CallSite], None]


def make_awaitable(
    execution: RunExecution, site: CallSite, launch: Launch
) -> Coroutine[Any, Any, Any]:
    """Return the coroutine for a reserved call site. Awaiting it launches the call."""
    coro = site.coro = wait_for_outcome(execution, site, launch)
    coro.__qualname__ = site.key  # type: ignore[attr-defined]
    return coro


async def wait_for_outcome(execution: RunExecution, site: CallSite, launch: Launch) -> Any:
    """Wait for the entry that answers a call site, and return or raise its outcome.

    Runs on the run loop.
    """
    site.launch = launch
    site.coro = None
    site.awaited = True
    if not site.delivered:
        _begin(execution, site)
    if not site.delivered:
        site.future = wait = _Wait(loop=execution.loop)
        wait.execution = execution
        wait.site = site
        try:
            await wait
        finally:
            # Break the reference cycle: the future holds the call site.
            site.future = None
            del wait
        if execution.end_reason is not None:
            raise execution.end_reason.error
    if site.messages and site.effect is not None:
        execution.loop.call_soon(
            _cancel_again, asyncio.current_task(execution.loop), site.messages[-1]
        )
    if site.error is not None:
        if site.messages and isinstance(site.error, asyncio.CancelledError):
            site.error.args = site.cancelled_error().args
        raise site.error
    return site.value


async def until_delivered(execution: RunExecution, site: CallSite, effect: EffectSite) -> None:
    """Wait until an effect that another task awaits is answered. Runs on the run loop."""
    while not site.delivered:
        watcher: asyncio.Future[None] = asyncio.Future(loop=execution.loop)
        effect.watchers.append(watcher)
        await watcher
        execution.check_active()


def _begin(execution: RunExecution, site: CallSite) -> None:
    if site.key in execution.journal.placed:
        return
    # Inline for speed: before a drain every call may start.
    is_draining = execution.services.shutdown.begun
    if execution.state is ExecutionState.REPLAYING or (
        is_draining and not execution.may_start(UNIT.get())
    ):
        execution.calls.defer(site, copy_context())
    else:
        start(execution, site)


def start(execution: RunExecution, site: CallSite) -> None:
    """Start the call at a call site, or record its outcome if the journal has salvaged it."""
    saved = execution.journal.salvage.pop(site.key, None)
    if saved is not None and saved.args == site.args and saved.kind == site.kind:
        execution.services.metrics.replayed(execution.workflow.name)
        recording.record(
            execution,
            site.kind,
            site.key,
            args=site.args,
            value=saved.value,
            seconds=saved.seconds,
            attempt=saved.attempt,
        )
    elif (
        site.messages
        and site.kind in ("step", "session", "publish")
        and not execution.journal.effect_log.is_open(site.key)
    ):
        # The call was cancelled before it could start in this execution.
        site.asked = True
        recording.record(
            execution, site.kind, site.key, args=site.args, error=CANCELLED, asked=True
        )
    else:
        assert site.launch is not None
        launch, site.launch = site.launch, None
        launch(execution, site)


def start_deferred(execution: RunExecution) -> None:
    """Start the deferred calls that may start now, and defer the others again."""
    for site, context in execution.calls.take_deferred():
        if not execution.may_start(context.get(UNIT)):
            execution.calls.defer(site, context)
        elif not site.delivered:
            context.run(start, execution, site)


def start_child(execution: RunExecution, site: CallSite, call: WorkflowCall) -> None:
    """Start a child run. Called on the run loop."""
    execution.services.children.start(execution, site, call)


def _cancel(execution: RunExecution, site: CallSite, message: Any) -> None:
    """Ask the call at a call site to stop. The workflow still waits for its outcome."""
    if not site.cancelled_by(message):
        return
    if site.stop is not None and site.key not in execution.journal.placed:
        site.asked = True
        site.stop()


class _Wait(asyncio.Future[None]):
    """A workflow task's wait at a call site.

    A cancellation does not end the wait: only the entry that answers the call site does. The task
    does not wake before that, so it can be cancelled any number of times in between.
    """

    execution: RunExecution
    site: CallSite

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done() or self.execution.end_reason is not None:
            return super().cancel(msg)
        _cancel(self.execution, self.site, msg)
        return True


def _cancel_again(task: asyncio.Task[Any] | None, message: Any) -> None:
    """Cancel what a cancelled task awaits after its effect.

    An effect that acts is not interrupted, so the cancelled task receives its outcome first. Do
    nothing if the cancellation is over, for example because the task has left its `timeout` block.
    """
    if task is not None and not task.done() and task.cancelling():
        task.cancel(message)
        # This repeats the earlier request. It must not count twice.
        task.uncancel()
