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

from outlast.errors import Diverged, Evicted, LimitExceeded, NotInRun
from outlast.replay import delivery, effects, ending, leaving, sessions, undo
from outlast.replay.account import Account, account_of
from outlast.replay.dealings import KINDS as DEALT
from outlast.replay.delivery import describe
from outlast.replay.ending import End
from outlast.replay.journal import DELIVERED, Journal
from outlast.replay.lines import calling_line, users_line
from outlast.replay.loop import RunLoop, RunTask
from outlast.replay.mail import Mail
from outlast.replay.place import Place
from outlast.replay.threads import Threaded
from outlast.replay.timers import Timers
from outlast.replay.unit import UNIT, Holds
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.verbs import Record, Save, Settle, Verb
from outlast.values.exceptions import CANCELLED
from outlast.values.reasons import NO_JOURNAL

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.define.workflow import Workflow
    from outlast.replay.bodies import Body
    from outlast.telemetry.spans import LifeSpan

log = logging.getLogger("outlast.replay")
E = TypeVar("E", bound=NotInRun)

PROGRESS = frozenset({"step", "attempt", "inner", "child", "session"})
"""Entries that show that a run has got somewhere in this life."""


class Life:
    def __init__(  # noqa: PLR0915 - everything that a life knows, once
        self,
        house: House,
        row: RunRow,
        workflow: Workflow[..., Any],
        entries: Sequence[Entry] = (),
        messages: Sequence[Message] = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
    ) -> None:
        self.house, self.host = house, house.loop
        self.now: Callable[[], float] = house.store.now
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
        self.mail = Mail(self, messages, self.journal.taken)
        self.saved: dict[str, str] = dict(saved or {})
        """The progress of steps that have not ended, by key."""
        self.account = account_of(entries)
        """What the run has cost, as far as it is durable; None if nothing has said so."""
        self.places: dict[str, Place] = {}
        self.bodies: dict[asyncio.Task[Any], Body | None] = {}
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
        self.strays: list[asyncio.Future[Any]] = []
        """Those that effects have started, and do not wait for any more."""
        self.had_children = self.children_left = False
        """It has called for children; and some have not ended, or have something to undo."""
        self.replaying = True
        self.over: BaseException | None = None
        """Why this life has ended; from then on nothing is recorded and every call raises it."""
        self.refused: NotInRun | None = None
        """What the workflow's own code did that it may not do: the run fails with it."""
        self.cancelling: str | None = None
        self.thread: Threaded | None = None
        self.end: asyncio.Future[End] = self.host.create_future()
        self.wall = self.time = row.started or row.created
        self.unknown: dict[str, str] = {}
        """Effects of which only a person can say whether they happened, and why."""
        self.delay: float | None = None
        """When it is given back because others must take it: for how many seconds."""
        self.gap = 0.0
        """Seconds between an end or parking and the retry or resume: timers do not run in them."""
        self.deferred: list[Place] = []
        self.first: set[int] = set()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self.last_at = self.wall
        self.seq = self.journal.last_seq
        self.asked_for = 0
        """Entries that the workflow has asked for so far: the same number at the same point of every life."""
        self.pending: Any = self.journal.pending
        self._advancing = False
        self.cancel_asked = False
        self.cancel_seq: int | None = None
        self.timed_out = False
        self.deadline: asyncio.TimerHandle | None = None
        self.main: RunTask | None = None
        self.verdict: Settle | None = None
        """How the run ends, once its workflow has returned or raised."""
        self.winding = False
        self.claimed = False
        """From a queue: then it has a slot of this worker's."""
        self.suspect = row.is_suspect
        """Its last workers died, and it had recorded nothing: it executes alone until it has."""
        self.resting: leaving.Rest | None = None
        """Set when this life ends because the run only waits."""
        self.rested_at = 0
        """The last entry when it was last seen to rest."""
        self.writing = 0
        """Entries on their way to the store."""
        self.span: LifeSpan | None = None
        """Its span, if its program wants any."""
        self.cause: str | None = None
        """What had cut the life before it off: a death or an interruption."""
        self.replayed = 0
        """Recorded results of steps that were used again."""
        self.is_to_be_undone = False
        """It ended with the run's verdict, and what the run has done is to be undone first."""

    # -- beginning

    def start(self) -> None:
        if self.over is not None:
            return  # evicted before its first turn
        self.span = self.house.spans.of(self)
        if self.undoing:
            self._start(undo.undo(self))
            return
        try:
            args, kwargs = self.workflow.signature.decode(self.row.args)
        except Exception as error:
            self.over = Diverged(
                f"the arguments {self.row.args}", f"{self.workflow.name}: {error}", run=self.id
            )
            ending.wind_down(self)
            return
        if self.workflow.is_async:
            coro = self.workflow.fn(*args, **kwargs)
        else:
            self.thread = Threaded(self, self.workflow.fn, args, kwargs)
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
        if self.over is not None:
            raise self.over
        if self.cancelling is not None and not while_cancelling:
            raise asyncio.CancelledError(self.cancelling)

    def take(self, kind: str, name: str, args: str | None, *, while_cancelling: bool = False) -> Place:
        """Take the next place of this name. Raises Diverged if the journal has something else there."""
        self.check(while_cancelling=while_cancelling)
        place = self.take_at(kind, self.loop.scope().key(name), args)
        place.line = calling_line()
        return place

    def take_at(self, kind: str, key: str, args: str | None) -> Place:
        """Take a certain place."""
        if self.over is not None:
            raise self.over
        self.asked_for += 1
        if self.asked_for > self.house.settings.journal_entries_max:
            limit, what = self.house.settings.journal_entries_max, f"the journal of run {self.id!r}"
            raise LimitExceeded("journal_entries_max", limit, self.asked_for, what)
        self.had_children = self.had_children or kind == "child"
        place = Place(kind, key, args)
        recorded = self.journal.placed.get(place.key)
        if recorded is not None and (recorded.kind != kind or recorded.args != args):
            raise self.diverge(describe(recorded), str(place))
        self.places[place.key] = place
        return place

    def calling(self, place: Place, launch: Callable[[Life, Place], None]) -> Coroutine[Any, Any, Any]:
        """What a call gives whose place is taken: it launches what was called when it is awaited."""
        coro = place.coro = self.outcome(place, launch)
        coro.__qualname__ = place.key  # type: ignore[attr-defined]
        return coro

    async def outcome(self, place: Place, launch: Callable[[Life, Place], None]) -> Any:
        """Wait, on the run loop, for the entry that answers a place."""
        place.launch, place.coro, place.awaited = launch, None, True
        if not place.delivered:
            self._begin(place)
        if not place.delivered:
            place.future = wait = _Wait(loop=self.loop)
            wait.life, wait.place = self, place
            try:
                await place.future
            finally:
                place.future = None  # which holds the place
            if self.over is not None:
                raise self.over
        if place.cancelled and place.errand is not None:
            self.loop.call_soon(_cancel_again, asyncio.current_task(self.loop), place.messages[-1])
        if place.error is not None:
            if place.cancelled and isinstance(place.error, asyncio.CancelledError):
                place.error.args = place.cancelled_error().args
            raise place.error
        return place.value

    async def until_delivered(self, place: Place) -> None:
        """Wait, on the run loop, for a place that another task waits at."""
        while not place.delivered:
            watcher: asyncio.Future[None] = asyncio.Future(loop=self.loop)
            place.watchers.append(watcher)
            await watcher
            if self.over is not None:
                raise self.over

    def _begin(self, place: Place) -> None:
        if place.key in self.journal.placed:
            return
        if self.replaying or not self.may_start(UNIT.get()):
            place.context = copy_context()
            self.deferred.append(place)
        else:
            self.launch(place)

    def may_start(self, unit: Holds | None) -> bool:
        """In a drain only what is in a unit may, and nothing once its time is up."""
        return not self.house.draining or (unit is not None and unit.holds and self.units > 0)

    def launch(self, place: Place) -> None:
        """Start what was called at a place, or record what is known to have come of it."""
        saved = self.journal.salvage.pop(place.key, None)
        if saved is not None and saved.args == place.args and saved.kind == place.kind:
            self.house.meters.replayed(self.workflow.name)
            self.record(
                place.kind,
                place.key,
                args=place.args,
                value=saved.value,
                seconds=saved.seconds,
                attempt=saved.attempt,
            )
        elif (
            place.cancelled and place.kind in ("step", "session") and not self.is_open(place.key)
        ):  # before it could start in this life
            place.asked = True
            self.record(place.kind, place.key, args=place.args, error=CANCELLED, asked=True)
        else:
            assert place.launch is not None
            launch, place.launch = place.launch, None
            launch(self, place)

    def cancel_place(self, place: Place, message: Any) -> None:
        """Ask what was called at a place to stop. Its outcome is waited for all the same."""
        if not place.cancelled_by(message):
            return
        if place.stop is not None and place.key not in self.journal.placed:
            place.asked = True
            place.stop()

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
        within: Callable[[Record], Verb] | None = None,
    ) -> int:
        """Have an entry written. It is delivered when it is durable. Returns its number, 0 if this life is over: then nothing is,
        but, `late`, what came of an effect, as long as the run is this life's to give back. `within` makes the verb that it is part of."""
        if self.over is not None and (not late or self.concluded or getattr(self.over, "lost", False)):
            return 0
        seq = self.seq = self.seq + 1
        at = self.last_at = max(self.last_at, at_least, self.now())
        record = Record(
            self.pk, seq, self.fence, kind, key, at, args, value, error, seconds, attempt, asked, cost
        )
        if kind in DEALT or self.journal.dealings.places:
            self.journal.dealings.add(record)
        alone = kind == "step" and not self.bodies and len(self.house.lives) == 1
        self.writing += 1
        if within is None:
            self.house.writer.put(record, self._recorded, alone=alone)
        else:
            self.house.writer.put(within(record), self._changed)
        return seq

    def save(self, verb: Save, done: Callable[[Any], None]) -> None:
        """Have a step's progress written."""

        def saved(_: Any, outcome: Any) -> None:
            self.writing -= 1
            done(outcome)
            if self.over is None and outcome is not None:
                self.evict(ending.refusal(outcome))
                return
            self._got_somewhere()
            if self.house.draining:
                self.house.drain.look(self)

        self.writing += 1
        self.house.writer.put(verb, saved)

    async def record_and_wait(self, kind: str, key: str, **fields: Any) -> None:
        """The same for an entry that is not delivered, from a step's body: returns when it is durable."""
        seq = self.record(kind, key, **fields)
        if self.over is not None:
            raise self.over
        waiter = self._waiters[seq] = self.host.create_future()
        await waiter

    def _changed(self, verb: Any, outcome: Any) -> None:
        """A change of a session: what its entry says is the store's to know."""
        said = sessions.said(outcome)
        self._recorded(verb.record._replace(value=said), outcome if said is None else None)

    def _recorded(self, verb: Any, outcome: Any) -> None:
        self.writing -= 1
        if outcome is None and (verb.cost is not None or self.account is not None):
            self.account = self.account or Account()
            self.account.add(verb)
        if outcome is not None and verb.kind == "step" and self.journal.dealings.get(verb.key) is not None:
            effects.say_lost(self, verb.key, verb.error)
        if self.over is not None:
            return
        if outcome is not None:
            self.evict(ending.refusal(outcome))
            return
        if verb.kind in PROGRESS:
            self._got_somewhere()
        waiter = self._waiters.pop(verb.seq, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if verb.kind in DELIVERED:
            self.pending.append(verb)
            self.advance()
            return
        if self.unknown:
            self.host.call_soon(
                leaving.park_if_idle, self
            )  # this may have been the last that was to be written
        if waiter is None and self.house.draining:
            # A failed attempt: its step waits for the next one, which is another life's.
            self.house.drain.look(self)

    def watch_thread(self, thread: asyncio.Future[Any]) -> None:
        """A thread executes something of the run, whoever waits for it."""

        def ended(thread: asyncio.Future[Any]) -> None:
            self.threads.discard(thread)
            if not thread.cancelled():
                thread.exception()  # seen, also where nobody waits for it any more
            if self.unknown:
                self.host.call_soon(leaving.park_if_idle, self)
            if self.house.draining:
                self.house.drain.look(self)

        self.threads.add(thread)
        thread.add_done_callback(ended)

    def _got_somewhere(self) -> None:
        if self.suspect:
            self.suspect = False
            self.house.room.open(self.fence)  # others may come in again

    # -- delivering

    def advance(self) -> None:
        """Deliver what is pending, letting the run settle after each entry. Only from a callback of the host's loop."""
        if self._advancing:
            return
        self._advancing = True
        try:
            delivery.deliver_pending(self)
        except Diverged as diverged:
            self.over = self.over or diverged
        except Exception as error:  # an entry that cannot be read: nothing more may happen to the run
            log.error("run %s cannot go on", self.id, exc_info=self.house.veiled(error), extra=self.facts())
            if not isinstance(self.over, Diverged):
                self.over = _Unreadable(repr(error), "the next entry")
        finally:
            self._advancing = False
        if self.over is not None:
            ending.wind_down(self)
            return
        if self.unknown:
            self.host.call_soon(leaving.park_if_idle, self)
        if self.house.draining:
            self.house.drain.look(self)

    def facts(self, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        """What a log line says of it beside its text."""
        return self.house.facts(self.row, step, attempt)

    # -- effects

    def is_open(self, key: str) -> bool:
        """Whether nobody knows if the effect at this place has happened."""
        dealing = self.journal.dealings.get(key)
        return dealing is not None and dealing.open

    def executing(self) -> list[Body]:
        """Steps under way: not those that wait for their next attempt, nor what follows children."""
        return [body for body in list(self.bodies.values()) if body is not None and not body.idle]

    def forget_unstarted(self, key: str) -> None:
        """A task that was to await a step has ended before its first turn: nobody will."""
        place = self.places.get(key)
        if place is not None and place.coro is not None:
            del self.places[key]

    # -- ending

    @property
    def how_it_ended(self) -> str:
        """What became of the run with this life: done, failed, cancelled, parked, undoing, waiting, released or lost."""
        over = self.over if isinstance(self.over, Evicted) else None
        if self.is_to_be_undone:
            return "undoing"
        if not self.concluded or (over is not None and over.lost):
            return "lost"
        if self.verdict is not None:
            return self.verdict.status
        if isinstance(self.over, Diverged) or (over is not None and over.parked):
            return "parked"
        return "waiting" if self.resting is not None else "released"

    def stop_clocks(self) -> None:
        """No timer fires any more, and nothing is delivered."""
        self._advancing = True
        self.timers.clear()
        if self.deadline is not None:
            self.deadline.cancel()
        for waiter in self._waiters.values():
            if not waiter.done() and self.over is not None:
                waiter.set_exception(self.over)

    def diverge(self, recorded: str, asked: str) -> Diverged:
        """Mark this life: whatever the workflow's code does with the exception, nothing more is recorded."""
        if not isinstance(self.over, Diverged):
            line = users_line(self.workflow.fn.__module__, self._callers())
            self.over = Diverged(recorded, asked, run=self.id, line=line)
        return self.over

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
        if self.over is None:
            self.refused = error
            self.over = Evicted(f"the run was stopped: {error}")
            with suppress(RuntimeError):  # the host's loop is closed
                self.host.call_soon_threadsafe(self.advance)
        return error

    def evict(self, why: BaseException) -> None:
        """End this life, not the run. A repeat is harmless; the first reason stays."""
        if self.over is None:
            self.over = why
            # Not here: this may be a task of the host's, and the run loop is pumped from callbacks only.
            self.host.call_soon(ending.wind_down, self)


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

    life: Life
    place: Place

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done() or self.life.over is not None:
            return super().cancel(msg)
        self.life.cancel_place(self.place, msg)
        return True


def _cancel_again(task: asyncio.Task[Any] | None, message: Any) -> None:
    """An effect that acts is not cut, and its outcome is what the cancelled task gets; but what it awaits next is. Not if what had cancelled
    it is over by now, as a `timeout` that was left."""
    if task is not None and not task.done() and task.cancelling():
        task.cancel(message)
        task.uncancel()  # it is the same request as before
