"""A life: one execution of a run in one process, under one fence.

The journal's entries are delivered to the run loop one at a time, in order, and the run settles in between. Replay and
live execution are the same path; they differ only in where the entries come from. See docs/architecture.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.errors import Diverged, Evicted, LimitExceeded, RunTimeout, StoreError, Unrecordable
from outlast.replay.journal import DELIVERED, PLACED, Journal
from outlast.replay.loop import RunLoop, RunTask, Scope
from outlast.replay.mail import Mail
from outlast.replay.place import Place
from outlast.replay.threads import Threaded
from outlast.replay.timers import Timers
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.verbs import FENCE, Record, Refused, Release, Settle
from outlast.values.exceptions import CANCELLED, SEQ, decode_error, encode_error

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.define.workflow import Workflow

log = logging.getLogger("outlast.replay")

CALLBACKS_MAX = 1_000_000
"""Callbacks between two entries: a workflow that takes more does not wait for anything, it spins."""
SLICE = 200
"""Entries replayed before the host's loop gets its turn."""


class End(NamedTuple):
    """How a life ended. `status` is the run's, or "evicted" if the run goes on without us."""

    status: str
    value: str | None = None
    error: str | None = None
    reason: str | None = None


class Life:
    def __init__(
        self,
        house: House,
        row: RunRow,
        workflow: Workflow[..., Any],
        entries: Sequence[Entry] = (),
        messages: Sequence[Message] = (),
    ) -> None:
        self.house, self.host = house, house.loop
        self.now: Callable[[], float] = house.store.now
        self.id, self.pk, self.fence, self.row = row.id, row.pk, row.fence, row
        self.workflow = workflow
        self.journal = Journal(entries)
        self.loop = RunLoop(self)  # type: ignore[abstract]
        self.timers = Timers(self)
        self.mail = Mail(self, messages, self.journal.taken)
        self.places: dict[str, Place] = {}
        self.bodies: set[asyncio.Task[Any]] = set()
        self.threads: set[asyncio.Future[Any]] = set()
        """Threads that execute a step's function. They outlive the step if it was cancelled or took too long."""
        self.replaying = True
        self.over: BaseException | None = None
        """Why this life has ended; from then on nothing is recorded and every call raises it."""
        self.cancelling: str | None = None
        self.thread: Threaded | None = None
        self.end: asyncio.Future[End] = self.host.create_future()
        self.wall = self.time = row.started or row.created
        self.gap = 0.0
        """Seconds between an end or parking and the retry or resume: timers do not run in them."""
        self._deferred: list[Place] = []
        self._first: set[int] = set()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._last_at = self.wall
        self._seq = self.journal.last_seq
        self._pending: Any = self.journal.pending
        self._advancing = False
        self._cancel_asked = False
        self._cancel_seq: int | None = None
        self._timed_out = False
        self._deadline: asyncio.TimerHandle | None = None
        self._main: RunTask | None = None
        self._verdict: Settle | None = None
        self._winding = False

    # -- beginning

    def start(self) -> None:
        try:
            args, kwargs = self.workflow.signature.decode(self.row.args)
        except (Unrecordable, TypeError) as error:
            self.over = Diverged(f"the arguments {self.row.args}", f"{self.workflow.name}: {error}")
            self._wind_down()
            return
        if self.workflow.is_async:
            coro = self.workflow.fn(*args, **kwargs)
        else:
            self.thread = Threaded(self, self.workflow.fn, args, kwargs)
            coro = self.thread.drive()
        self.loop.open = True
        self._main = RunTask(coro, scope=self.loop.root, loop=self.loop, context=copy_context())
        self.loop.tasks[self._main] = None
        self.loop.open = False
        self.advance()

    # -- what the workflow's calls do, on the run loop

    def check(self) -> None:
        """Before any call of the workflow: this life may be over, or the run being cancelled."""
        if self.over is not None:
            raise self.over
        if self.cancelling is not None:
            raise asyncio.CancelledError(self.cancelling)

    def take(self, kind: str, name: str, args: str | None) -> Place:
        """Take the next place of this name. Raises Diverged if the journal has something else there."""
        self.check()
        limit = self.house.settings.journal_entries_max
        if self._seq + len(self.places) >= limit:
            asked = self._seq + len(self.places) + 1
            raise LimitExceeded("journal_entries_max", limit, asked, f"the journal of run {self.id!r}")
        place = Place(kind, self.loop.scope().key(name), args)
        recorded = self.journal.placed.get(place.key)
        if recorded is not None and (recorded.kind != kind or recorded.args != args):
            raise self.diverge(_describe(recorded), str(place))
        self.places[place.key] = place
        return place

    async def outcome(self, place: Place, launch: Callable[[Life, Place], None]) -> Any:
        """Wait, on the run loop, for the entry that answers a place."""
        place.launch, place.coro = launch, None
        if not place.delivered:
            self._begin(place)
        while not place.delivered:
            place.future = asyncio.Future(loop=self.loop)
            try:
                await place.future
            except asyncio.CancelledError:
                if self.over is None and not place.delivered:
                    self._cancel_place(place)
                    continue
                raise
            if self.over is not None:
                raise self.over
        if place.error is not None:
            raise place.error
        return place.value

    def _begin(self, place: Place) -> None:
        if place.key in self.journal.placed:
            return
        if self.replaying:
            place.context = copy_context()
            self._deferred.append(place)
        else:
            self._launch(place)

    def _launch(self, place: Place) -> None:
        saved = self.journal.salvage.pop(place.key, None)
        if saved is not None and saved.args == place.args and saved.kind == place.kind:
            self.record(
                place.kind,
                place.key,
                args=place.args,
                value=saved.value,
                seconds=saved.seconds,
                attempt=saved.attempt,
            )
        elif place.cancelled and place.kind == "step":  # cancelled before it could start in this life
            place.asked = True
            self.record("step", place.key, args=place.args, error=CANCELLED, asked=True)
        else:
            assert place.launch is not None
            launch, place.launch = place.launch, None
            launch(self, place)

    def _cancel_place(self, place: Place) -> None:
        place.cancelled = True
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
    ) -> int:
        """Have an entry written. It is delivered when it is durable. Returns its number, 0 if this life is over."""
        if self.over is not None:
            return 0
        seq = self._seq = self._seq + 1
        at = self._last_at = max(self._last_at, at_least, self.now())
        record = Record(self.pk, seq, self.fence, kind, key, at, args, value, error, seconds, attempt, asked)
        alone = kind == "step" and not self.bodies and len(self.house.lives) == 1
        self.house.writer.put(record, self._recorded, alone=alone)
        return seq

    async def record_and_wait(self, kind: str, key: str, **fields: Any) -> None:
        """The same for an entry that is not delivered, from a step's body: returns when it is durable."""
        seq = self.record(kind, key, **fields)
        if self.over is not None:
            raise self.over
        waiter = self._waiters[seq] = self.host.create_future()
        await waiter

    def _recorded(self, verb: Any, outcome: Any) -> None:
        if self.over is not None:
            return
        if outcome is not None:
            self.evict(_refusal(outcome))
            return
        if verb.kind in DELIVERED:
            self._pending.append(verb)
            self.advance()
        elif verb.seq in self._waiters:
            waiter = self._waiters.pop(verb.seq)
            if not waiter.done():
                waiter.set_result(None)

    # -- delivering

    def advance(self) -> None:
        """Deliver what is pending, letting the run settle after each entry. Only from a callback of the host's loop."""
        if self._advancing:
            return
        self._advancing = True
        try:
            self._advance()
        except Diverged as diverged:
            self.over = self.over or diverged
        finally:
            self._advancing = False
        if self.over is not None:
            self._wind_down()

    def _advance(self) -> None:
        delivered = 0
        while True:
            if not self.loop.pump(CALLBACKS_MAX):
                raise self.diverge(
                    "a workflow that waits", f"more than {CALLBACKS_MAX:,} callbacks without waiting"
                )
            if self.over is not None or self._main is None:
                return
            if self._main.done():
                self._finish(self._main)
                return
            if self.thread is not None and self.thread.busy:
                return
            if not self._pending:
                break
            if delivered >= SLICE:
                self.host.call_soon(self.advance)
                return
            self._deliver(self._pending.popleft())
            delivered += 1
        if self.replaying:
            self._catch_up()
        elif not (self.places or self.timers or self.mail.waiting or self._pending):
            raise self.diverge(
                "a run with something to wait for",
                "something that can never come: no step, timer, message or child is under way",
            )

    def _deliver(self, entry: Entry | Record) -> None:
        if entry.kind in ("retry", "resume"):
            self.gap += max(0.0, entry.at - self.wall)
        self.wall = max(self.wall, entry.at)
        self.time = self.wall - self.gap
        self._last_at = max(self._last_at, self.wall)
        self.loop.open = True
        try:
            if entry.kind in PLACED:
                self._answer(entry)
            elif entry.kind == "fired":
                handle = self.timers.fired(entry.key)
                if handle is not None:
                    self.loop.ready.append(handle)
            elif entry.kind == "message":
                self.mail.deliver(int(entry.value or 0))
            elif entry.kind == "cancel":
                self._cancel_main(entry)
        finally:
            self.loop.open = False
        if entry.seq in self._first:
            self._first.discard(entry.seq)
            if not self._first:
                self.host.call_soon(self._start_deferred)

    def _answer(self, entry: Entry | Record) -> None:
        place = self.places.pop(entry.key, None)
        self.journal.placed.pop(entry.key, None)
        if place is None or place.kind != entry.kind:
            raise self.diverge(_describe(entry), "something else: it was not called")
        if place.cancelled and not entry.asked:
            # It had ended, but the cancellation was first.
            place.value, place.error = None, asyncio.CancelledError()
        elif place.value is None and place.error is None:
            if entry.error is not None:
                place.error = decode_error(entry.error)
                place.error.__dict__[SEQ] = entry.seq
            elif entry.value is not None and place.codec is not None:
                try:
                    place.value = place.codec().decode(entry.value)
                except Unrecordable as error:
                    raise self.diverge(_describe(entry), str(error)) from error
        place.delivered, place.stop = True, None
        place.wake()

    def _catch_up(self) -> None:
        """The journal is exhausted. What came due meanwhile goes first: it may cancel what would start now."""
        self.replaying = False
        for key in self.timers.overdue():
            self.timers.fire(key)
            self._first.add(self._seq)
        self.check_requests()
        if self.row.deadline is not None and self.row.deadline <= self.now():
            before = self._seq
            self._deadline_due()
            if self._seq > before:
                self._first.add(self._seq)
        if not self._first:
            self.host.call_soon(self._start_deferred)

    def _start_deferred(self) -> None:
        if self.over is not None:
            return
        deferred, self._deferred = self._deferred, []
        for place in deferred:
            if not place.delivered:
                assert place.context is not None
                place.context.run(self._launch, place)
        self.timers.arm_all()
        if self.row.deadline is not None and self._deadline is None:
            self._watch_deadline()
        if self.mail.waiting:
            self.look_for_mail()
        self.advance()

    # -- requests from outside

    def check_requests(self, cancel: str | None = None) -> None:
        """A request to cancel enters the journal here, unless it is in it already."""
        why = cancel if cancel is not None else self.row.cancel
        if why is not None and not self._cancel_asked and self.cancelling is None and not self.replaying:
            self._cancel_asked = True
            seq = self.record("cancel", "", value=json.dumps({"why": why}))
            if self._deferred:
                self._first.add(seq)
        elif why is not None and self.replaying:
            self.row = self.row._replace(cancel=why)

    def _watch_deadline(self) -> None:
        assert self.row.deadline is not None
        delay = min(max(0.0, self.row.deadline - self.now()), 86_400.0)
        self._deadline = self.host.call_later(delay, self._deadline_due)

    def _deadline_due(self) -> None:
        if self.over is not None or self.cancelling is not None:
            return
        if self.row.deadline is not None and self.now() < self.row.deadline:
            self._watch_deadline()
        elif not self._cancel_asked:
            self._cancel_asked = True
            self.record(
                "cancel", "", value=json.dumps({"why": "it took longer than its timeout", "timeout": True})
            )

    def _cancel_main(self, entry: Entry | Record) -> None:
        request = json.loads(entry.value or "{}")
        self.cancelling = str(request.get("why", ""))
        self._timed_out = bool(request.get("timeout"))
        self._cancel_seq = entry.seq
        if self._main is not None:
            self._main.cancel(self.cancelling)

    def look_for_mail(self) -> None:
        self.house.look_for_mail(self)

    # -- ending

    def diverge(self, recorded: str, asked: str) -> Diverged:
        """Mark this life: whatever the workflow's code does with the exception, nothing more is recorded."""
        if not isinstance(self.over, Diverged):
            self.over = Diverged(recorded, asked)
        return self.over

    def evict(self, why: BaseException) -> None:
        """End this life, not the run. A repeat is harmless; the first reason stays."""
        if self.over is None:
            self.over = why
            if not self._advancing:
                self._wind_down()

    def _finish(self, main: RunTask) -> None:
        """The workflow's function has returned or raised: the run ends, unless the journal says it cannot have."""
        left = [entry for key, entry in self.journal.placed.items() if key not in self.places]
        if left:
            raise self.diverge(_describe(left[0]), f"the end of {self.workflow.name}")
        self._verdict = self._judge(main)
        self.over = Evicted("the run has ended")

    def _judge(self, main: RunTask) -> Settle:
        text_max = self.house.settings.error_text_max
        try:
            error: BaseException | None = main.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        if self._timed_out:
            text = encode_error(RunTimeout(self.id, self.cancelling or ""), text_max)
            return Settle(self.pk, self.fence, "failed", error=text, failed_at=self._cancel_seq)
        if self.cancelling is not None:
            return Settle(
                self.pk, self.fence, "cancelled", reason=self.cancelling, failed_at=self._cancel_seq
            )
        if error is None:
            try:
                text, _ = self.workflow.signature.returns().carry(main.result())
                self.house.check_size(text, f"the result of {self.workflow.name}")
            except (Unrecordable, LimitExceeded) as unfit:
                error = unfit
            else:
                return Settle(self.pk, self.fence, "done", value=text)
        return Settle(
            self.pk, self.fence, "failed", error=encode_error(error, text_max), failed_at=_origin(error)
        )

    def _wind_down(self) -> None:
        """Wake whatever still waits in the workflow so that its `finally` blocks execute, then stop the bodies. Once."""
        assert self.over is not None
        if self._winding:
            return
        self._winding = True
        self.timers.clear()
        if self._deadline is not None:
            self._deadline.cancel()
        self._advancing = True  # nothing is delivered any more
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(self.over)
        for round in range(10):
            self.loop.open = True
            for place in list(self.places.values()) if round == 0 else ():
                place.wake()
            for task in list(self.loop.tasks) if round > 0 else ():
                task.cancel(str(self.over))
            self.loop.open = False
            self.loop.pump(10_000)
            if not any(not task.done() for task in self.loop.tasks):
                break
        for (
            task
        ) in self.loop.tasks:  # those that refuse to end are kept, so that no finaliser executes their code
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if self.loop.tasks and any(not task.done() for task in self.loop.tasks):
            self.house.graveyard.append(self.loop)
        for task in self.loop.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # seen: it is no news that it ended so
        if self.thread is not None:
            self.thread.evict(self.over)
        for body in self.bodies:
            body.cancel()
        for place in self.places.values() if self._verdict is None or self._verdict.status != "done" else ():
            if place.coro is not None:  # called, and then something was raised before it could be awaited
                place.coro.close()
        for place in list(self.places.values()) if self._verdict is not None else ():
            if place.kind == "child" and place.stop is not None:
                place.stop()  # a child that nobody waits for ends with its parent
        self.house.keep(asyncio.Task(self._conclude(self._verdict), loop=self.host))

    async def _conclude(self, verb: Settle | None) -> None:
        """Once the bodies have stopped: settle, park or give back."""
        if verb is not None and self.bodies:
            await asyncio.wait(list(self.bodies))
        elif verb is None and (self.bodies or self.threads):
            await asyncio.wait([*self.bodies, *self.threads], timeout=self.house.settings.close_timeout)
        # One that was cancelled before its first turn could not strike itself off.
        self.bodies = {body for body in self.bodies if not body.done()}
        last: Settle | Release | None = verb
        if isinstance(self.over, Diverged):
            last = Settle(self.pk, self.fence, "parked", reason=str(self.over))
        elif verb is None and not (isinstance(self.over, Evicted) and self.over.lost):
            if self.bodies or self.threads:  # still executing: the run must not be given to anybody yet
                self.house.hung.add(self.id)
            else:
                last = Release(self.pk, self.fence, str(self.over))
        end = End("evicted", reason=str(self.over))
        if last is not None:
            try:
                outcome = await self.house.writer.ask(last)
            except StoreError as error:
                end = End("evicted", reason=str(error))
            else:
                if isinstance(last, Settle) and outcome is None:
                    end = End(last.status, last.value, last.error, last.reason)
                elif isinstance(outcome, Refused):
                    end = End("evicted", reason=str(_refusal(outcome)))
        self.house.gone(self)
        if not self.end.done():
            self.end.set_result(end)


def _refusal(outcome: Any) -> Evicted:
    """This process no longer has the run: another has it, or the store does not answer."""
    if isinstance(outcome, Refused) and outcome.why == FENCE:
        evicted = Evicted("another worker has the run now: this one was taken for dead")
    else:
        evicted = Evicted(f"the store did not take an entry: {outcome}")
    evicted.lost = True
    evicted.cause = outcome if isinstance(outcome, StoreError) else None
    return evicted


def _describe(entry: Any) -> str:
    return f"{entry.kind} {entry.key}({entry.args or ''})"


def _origin(error: BaseException) -> int | None:
    """The entry whose exception ended the run, if it was one: a retry starts there."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    found: list[int] = []
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        seq = one.__dict__.get(SEQ)
        if seq is not None:
            found.append(seq)
        stack += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            stack += one.exceptions
    return min(found, default=None)


__all__ = ["End", "Life", "Scope"]
