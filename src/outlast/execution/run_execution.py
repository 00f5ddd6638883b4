"""Execute one run in one process, under one fence.

`RunExecution` delivers the journal's entries to the run loop one at a time, in order, and lets the
run settle after each. Replay and live execution take the same path. They differ only in where the
entries come from: see docs/architecture-execution.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import Diverged, NotInRun
from outlast.execution import (
    compensation,
    delivery,
    ending,
    recording,
    release,
)
from outlast.execution.call_table import CallTable
from outlast.execution.cancellation import Cancellation
from outlast.execution.clock import RunClock
from outlast.execution.ending import Ending
from outlast.execution.execution_state import EndReason, ExecutionState, RunOutcome
from outlast.execution.journal import Journal
from outlast.execution.mailbox import Mailbox
from outlast.execution.run_loop import RunLoop, RunTask
from outlast.execution.run_trace import RunTrace
from outlast.execution.running_steps import RunningSteps
from outlast.execution.services import ExecutionServices, log_fields
from outlast.execution.source_lines import calling_tasks, users_line
from outlast.execution.threads import SyncWorkflowThread
from outlast.execution.unit_scope import UNIT, UnitScope
from outlast.execution.writes_in_flight import WritesInFlight
from outlast.store.commands import Settle
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.stream_rows import PartInfo

if TYPE_CHECKING:
    from outlast.execution.definitions import WorkflowDefinition

log = logging.getLogger("outlast.replay")
E = TypeVar("E", bound=NotInRun)


class RunExecution:
    """Coordinate the parts of one execution. Only this class changes its state."""

    # 20 attributes: ten parts that own the state of the execution, and what every call reads.
    __slots__ = (
        "_advancing",
        "calls",
        "cancellation",
        "claimed",
        "clock",
        "end_reason",
        "ending",
        "host",
        "journal",
        "loop",
        "mailbox",
        "main",
        "row",
        "services",
        "state",
        "steps",
        "sync_thread",
        "trace",
        "workflow",
        "writes",
    )

    def __init__(
        self,
        services: ExecutionServices,
        row: RunRow,
        workflow: WorkflowDefinition,
        entries: Sequence[Entry] = (),
        messages: Sequence[Message] = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
        parts: Sequence[PartInfo] = (),
        *,
        claimed: bool = False,
        cause: str | None = None,
    ) -> None:
        """Prepare to execute a run from its journal.

        `saved` is the progress of its steps, and `parts` is what they have published. `claimed`
        says that the run came from a queue and occupies a slot of this worker. `cause` is what cut
        off the previous execution.
        """
        self.services = services
        self.host = services.host
        self.row = row
        self.workflow = workflow
        self.claimed = claimed
        self.state = ExecutionState.REPLAYING
        """Where this execution is. Only `_enter` changes it."""
        self.end_reason: EndReason | None = None
        """Why this execution stops. Once it is set, nothing is recorded and every call raises
        its error."""
        self.journal = Journal(entries, lean=True)
        self.trace = RunTrace(entries, parent, cause)
        if self.undoing:
            self.journal.begin_undo()
            self.trace.add_failures(entries)
        self.clock = RunClock(
            self.host, services.store.now, row.started or row.created, self._record_fired
        )
        self.loop = RunLoop(self, self.clock)  # type: ignore[abstract]
        self.writes = WritesInFlight(
            row, self.journal.pending, self.journal.last_seq, services.store
        )
        self.calls = CallTable(
            row.id,
            self.journal,
            services.settings.journal_entries_max,
            self.loop,
            self.check,
            self.diverge,
        )
        self.steps = RunningSteps(self.host, saved, parts)
        self.cancellation = Cancellation(row.cancel)
        self.ending = Ending(self.host)
        self.mailbox = Mailbox(
            messages, self.journal.taken, self._record_message, self.poll_messages, self._received
        )
        self.main: RunTask | None = None
        self.sync_thread: SyncWorkflowThread | None = None
        """The thread of a sync workflow."""
        self._advancing = False

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def pk(self) -> int:
        return self.row.pk

    @property
    def fence(self) -> int:
        return self.row.fence

    @property
    def undoing(self) -> bool:
        """Return whether this execution compensates the run instead of executing its workflow."""
        return self.row.undoing is not None

    # -- states

    @property
    def is_replaying(self) -> bool:
        return self.state is ExecutionState.REPLAYING

    def _enter(self, state: ExecutionState) -> None:
        """Move on to a later state. Ignore an earlier one: a thread may have refused a call."""
        self.state = max(self.state, state)

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
        self.ending.settle_with(settlement)
        self._stop(reason)

    def _stop(self, reason: EndReason) -> None:
        self.end_reason = reason
        self._enter(ExecutionState.STOPPING)

    def diverge(self, recorded: str, asked: str) -> Diverged:
        """Stop this execution as diverged, and return the exception.

        Nothing more is recorded, even if the workflow's code catches it.
        """
        line = self._users_line()
        return self._diverge(Diverged(recorded, asked, run=self.id, line=line))

    def _diverge(self, diverged: Diverged) -> Diverged:
        """Make a divergence the end reason, instead of any other reason but an earlier one."""
        reason = self.end_reason
        if reason is not None and isinstance(reason.error, Diverged):
            return reason.error
        self._stop(EndReason.diverged(diverged))
        return diverged

    def refuse(self, error: E) -> E:
        """Stop this execution and fail the run with this error.

        The run fails even if the workflow's code catches the error. Return the error with the
        user's line added to its message. Safe to call from any thread.
        """
        if self.state is ExecutionState.ENDED:
            return error
        line = self._users_line()
        if line is not None:
            error.args = (f"{error} The call is at {line}.",)
        if self.end_reason is None:
            self._stop(EndReason.refused(error))
            with suppress(RuntimeError):
                # The host loop may be closed.
                self.host.call_soon_threadsafe(self.advance)
        return error

    def _users_line(self) -> str | None:
        """Return the line of the user's code that makes the current call, as file:line."""
        return users_line(self.workflow.fn.__module__, calling_tasks(self.loop, self.main))

    def begin_ending(self) -> bool:
        """Stop timers, deliveries and waiters. Return False if that has happened before."""
        if self.state >= ExecutionState.ENDING:
            return False
        assert self.end_reason is not None
        self._enter(ExecutionState.ENDING)
        self._advancing = True
        self.clock.stop()
        self.cancellation.stop()
        self.writes.fail_waiters(self.end_reason.error)
        return True

    def hang(self) -> None:
        """Mark that the app closed while code of the run still executes."""
        self._enter(ExecutionState.HUNG)

    def finish(self, outcome: RunOutcome) -> None:
        """End this execution and report what became of the run."""
        if self.state is not ExecutionState.HUNG:
            self._enter(ExecutionState.ENDED)
        self.ending.finished.set_result(outcome)
        self.services.observer.ended(self, outcome)
        if self.state is ExecutionState.ENDED and all(task.done() for task in self.loop.tasks):
            self._untie()

    def _untie(self) -> None:
        """Break the reference cycles of an execution whose code has ended.

        Python then frees its objects at once. The garbage collector would take longer to find
        those of every run.
        """
        self.main = None
        self.loop.tasks.clear()
        del self.loop, self.calls, self.clock, self.mailbox

    def finish_late(self) -> None:
        """End a hung execution: its code has ended."""
        self._enter(ExecutionState.ENDED)

    # -- starting

    def start(self) -> None:
        """Start the workflow, or the compensation of the run. Do nothing if it has stopped."""
        if self.end_reason is not None:
            return
        self.trace.start_span(self.services.spans.of(self))
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
            self.sync_thread = SyncWorkflowThread(self, self.workflow.fn, args, kwargs)
            coro = self.sync_thread.drive()
        self._start(coro)

    def _start(self, coro: Coroutine[Any, Any, Any]) -> None:
        context = copy_context()
        # The starter may be inside a unit. The run is not.
        context.run(UNIT.set, None)
        if self.trace.span is not None:
            # The run is not part of its starter's trace either.
            context.run(self.trace.span.enter)
        with self.loop.opened():
            self.main = RunTask(coro, scope=self.loop.root, loop=self.loop, context=context)
        self.loop.tasks[self.main] = None
        self.advance()

    # -- what calls ask

    def on_run_loop(self, action: Callable[[], None]) -> None:
        """Execute an action in the context of the task that makes the workflow's calls.

        A sync workflow's thread calls this too. Its calls are made by the run's main task.
        """
        if self.sync_thread is None:
            action()
            return

        async def act() -> None:
            action()

        self.sync_thread.call(act)

    def check(self, *, while_cancelling: bool = False) -> None:
        """Raise if this execution stops or the run is being cancelled.

        Every call of the workflow starts with this check.
        """
        if self.end_reason is not None:
            raise self.end_reason.error
        if not while_cancelling and self.cancellation.reason is not None:
            raise asyncio.CancelledError(self.cancellation.reason)

    def check_active(self) -> None:
        """Raise the end reason's error if this execution stops."""
        if self.end_reason is not None:
            raise self.end_reason.error

    def may_start(self, unit: UnitScope | None) -> bool:
        """Return whether a call may start.

        During a drain only calls inside a unit may start, and none once the drain's time is up.
        """
        return self.services.shutdown.may_start(unit, self.steps.open_units)

    # -- timers and messages

    def _record_fired(self, key: str, due: float) -> None:
        recording.record(self, "fired", key, at_least=due)

    def _record_message(self, name: str, number: str) -> None:
        recording.record(self, "message", name, value=number)

    def poll_messages(self) -> None:
        """Look for messages that the run waits for. Replay gets its messages from the journal."""
        if not self.is_replaying:
            self.services.observer.waits_for_messages(self)

    def _received(self) -> None:
        self.services.observer.message_taken(self)

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
                "Run %s is parked, because its next entry cannot be read.",
                self.id,
                exc_info=self.services.redact(error),
                extra=self.log_fields(),
            )
            self._diverge(delivery.UnreadableEntry(repr(error), "the next entry"))
        finally:
            self._advancing = False
        if self.end_reason is not None:
            ending.wind_down(self)
            return
        # Inline for speed: this is on the path of every step.
        if self.services.shutdown.begun or self.journal.effect_log.unknown:
            self.settled()

    # -- becoming idle

    def settled(self) -> None:
        """Check whether the run is idle. Call this when a part of it has ended.

        The check comes in a later callback of the host loop, because a step calls this before it
        submits its result. An immediate release would drop that result.
        """
        is_needed = self.services.shutdown.begun or self.journal.effect_log.unknown
        if is_needed and self.steps.begin_idle_check():
            self.host.call_soon(self._check_idle)

    def _check_idle(self) -> None:
        self.steps.end_idle_check()
        if self.journal.effect_log.unknown:
            release.park_if_idle(self)
        elif self.is_idle and self.services.shutdown.begun:
            self.services.observer.became_idle(self)

    @property
    def is_executing(self) -> bool:
        """Return whether code of the run's workflow or steps executes here."""
        thread_is_busy = self.sync_thread is not None and self.sync_thread.busy
        steps = self.steps
        return bool(thread_is_busy or steps.threads or steps.executes_nested or steps.executing())

    @property
    def is_idle(self) -> bool:
        """Return whether the run is active and nothing of it is in flight here."""
        in_flight = self.writes.in_flight or self.writes.pending or self.steps.open_units
        return self.end_reason is None and not (in_flight or self.is_executing)

    def log_fields(self, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        """Return the structured fields for a log line about this run."""
        return log_fields(self.row, step, attempt)
