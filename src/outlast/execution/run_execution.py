"""A life: one execution of a run in one process, under one fence.

The journal's entries are delivered to the run loop one at a time, in order, and the run settles in between. Replay and
live execution are the same path; they differ only in where the entries come from. See docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.exceptions import CANCELLED
from outlast.codec.reasons import NO_JOURNAL
from outlast.errors import Diverged, Evicted, LimitExceeded, NotInRun
from outlast.execution import (
    compensation,
    delivery,
    effect_executor,
    release,
    run_outcome,
    session_calls,
)
from outlast.execution.call_site import CallSite
from outlast.execution.delivery import describe
from outlast.execution.effect_log import KINDS as DEALT
from outlast.execution.journal import DELIVERED, Journal
from outlast.execution.mailbox import Mailbox
from outlast.execution.run_cost import RunCost, run_cost_of
from outlast.execution.run_loop import RunLoop, RunTask
from outlast.execution.run_outcome import RunOutcome
from outlast.execution.source_lines import calling_line, users_line
from outlast.execution.threads import SyncWorkflowThread
from outlast.execution.timers import Timers
from outlast.execution.unit_scope import UNIT, UnitScope
from outlast.store.commands import Command, Record, SaveProgress, Settle
from outlast.store.rows import Entry, Message, RunRow

if TYPE_CHECKING:
    from outlast.api.workflow import Workflow
    from outlast.engine.engine import Engine
    from outlast.execution.step_execution import StepExecution
    from outlast.telemetry.spans import ExecutionSpan

log = logging.getLogger("outlast.replay")
E = TypeVar("E", bound=NotInRun)

PROGRESS = frozenset({"step", "attempt", "inner", "child", "session"})
"""Entries that show that a run has got somewhere in this life."""


class RunExecution:
    def __init__(  # noqa: PLR0915 - everything that a life knows, once
        self,
        engine: Engine,
        row: RunRow,
        workflow: Workflow[..., Any],
        entries: Sequence[Entry] = (),
        messages: Sequence[Message] = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
    ) -> None:
        self.engine, self.host = engine, engine.loop
        self.now: Callable[[], float] = engine.store.now
        self.id, self.pk, self.fence, self.row = row.id, row.pk, row.fence, row
        self.parent = parent
        """The run that has started it, where that was read: for its trace."""
        self.workflow = workflow
        self.journal = Journal(entries, lean=True)
        self.undoing = row.undoing is not None
        """What executes is not the workflow: what it has done is being undone."""
        self.raised: dict[int, str] = {}
        """Where exceptions came from that the workflow has got, by the numbers of their entries."""
        if self.undoing:
            self.journal.begin_undo()
            self.raised = {entry.seq: entry.key for entry in entries if entry.error is not None}
        self.loop = RunLoop(self)  # type: ignore[abstract]
        self.timers = Timers(self)
        self.mailbox = Mailbox(self, messages, self.journal.taken)
        self.saved: dict[str, str] = dict(saved or {})
        """The progress of steps that have not ended, by key."""
        self.run_cost = run_cost_of(entries)
        """What the run has cost, as far as it is durable; None if nothing has said so."""
        self.call_sites: dict[str, CallSite] = {}
        self.step_executions: dict[asyncio.Task[Any], StepExecution | None] = {}
        """Tasks of steps under way; those without a body follow children."""
        self.inner = 0
        """Steps within steps under way."""
        self.units = 0
        """Units that the workflow is in: a drain waits for them."""
        self.concluded = False
        """What became of the run has been written, or was not this life's to say."""
        self.checkpointed = False
        """A drain has told a step of it to stop."""
        self.threads: set[asyncio.Future[Any]] = set()
        """Threads that execute a step's function. They outlive the step if it was cancelled or took too long."""
        self.orphan_threads: list[asyncio.Future[Any]] = []
        """Those that effects have started, and do not wait for any more."""
        self.had_children = self.children_left = False
        """It has called for children; and some have not ended, or have something to undo."""
        self.replaying = True
        self.end_reason: BaseException | None = None
        """Why this life has ended; from then on nothing is recorded and every call raises it."""
        self.refused: NotInRun | None = None
        """What the workflow's own code did that it may not do: the run fails with it."""
        self.cancelling: str | None = None
        self.thread: SyncWorkflowThread | None = None
        self.end: asyncio.Future[RunOutcome] = self.host.create_future()
        self.wall = self.time = row.started or row.created
        self.unknown: dict[str, str] = {}
        """Effects of which only a person can say whether they happened, and why."""
        self.delay: float | None = None
        """When it is given back because others must take it: for how many seconds."""
        self.gap = 0.0
        """Seconds between an end or parking and the retry or resume: timers do not run in them."""
        self.deferred_calls: list[CallSite] = []
        self.first: set[int] = set()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self.last_at = self.wall
        self.seq = self.journal.last_seq
        self.calls_made = 0
        """Entries that the workflow has asked for so far: the same number at the same point of every life."""
        self.pending: Any = self.journal.pending
        self._advancing = False
        self.cancel_asked = False
        self.cancel_seq: int | None = None
        self.timed_out = False
        self.deadline: asyncio.TimerHandle | None = None
        self.main: RunTask | None = None
        self.settlement: Settle | None = None
        """How the run ends, once its workflow has returned or raised."""
        self.ending = False
        self.claimed = False
        """From a queue: then it has a slot of this worker's."""
        self.suspect = row.is_suspect
        """Its last workers died, and it had recorded nothing: it executes alone until it has."""
        self.idle: release.IdleState | None = None
        """Set when this life ends because the run only waits."""
        self.idle_since = 0
        """The last entry when it was last seen to rest."""
        self.writing = 0
        """Entries on their way to the store."""
        self.span: ExecutionSpan | None = None
        """Its span, if its program wants any."""
        self.cause: str | None = None
        """What had cut the life before it off: a death or an interruption."""
        self.replayed = 0
        """Recorded results of steps that were used again."""
        self.is_to_be_undone = False
        """It ended with the run's verdict, and what the run has done is to be undone first."""

    # -- beginning

    def start(self) -> None:
        if self.end_reason is not None:
            return  # evicted before its first turn
        self.span = self.engine.spans.of(self)
        if self.undoing:
            self._start(compensation.undo(self))
            return
        try:
            args, kwargs = self.workflow.signature.decode(self.row.args)
        except Exception as error:
            self.end_reason = Diverged(
                f"the arguments {self.row.args}", f"{self.workflow.name}: {error}", run=self.id
            )
            run_outcome.wind_down(self)
            return
        if self.workflow.is_async:
            coro = self.workflow.fn(*args, **kwargs)
        else:
            self.thread = SyncWorkflowThread(self, self.workflow.fn, args, kwargs)
            coro = self.thread.drive()
        self._start(coro)

    def _start(self, coro: Coroutine[Any, Any, Any]) -> None:
        context = copy_context()
        context.run(UNIT.set, None)  # who started it may be in a unit: the run is not
        if self.span is not None:
            context.run(self.span.enter)  # nor is it part of its starter's trace
        self.loop.open = True
        self.main = RunTask(coro, scope=self.loop.root, loop=self.loop, context=context)
        self.loop.tasks[self.main] = None
        self.loop.open = False
        self.advance()

    # -- what the workflow's calls do, on the run loop

    def check(self, *, while_cancelling: bool = False) -> None:
        """Before any call of the workflow: this life may be over, or the run being cancelled."""
        if self.end_reason is not None:
            raise self.end_reason
        if self.cancelling is not None and not while_cancelling:
            raise asyncio.CancelledError(self.cancelling)

    def reserve_call(
        self, kind: str, name: str, args: str | None, *, while_cancelling: bool = False
    ) -> CallSite:
        """Take the next place of this name. Raises Diverged if the journal has something else there."""
        self.check(while_cancelling=while_cancelling)
        call_site = self.reserve_call_at(kind, self.loop.scope().key(name), args)
        call_site.line = calling_line()
        return call_site

    def reserve_call_at(self, kind: str, key: str, args: str | None) -> CallSite:
        """Take a certain place."""
        if self.end_reason is not None:
            raise self.end_reason
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
        """What a call gives whose place is taken: it launches what was called when it is awaited."""
        coro = call_site.coro = self.outcome(call_site, launch)
        coro.__qualname__ = call_site.key  # type: ignore[attr-defined]
        return coro

    async def outcome(
        self, call_site: CallSite, launch: Callable[[RunExecution, CallSite], None]
    ) -> Any:
        """Wait, on the run loop, for the entry that answers a place."""
        call_site.launch, call_site.coro, call_site.awaited = launch, None, True
        if not call_site.delivered:
            self._begin(call_site)
        if not call_site.delivered:
            call_site.future = wait = _Wait(loop=self.loop)
            wait.execution, wait.call_site = self, call_site
            try:
                await call_site.future
            finally:
                call_site.future = None  # which holds the place
            if self.end_reason is not None:
                raise self.end_reason
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
        """Wait, on the run loop, for a place that another task waits at."""
        while not call_site.delivered:
            watcher: asyncio.Future[None] = asyncio.Future(loop=self.loop)
            call_site.watchers.append(watcher)
            await watcher
            if self.end_reason is not None:
                raise self.end_reason

    def _begin(self, call_site: CallSite) -> None:
        if call_site.key in self.journal.placed:
            return
        if self.replaying or not self.may_start(UNIT.get()):
            call_site.context = copy_context()
            self.deferred_calls.append(call_site)
        else:
            self.launch(call_site)

    def may_start(self, unit: UnitScope | None) -> bool:
        """In a drain only what is in a unit may, and nothing once its time is up."""
        return not self.engine.draining or (unit is not None and unit.holds and self.units > 0)

    def launch(self, call_site: CallSite) -> None:
        """Start what was called at a place, or record what is known to have come of it."""
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
        ):  # before it could start in this life
            call_site.asked = True
            self.record(
                call_site.kind, call_site.key, args=call_site.args, error=CANCELLED, asked=True
            )
        else:
            assert call_site.launch is not None
            launch, call_site.launch = call_site.launch, None
            launch(self, call_site)

    def cancel_call(self, call_site: CallSite, message: Any) -> None:
        """Ask what was called at a place to stop. Its outcome is waited for all the same."""
        if not call_site.cancelled_by(message):
            return
        if call_site.stop is not None and call_site.key not in self.journal.placed:
            call_site.asked = True
            call_site.stop()

    # -- recording, on the host's loop (and from calls on the run loop)

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
        """Have an entry written. It is delivered when it is durable. Returns its number, 0 if this life is over: then nothing is,
        but, `late`, what came of an effect, as long as the run is this life's to give back. `within` makes the command that it is part of."""
        if self.end_reason is not None and (
            not late or self.concluded or getattr(self.end_reason, "lost", False)
        ):
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

    def save(self, command: SaveProgress, done: Callable[[Any], None]) -> None:
        """Have a step's progress written."""

        def saved(_: Any, outcome: Any) -> None:
            self.writing -= 1
            done(outcome)
            if self.end_reason is None and outcome is not None:
                self.evict(run_outcome.refusal(outcome))
                return
            self._got_somewhere()
            if self.engine.draining:
                self.engine.drain.check_run(self)

        self.writing += 1
        self.engine.writer.enqueue(command, saved)

    async def record_and_wait(self, kind: str, key: str, **fields: Any) -> None:
        """The same for an entry that is not delivered, from a step's body: returns when it is durable."""
        seq = self.record(kind, key, **fields)
        if self.end_reason is not None:
            raise self.end_reason
        waiter = self._waiters[seq] = self.host.create_future()
        await waiter

    def _changed(self, command: Any, outcome: Any) -> None:
        """A change of a session: what its entry says is the store's to know."""
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
            self.evict(run_outcome.refusal(outcome))
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
        if self.unknown:
            self.host.call_soon(
                release.park_if_idle, self
            )  # this may have been the last that was to be written
        if waiter is None and self.engine.draining:
            # A failed attempt: its step waits for the next one, which is another life's.
            self.engine.drain.check_run(self)

    def watch_thread(self, thread: asyncio.Future[Any]) -> None:
        """A thread executes something of the run, whoever waits for it."""

        def ended(thread: asyncio.Future[Any]) -> None:
            self.threads.discard(thread)
            if not thread.cancelled():
                thread.exception()  # seen, also where nobody waits for it any more
            if self.unknown:
                self.host.call_soon(release.park_if_idle, self)
            if self.engine.draining:
                self.engine.drain.check_run(self)

        self.threads.add(thread)
        thread.add_done_callback(ended)

    def _got_somewhere(self) -> None:
        if self.suspect:
            self.suspect = False
            self.engine.in_flight.end_isolation(self.fence)  # others may come in again

    # -- delivering

    def advance(self) -> None:
        """Deliver what is pending, letting the run settle after each entry. Only from a callback of the host's loop."""
        if self._advancing:
            return
        self._advancing = True
        try:
            delivery.deliver_pending(self)
        except Diverged as diverged:
            self.end_reason = self.end_reason or diverged
        except (
            Exception
        ) as error:  # an entry that cannot be read: nothing more may happen to the run
            log.error(
                "run %s cannot go on",
                self.id,
                exc_info=self.engine.redact_exception(error),
                extra=self.log_fields(),
            )
            if not isinstance(self.end_reason, Diverged):
                self.end_reason = _Unreadable(repr(error), "the next entry")
        finally:
            self._advancing = False
        if self.end_reason is not None:
            run_outcome.wind_down(self)
            return
        if self.unknown:
            self.host.call_soon(release.park_if_idle, self)
        if self.engine.draining:
            self.engine.drain.check_run(self)

    def log_fields(self, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        """What a log line says of it beside its text."""
        return self.engine.log_fields(self.row, step, attempt)

    # -- effects

    def is_open(self, key: str) -> bool:
        """Whether nobody knows if the effect at this place has happened."""
        effect_record = self.journal.effect_log.get(key)
        return effect_record is not None and effect_record.open

    def executing(self) -> list[StepExecution]:
        """Steps under way: not those that wait for their next attempt, nor what follows children."""
        return [
            body
            for body in list(self.step_executions.values())
            if body is not None and not body.idle
        ]

    def forget_unstarted(self, key: str) -> None:
        """A task that was to await a step has ended before its first turn: nobody will."""
        call_site = self.call_sites.get(key)
        if call_site is not None and call_site.coro is not None:
            del self.call_sites[key]

    # -- ending

    @property
    def how_it_ended(self) -> str:
        """What became of the run with this life: done, failed, cancelled, parked, undoing, waiting, released or lost."""
        over = self.end_reason if isinstance(self.end_reason, Evicted) else None
        if self.is_to_be_undone:
            return "undoing"
        if not self.concluded or (over is not None and over.lost):
            return "lost"
        if self.settlement is not None:
            return self.settlement.status
        if isinstance(self.end_reason, Diverged) or (over is not None and over.parked):
            return "parked"
        return "waiting" if self.idle is not None else "released"

    def stop_clocks(self) -> None:
        """No timer fires any more, and nothing is delivered."""
        self._advancing = True
        self.timers.clear()
        if self.deadline is not None:
            self.deadline.cancel()
        for waiter in self._waiters.values():
            if not waiter.done() and self.end_reason is not None:
                waiter.set_exception(self.end_reason)

    def diverge(self, recorded: str, asked: str) -> Diverged:
        """Mark this life: whatever the workflow's code does with the exception, nothing more is recorded."""
        if not isinstance(self.end_reason, Diverged):
            line = users_line(self.workflow.fn.__module__, self._callers())
            self.end_reason = Diverged(recorded, asked, run=self.id, line=line)
        return self.end_reason

    def _callers(self) -> Iterator[asyncio.Task[Any]]:
        """Yield the current task of the workflow, the task that created it, and so on, and the main one."""
        task = asyncio.current_task(self.loop)
        while task is not None:
            yield task
            creator = getattr(task, "creator", None)
            task = None if creator is None else creator()
        if self.main is not None:
            yield self.main

    def refuse(self, error: E) -> E:
        """End this life, and the run as failed with this error, whatever the workflow's code does with it.

        Return the error, with the user's line in its message. From any thread.
        """
        line = users_line(self.workflow.fn.__module__, self._callers())
        if line is not None:
            error.args = (f"{error} The call is at {line}.",)
        if self.end_reason is None:
            self.refused = error
            self.end_reason = Evicted(f"the run was stopped: {error}")
            with suppress(RuntimeError):  # the host's loop is closed
                self.host.call_soon_threadsafe(self.advance)
        return error

    def evict(self, why: BaseException) -> None:
        """End this life, not the run. A repeat is harmless; the first reason stays."""
        if self.end_reason is None:
            self.end_reason = why
            # Not here: this may be a task of the host's, and the run loop is pumped from callbacks only.
            self.host.call_soon(run_outcome.wind_down, self)


class _Unreadable(Diverged):
    """It is not the code that does not fit: whoever looks is sent to the journal."""

    explained_as = "Diverged"

    def __str__(self) -> str:
        return f"{NO_JOURNAL}: {self.recorded}"


class _Wait(asyncio.Future[None]):
    """The wait of a workflow's task at a place.

    A cancellation does not end it: the entry that answers the place does. The task is not woken
    before, so that it may be cancelled any number of times meanwhile.
    """

    execution: RunExecution
    call_site: CallSite

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done() or self.execution.end_reason is not None:
            return super().cancel(msg)
        self.execution.cancel_call(self.call_site, msg)
        return True


def _cancel_again(task: asyncio.Task[Any] | None, message: Any) -> None:
    """An effect that acts is not cut, and its outcome is what the cancelled task gets; but what it awaits next is. Not if what had cancelled
    it is over by now, as a `timeout` that was left."""
    if task is not None and not task.done() and task.cancelling():
        task.cancel(message)
        task.uncancel()  # it is the same request as before
