"""Execute one run in one process, under one fence.

`RunExecution` delivers the journal's entries to the run loop one at a time, in order, and lets the
run settle after each. Replay and live execution take the same path. They differ only in where the
entries come from. See docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.exceptions import CANCELLED
from outlast.errors import Diverged, LimitExceeded, NotInRun
from outlast.errors.reasons import NO_JOURNAL
from outlast.execution import (
    compensation,
    delivery,
    effect_executor,
    ending,
    release,
    session_calls,
)
from outlast.execution.call_site import CallSite
from outlast.execution.delivery import describe
from outlast.execution.effect_log import KINDS as DEALT
from outlast.execution.ending import Ending
from outlast.execution.journal import DELIVERED, Journal
from outlast.execution.mailbox import Mailbox
from outlast.execution.run_cost import RunCost, run_cost_of
from outlast.execution.run_loop import RunLoop, RunTask
from outlast.execution.source_lines import calling_line, users_line
from outlast.execution.state import EndKind, EndReason, ExecutionState, RunOutcome
from outlast.execution.threads import SyncWorkflowThread
from outlast.execution.timers import Timers
from outlast.execution.unit_scope import UNIT, UnitScope
from outlast.store.commands import Command, Record, SaveProgress, Settle
from outlast.store.rows import Entry, Message, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.definitions import WorkflowDefinition
    from outlast.execution.step_execution import StepExecution
    from outlast.execution.tracing import ExecutionSpan

log = logging.getLogger("outlast.replay")
E = TypeVar("E", bound=NotInRun)

PROGRESS = frozenset({"step", "attempt", "inner", "child", "session"})
"""Kinds of entries that count as progress of a run in this execution."""


class RunExecution:
    def __init__(  # noqa: PLR0915 - the whole state of an execution
        self,
        engine: Engine,
        row: RunRow,
        workflow: WorkflowDefinition,
        entries: Sequence[Entry] = (),
        messages: Sequence[Message] = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
    ) -> None:
        self.engine, self.host = engine, engine.loop
        self.now: Callable[[], float] = engine.store.now
        self.id, self.pk, self.fence, self.row = row.id, row.pk, row.fence, row
        self.parent = parent
        """The run that started this one, if its row was read. The trace needs it."""
        self.workflow = workflow
        self.journal = Journal(entries, lean=True)
        self.undoing = row.undoing is not None
        """True if this execution compensates the run instead of executing its workflow."""
        self.raised: dict[int, str] = {}
        """The keys of the entries whose exceptions the workflow received, by entry number."""
        if self.undoing:
            self.journal.begin_undo()
            self.raised = {entry.seq: entry.key for entry in entries if entry.error is not None}
        self.loop = RunLoop(self)  # type: ignore[abstract]
        self.timers = Timers(self)
        self.mailbox = Mailbox(self, messages, self.journal.taken)
        self.saved: dict[str, str] = dict(saved or {})
        """The progress of steps that have not ended, by key."""
        self.run_cost = run_cost_of(entries)
        """The run's durable cost. None if no entry records a cost."""
        self.call_sites: dict[str, CallSite] = {}
        self.step_executions: dict[asyncio.Task[Any], StepExecution | None] = {}
        """Tasks of the steps in flight. The value is None for tasks that follow children or
        sessions."""
        self.inner = 0
        """The number of steps in flight that were called by other steps."""
        self.units = 0
        """The number of units the workflow is in. A drain waits for them."""
        self.checkpointed = False
        """True once a drain has asked a step of this run to stop."""
        self.threads: set[asyncio.Future[Any]] = set()
        """Threads that execute a step's function. A thread outlives its step if the step was
        cancelled or timed out."""
        self.orphan_threads: list[asyncio.Future[Any]] = []
        """Threads that effects started and no longer wait for."""
        self.had_children = False
        """True if the run has called children."""
        self.state = ExecutionState.REPLAYING
        """Where this execution is. Only `_enter` changes it."""
        self.end_reason: EndReason | None = None
        """Why this execution stops. Once it is set, nothing is recorded and every call raises
        its error."""
        self.cancelling: str | None = None
        self.thread: SyncWorkflowThread | None = None
        self.ending = Ending(self.host)
        self.wall = self.time = row.started or row.created
        self.unknown: dict[str, str] = {}
        """Effects whose outcome only a person can decide, by key, with the reason."""
        self.gap = 0.0
        """Seconds between an end or parking and the retry or resume. The run's timers do not
        advance during them."""
        self.deferred_calls: list[CallSite] = []
        self.first: set[int] = set()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self.last_at = self.wall
        self.seq = self.journal.last_seq
        self.calls_made = 0
        """The number of entries the workflow has asked for. It is the same at the same point of
        every execution."""
        self.pending: Any = self.journal.pending
        self._advancing = False
        self._idle_check_scheduled = False
        self.cancel_asked = False
        self.cancel_seq: int | None = None
        self.timed_out = False
        self.deadline: asyncio.TimerHandle | None = None
        self.main: RunTask | None = None
        self.claimed = False
        """True if the run was claimed from a queue. It then occupies a slot of this worker."""
        self.suspect = row.is_suspect
        """True if the run's last workers died before it recorded anything. The run executes in
        isolation until it records something."""
        self.idle_since = 0
        """One more than the number of the last entry when the run was last seen idle. 0 if it
        never was."""
        self.writing = 0
        """The number of writes that were submitted to the store and not yet answered."""
        self.span: ExecutionSpan | None = None
        """The execution's span. None if the program does not trace."""
        self.cause: str | None = None
        """What cut off the previous execution: a death or an interruption."""
        self.replayed = 0
        """The number of recorded step results that this execution has reused."""

    # -- states

    @property
    def is_active(self) -> bool:
        """Return whether this execution replays or is live, so that its calls do not raise."""
        return self.state <= ExecutionState.LIVE

    @property
    def is_replaying(self) -> bool:
        return self.state is ExecutionState.REPLAYING

    def _enter(self, state: ExecutionState) -> None:
        self.state = state

    def go_live(self) -> None:
        """Start to execute calls: the journal is replayed."""
        self._enter(ExecutionState.LIVE)

    def stop(self, reason: EndReason) -> None:
        """Stop this execution, not the run. Later calls do nothing: the first reason stays."""
        if self.end_reason is None:
            self._stop(reason)
            # Do not wind down here. This may be a task of the host loop, and only callbacks pump
            # the run loop.
            self.host.call_soon(ending.wind_down, self)

    def finish_workflow(self, reason: EndReason, settlement: Settle | None = None) -> None:
        """Stop after the workflow has returned, raised or made a refused call.

        Called while entries are delivered, so the caller winds down.
        """
        self.ending.settlement = settlement
        self._stop(reason)

    def _stop(self, reason: EndReason) -> None:
        self.end_reason = reason
        if self.state < ExecutionState.STOPPING:
            self._enter(ExecutionState.STOPPING)

    def begin_ending(self) -> bool:
        """Return True once per execution, for the caller that winds it down."""
        if self.state >= ExecutionState.ENDING:
            return False
        self._enter(ExecutionState.ENDING)
        return True

    def hang(self) -> None:
        """Mark that the app closed while code of the run still executes."""
        self._enter(ExecutionState.HUNG)

    def finish(self, outcome: RunOutcome) -> None:
        """End this execution and report what became of the run."""
        if self.state is not ExecutionState.HUNG:
            self._enter(ExecutionState.ENDED)
        self.ending.finished.set_result(outcome)
        self.engine.on_execution_ended(self, outcome)

    def finish_late(self) -> None:
        """End a hung execution: its code has ended."""
        self._enter(ExecutionState.ENDED)

    # -- starting

    def start(self) -> None:
        if self.end_reason is not None:
            # The run was released before its first turn.
            return
        self.span = self.engine.spans.of(self)
        if self.undoing:
            self._start(compensation.undo(self))
            return
        try:
            args, kwargs = self.workflow.signature.decode(self.row.args)
        except Exception as error:
            diverged = Diverged(
                f"the arguments {self.row.args}", f"{self.workflow.name}: {error}", run=self.id
            )
            self._stop(EndReason.diverged(diverged))
            ending.wind_down(self)
            return
        if self.workflow.is_async:
            coro = self.workflow.fn(*args, **kwargs)
        else:
            self.thread = SyncWorkflowThread(self, self.workflow.fn, args, kwargs)
            coro = self.thread.drive()
        self._start(coro)

    def _start(self, coro: Coroutine[Any, Any, Any]) -> None:
        context = copy_context()
        # The starter may be inside a unit. The run is not.
        context.run(UNIT.set, None)
        if self.span is not None:
            # The run is not part of its starter's trace either.
            context.run(self.span.enter)
        self.loop.open = True
        self.main = RunTask(coro, scope=self.loop.root, loop=self.loop, context=context)
        self.loop.tasks[self.main] = None
        self.loop.open = False
        self.advance()

    # -- calls of the workflow, on the run loop

    def check(self, *, while_cancelling: bool = False) -> None:
        """Raise if this execution has ended or the run is being cancelled.

        Every call of the workflow starts with this check.
        """
        if self.end_reason is not None:
            raise self.end_reason.error
        if self.cancelling is not None and not while_cancelling:
            raise asyncio.CancelledError(self.cancelling)

    def reserve_call(
        self, kind: str, name: str, args: str | None, *, while_cancelling: bool = False
    ) -> CallSite:
        """Reserve the next call site of this name.

        Raise Diverged if the journal has another call there.
        """
        self.check(while_cancelling=while_cancelling)
        call_site = self.reserve_call_at(kind, self.loop.scope().key(name), args)
        call_site.line = calling_line()
        return call_site

    def reserve_call_at(self, kind: str, key: str, args: str | None) -> CallSite:
        """Reserve the call site with this key.

        Raise Diverged if the journal has another call there, and LimitExceeded if the workflow has
        made more than `journal_entries_max` calls.
        """
        if self.end_reason is not None:
            raise self.end_reason.error
        self.calls_made += 1
        if self.calls_made > self.engine.settings.journal_entries_max:
            limit, what = (
                self.engine.settings.journal_entries_max,
                f"the journal of run {self.id!r}",
            )
            raise LimitExceeded("journal_entries_max", limit, self.calls_made, what)
        self.had_children = self.had_children or kind == "child"
        call_site = CallSite(kind, key, args)
        recorded = self.journal.placed.get(call_site.key)
        if recorded is not None and (recorded.kind != kind or recorded.args != args):
            raise self.diverge(describe(recorded), str(call_site))
        self.call_sites[call_site.key] = call_site
        return call_site

    def make_awaitable(
        self, call_site: CallSite, launch: Callable[[RunExecution, CallSite], None]
    ) -> Coroutine[Any, Any, Any]:
        """Return the coroutine for a reserved call site. Awaiting it launches the call."""
        coro = call_site.coro = self.wait_for_outcome(call_site, launch)
        coro.__qualname__ = call_site.key  # type: ignore[attr-defined]
        return coro

    async def wait_for_outcome(
        self, call_site: CallSite, launch: Callable[[RunExecution, CallSite], None]
    ) -> Any:
        """Wait for the entry that answers a call site, and return or raise its outcome.

        Runs on the run loop.
        """
        call_site.launch, call_site.coro, call_site.awaited = launch, None, True
        if not call_site.delivered:
            self._begin(call_site)
        if not call_site.delivered:
            call_site.future = wait = _Wait(loop=self.loop)
            wait.execution, wait.call_site = self, call_site
            try:
                await call_site.future
            finally:
                # Break the reference cycle: the future holds the call site.
                call_site.future = None
            if self.end_reason is not None:
                raise self.end_reason.error
        if call_site.cancelled and call_site.effect_call is not None:
            self.loop.call_soon(
                _cancel_again, asyncio.current_task(self.loop), call_site.messages[-1]
            )
        if call_site.error is not None:
            if call_site.cancelled and isinstance(call_site.error, asyncio.CancelledError):
                call_site.error.args = call_site.cancelled_error().args
            raise call_site.error
        return call_site.value

    async def until_delivered(self, call_site: CallSite) -> None:
        """Wait until a call site that another task awaits is answered. Runs on the run loop."""
        while not call_site.delivered:
            watcher: asyncio.Future[None] = asyncio.Future(loop=self.loop)
            call_site.watchers.append(watcher)
            await watcher
            if self.end_reason is not None:
                raise self.end_reason.error

    def _begin(self, call_site: CallSite) -> None:
        if call_site.key in self.journal.placed:
            return
        if self.state is ExecutionState.REPLAYING or not self.may_start(UNIT.get()):
            call_site.context = copy_context()
            self.deferred_calls.append(call_site)
        else:
            self.launch(call_site)

    def may_start(self, unit: UnitScope | None) -> bool:
        """Return whether a call may start.

        During a drain only calls inside a unit may start, and none once the drain's time is up.
        """
        return self.engine.shutdown.may_start(unit, self.units)

    def launch(self, call_site: CallSite) -> None:
        """Start the call at a call site, or record its outcome if the journal has salvaged it."""
        saved = self.journal.salvage.pop(call_site.key, None)
        if saved is not None and saved.args == call_site.args and saved.kind == call_site.kind:
            self.engine.meters.replayed(self.workflow.name)
            self.record(
                call_site.kind,
                call_site.key,
                args=call_site.args,
                value=saved.value,
                seconds=saved.seconds,
                attempt=saved.attempt,
            )
        elif (
            call_site.cancelled
            and call_site.kind in ("step", "session")
            and not self.is_open(call_site.key)
        ):
            # The call was cancelled before it could start in this execution.
            call_site.asked = True
            self.record(
                call_site.kind, call_site.key, args=call_site.args, error=CANCELLED, asked=True
            )
        else:
            assert call_site.launch is not None
            launch, call_site.launch = call_site.launch, None
            launch(self, call_site)

    def cancel_call(self, call_site: CallSite, message: Any) -> None:
        """Ask the call at a call site to stop. The workflow still waits for its outcome."""
        if not call_site.cancelled_by(message):
            return
        if call_site.stop is not None and call_site.key not in self.journal.placed:
            call_site.asked = True
            call_site.stop()

    # -- recording, on the host loop and from calls on the run loop

    def record(
        self,
        kind: str,
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
        within: Callable[[Record], Command] | None = None,
    ) -> int:
        """Submit an entry and return its number. The entry is delivered once it is durable.

        Return 0 and write nothing if this execution has ended. `late` still writes an effect's
        outcome as long as this execution can release the run. `within` builds the command that
        contains the entry.
        """
        if self.end_reason is not None and not (late and self._may_record_late()):
            return 0
        seq = self.seq = self.seq + 1
        at = self.last_at = max(self.last_at, at_least, self.now())
        record = Record(
            self.pk,
            seq,
            self.fence,
            kind,
            key,
            at,
            args,
            value,
            error,
            seconds,
            attempt,
            asked,
            cost,
        )
        if kind in DEALT or self.journal.effect_log.records:
            self.journal.effect_log.add(record)
        alone = kind == "step" and not self.step_executions and len(self.engine.executions) == 1
        self.writing += 1
        if within is None:
            self.engine.writer.enqueue(record, self._recorded, alone=alone)
        else:
            self.engine.writer.enqueue(within(record), self._changed)
        return seq

    def _may_record_late(self) -> bool:
        assert self.end_reason is not None
        return self.state < ExecutionState.ENDED and self.end_reason.kind is not EndKind.LOST

    def save(self, command: SaveProgress, done: Callable[[Any], None]) -> None:
        """Submit a step's progress, and pass the store's answer to `done`."""

        def saved(_: Any, outcome: Any) -> None:
            self.writing -= 1
            done(outcome)
            if self.end_reason is None and outcome is not None:
                self.stop(EndReason.write_failed(outcome))
                return
            self._got_somewhere()
            self.settled()

        self.writing += 1
        self.engine.writer.enqueue(command, saved)

    async def record_and_wait(self, kind: str, key: str, **fields: Any) -> None:
        """Record an entry that is not delivered, and wait until it is durable. For step bodies."""
        seq = self.record(kind, key, **fields)
        if self.end_reason is not None:
            raise self.end_reason.error
        waiter = self._waiters[seq] = self.host.create_future()
        await waiter

    def _changed(self, command: Any, outcome: Any) -> None:
        """Complete the entry of a session change with the store's answer."""
        said = session_calls.said(outcome)
        self._recorded(command.record._replace(value=said), outcome if said is None else None)

    def _recorded(self, command: Any, outcome: Any) -> None:
        self.writing -= 1
        if outcome is None and (command.cost is not None or self.run_cost is not None):
            self.run_cost = self.run_cost or RunCost()
            self.run_cost.add(command)
        if (
            outcome is not None
            and command.kind == "step"
            and self.journal.effect_log.get(command.key) is not None
        ):
            effect_executor.say_lost(self, command.key, command.error)
        if self.end_reason is not None:
            return
        if outcome is not None:
            self.stop(EndReason.write_failed(outcome))
            return
        if command.kind in PROGRESS:
            self._got_somewhere()
        waiter = self._waiters.pop(command.seq, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if command.kind in DELIVERED:
            self.pending.append(command)
            self.advance()
            return
        if waiter is None or self.unknown:
            # A failed attempt: its step waits for the next one, which another execution may make.
            # With an unknown effect, this may have been the last pending write.
            self.settled()

    def watch_thread(self, thread: asyncio.Future[Any]) -> None:
        """Track a thread that executes code of the run until the thread ends."""

        def ended(thread: asyncio.Future[Any]) -> None:
            self.threads.discard(thread)
            if not thread.cancelled():
                # Mark the exception as retrieved, even if nothing awaits the thread any more.
                thread.exception()
            self.settled()

        self.threads.add(thread)
        thread.add_done_callback(ended)

    def _got_somewhere(self) -> None:
        if self.suspect:
            self.suspect = False
            # The worker may claim other runs again.
            self.engine.isolation.end(self.fence)

    # -- delivering

    def advance(self) -> None:
        """Deliver the pending entries, and let the run settle after each.

        Call it only from a callback of the host loop.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            delivery.deliver_pending(self)
        except Diverged as diverged:
            if self.end_reason is None:
                self._stop(EndReason.diverged(diverged))
        except Exception as error:
            # An entry cannot be read. Nothing more may happen to the run.
            log.error(
                "run %s cannot go on",
                self.id,
                exc_info=self.engine.redact_exception(error),
                extra=self.log_fields(),
            )
            self._diverge(_Unreadable(repr(error), "the next entry"))
        finally:
            self._advancing = False
        if self.end_reason is not None:
            ending.wind_down(self)
            return
        # Inline for speed: this is on the path of every step.
        if self.engine.shutdown.begun or self.unknown:
            self.settled()

    # -- becoming idle

    def settled(self) -> None:
        """Check whether the run is idle. Call this when a part of it has ended.

        The check comes in a later callback of the host loop, because a step calls this before it
        submits its result. An immediate release would drop that result.
        """
        if (self.engine.shutdown.begun or self.unknown) and not self._idle_check_scheduled:
            self._idle_check_scheduled = True
            self.host.call_soon(self._check_idle)

    def _check_idle(self) -> None:
        self._idle_check_scheduled = False
        if self.unknown:
            release.park_if_idle(self)
        elif self.is_idle and self.engine.shutdown.begun:
            self.engine.listener.became_idle(self)

    @property
    def is_idle(self) -> bool:
        """Return whether the run is active and nothing of it is in flight here."""
        thread_is_busy = self.thread is not None and self.thread.busy
        in_flight = self.threads or thread_is_busy or self.inner or self.writing or self.pending
        return self.end_reason is None and not (in_flight or self.units or self.executing())

    def log_fields(self, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        """Return the structured fields for a log line about this run."""
        return self.engine.log_fields(self.row, step, attempt)

    # -- effects

    def is_open(self, key: str) -> bool:
        """Return whether it is unknown if the effect at this call site happened."""
        effect_record = self.journal.effect_log.get(key)
        return effect_record is not None and effect_record.open

    def executing(self) -> list[StepExecution]:
        """Return the steps that execute now.

        Steps that wait for their next attempt and tasks that follow children do not count.
        """
        return [
            body
            for body in list(self.step_executions.values())
            if body is not None and not body.idle
        ]

    def forget_unstarted(self, key: str) -> None:
        """Drop a call site whose task ended before its first turn. No task will await the call."""
        call_site = self.call_sites.get(key)
        if call_site is not None and call_site.coro is not None:
            del self.call_sites[key]

    # -- ending

    def stop_clocks(self) -> None:
        """Stop all timers and deliveries, and fail the pending waiters with the end reason."""
        self._advancing = True
        self.timers.clear()
        if self.deadline is not None:
            self.deadline.cancel()
        for waiter in self._waiters.values():
            if not waiter.done() and self.end_reason is not None:
                waiter.set_exception(self.end_reason.error)

    def diverge(self, recorded: str, asked: str) -> Diverged:
        """End this execution as diverged, and return the exception.

        Nothing more is recorded, even if the workflow's code catches it.
        """
        line = users_line(self.workflow.fn.__module__, self._callers())
        return self._diverge(Diverged(recorded, asked, run=self.id, line=line))

    def _diverge(self, diverged: Diverged) -> Diverged:
        """Make a divergence the end reason, instead of any other reason but an earlier one."""
        reason = self.end_reason
        if reason is not None and isinstance(reason.error, Diverged):
            return reason.error
        self._stop(EndReason.diverged(diverged))
        return diverged

    def _callers(self) -> Iterator[asyncio.Task[Any]]:
        """Yield the workflow's current task, its chain of creators, and the main task."""
        task = asyncio.current_task(self.loop)
        while task is not None:
            yield task
            creator = getattr(task, "creator", None)
            task = None if creator is None else creator()
        if self.main is not None:
            yield self.main

    def refuse(self, error: E) -> E:
        """End this execution and fail the run with this error.

        The run fails even if the workflow's code catches the error. Return the error with the
        user's line added to its message. Safe to call from any thread.
        """
        line = users_line(self.workflow.fn.__module__, self._callers())
        if line is not None:
            error.args = (f"{error} The call is at {line}.",)
        if self.end_reason is None:
            self._stop(EndReason.refused(error))
            with suppress(RuntimeError):
                # The host loop may be closed.
                self.host.call_soon_threadsafe(self.advance)
        return error


class _Unreadable(Diverged):
    """A journal that cannot be read.

    The code did not diverge, so the message points to the journal.
    """

    explained_as = "Diverged"

    def __str__(self) -> str:
        return f"{NO_JOURNAL}: {self.recorded}"


class _Wait(asyncio.Future[None]):
    """A workflow task's wait at a call site.

    A cancellation does not end the wait: only the entry that answers the call site does. The task
    does not wake before that, so it can be cancelled any number of times in between.
    """

    execution: RunExecution
    call_site: CallSite

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done() or self.execution.end_reason is not None:
            return super().cancel(msg)
        self.execution.cancel_call(self.call_site, msg)
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
