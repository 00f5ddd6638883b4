"""The house: everything one process needs to execute runs. `Outlast` is its public face.

It owns the store, the writer, the lease and the lives; it starts runs, takes over those whose worker died, claims from queues if it
is a worker, and listens for what others want of its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from outlast.app.adoption import Adoption
from outlast.app.changes import Changes
from outlast.app.claimer import Claimer
from outlast.app.info import RunInfo
from outlast.app.room import Room
from outlast.app.settings import Settings
from outlast.app.sweeper import Sweeper
from outlast.app.worker import Worker
from outlast.errors import (
    Conflict,
    DuplicateName,
    Evicted,
    LimitExceeded,
    StoreError,
    StoreUnavailable,
)
from outlast.record.writer import InlineWriter, Writer
from outlast.replay.ending import End, lost
from outlast.replay.life import Life
from outlast.replay.threads import Pool
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, Entry, Message, RunRow
from outlast.store.verbs import (
    Cancel,
    Claim,
    Refused,
    Release,
    Renew,
    Settle,
    Submit,
    Submitted,
    Wait,
)
from outlast.values.exceptions import encode_error

if TYPE_CHECKING:
    from outlast.app.items import Consumer
    from outlast.define.workflow import Call, Workflow
    from outlast.replay.loop import RunLoop

log = logging.getLogger("outlast")
T = TypeVar("T")
Hook: TypeAlias = Callable[[RunInfo], Awaitable[None] | None]


class House:
    def __init__(
        self, store: Store, settings: Settings, loop: asyncio.AbstractEventLoop, *, inline: bool = False
    ) -> None:
        self.store, self.settings, self.loop, self.inline = store, settings, loop, inline
        kind = InlineWriter if inline else Writer
        self.writer = kind(store, loop, patience=settings.store_patience, batch_max=settings.batch_size_max)
        self.pool = Pool()
        self.lives: dict[str, Life] = {}
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.graveyard: list[RunLoop] = []
        self.hung: set[str] = set()
        """Runs that could not be given back, because a step of theirs still executes."""
        self.stand_ins: dict[Any, Callable[..., Any]] = {}
        """For tests: what to execute instead of a step's function."""
        self.observe: Callable[[str, str], None] | None = None
        """For tests: told the run and the key of every body that starts."""
        self.worker = Worker(store, self.writer, settings, inline=inline)
        self.worker.lost = self._lost
        self.room = Room(self.wake_claimers)
        self.adoption = Adoption(self)
        self.sweeper = Sweeper(self)
        self.claimer: Claimer | None = None
        """Claims runs from queues, if this process is a worker."""
        self.consumers: set[Consumer] = set()
        self.hooks: dict[str, Hook] = {}
        """Called when a run has come to be dead or parked, by that name."""
        self._sweeping = False
        self._resting: asyncio.TimerHandle | None = None
        self.draining = self.closing = False
        self.closed_soon: asyncio.Future[None] = loop.create_future()
        """Done when the house begins to close."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.changes = Changes(loop, self._ring)
        self._waits: dict[str, tuple[str, ...]] = {}
        self._looking: set[str] = set()

    # -- opening and closing

    async def open(self) -> None:
        opening = self.keep(self.loop.create_task(self.read(self.store.open)), quiet=True)
        try:
            await asyncio.shield(opening)
        except BaseException:
            opening.add_done_callback(lambda _: self._never_opened())
            raise
        self.writer.start()
        self.store.listen(self.changes.ring)
        try:
            await self.worker.enlist()
        except BaseException:
            self.writer.close()
            self._never_opened()
            raise
        if not self.inline:
            self.changes.look_every(self.settings.poll)

    async def close(self) -> None:
        """Evict every life, and give back what has stopped.

        A run whose step still executes (a thread that hangs) is kept: its lock is held and its lease renewed until this
        process is gone.
        """
        self.closing = self.draining = True
        if not self.closed_soon.done():
            self.closed_soon.set_result(None)
        self.changes.stop()
        if self.claimer is not None:
            self.claimer.stop()
        for consumer in self.consumers:
            consumer.stop()
        if self.room.hands:  # should it be killed meanwhile: they were interrupted, not at fault
            draining = Renew(self.worker.id, self.settings.lease, draining=True)
            self.writer.put(draining, lambda *_: None)
        for life in list(self.lives.values()):
            life.evict(Evicted("the program closed Outlast"))
        ends: list[asyncio.Future[Any]] = [life.end for life in self.lives.values()]
        if ends:
            await asyncio.wait(ends, timeout=self.settings.close_timeout * 2)
        for consumer in list(self.consumers):
            self.hung |= await consumer.close(self.settings.close_timeout)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.settings.close_timeout)

    async def leave(self) -> None:
        """Strike this worker off, and let go of the store."""
        if self.hung:
            self.worker.stay()
            log.warning("still executing, so not given back: %s", ", ".join(sorted(self.hung)))
            return
        try:
            await self.worker.leave()
        except StoreError as error:
            log.warning("could not strike this worker off: %s", error)
        await self.read(self._shut)
        self.pool.close()

    def _never_opened(self) -> None:
        self.store.close()
        self.pool.close()

    def _shut(self) -> None:
        self.writer.close()
        self.store.close()

    # -- claiming from queues

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Be a worker: execute what others submit."""
        self.claimer = Claimer(self, queues, lambda: tuple(self.workflows), concurrency, self.begin_claimed)
        self.keep(self.loop.create_task(self.claimer.work()))
        self.sweep_too()
        self._watch_for_rest()

    def sweep_too(self) -> None:
        """Whoever claims also looks after the dead."""
        if not self._sweeping:
            self._sweeping = True
            self.keep(self.loop.create_task(self.sweeper.work()))

    async def claim(self, verb: Claim, *, alone: bool = False) -> list[RunRow]:
        """Claim runs or items; `alone` if what comes is to have the room to itself. Nothing if this worker was swept."""
        if alone:
            self.room.reserve()
        rows: list[RunRow] = []
        try:
            outcome = await self.acquire(verb)
            if isinstance(outcome, Refused):
                await self.worker.enlist(instead_of=verb.worker)
            else:
                rows = outcome
        finally:
            if alone:
                self.room.take(rows[0].fence if rows else None)
        return rows

    async def acquire(self, verb: Claim | Submit) -> Any:
        """Have a verb written that gives runs to this worker. They are in hand from the moment that is known; if nobody waits
        for them any more, they are given back."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.room.coming += 1

        def answered(_: Any, outcome: Any) -> None:
            self.room.coming -= 1
            for row in _given(outcome):
                self.room.add(row)
                if answer.done():
                    self.give_back(row, "nobody waited for it any more")
            if answer.done():
                return
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self.writer.put(verb, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                for row in _given(answer.result()):
                    self.give_back(row, "nobody waited for it any more")
            raise

    def give_back(self, row: RunRow, why: str) -> None:
        """Something in hand that was not begun."""
        self.writer.put(Release(row.pk, row.fence, why, interrupted=False), lambda *_: None)
        self._dropped(row.fence)

    def _dropped(self, fence: int) -> None:
        self.room.drop(fence)
        if self.claimer is not None:
            self.claimer.done(fence)

    async def begin_claimed(self, rows: list[RunRow], workflow: Workflow[..., Any] | None = None) -> None:
        """Those in their first life at once; the others when their journals are read, all in one go."""
        again: list[RunRow] = []
        for row in rows:
            if row.lives == 1:
                self.begin(row, workflow or self.workflows[row.workflow])
            else:
                again.append(row)
        if not again:
            return
        try:
            pasts = await self.read(self._pasts, again)
        except BaseException:
            for row in again:
                self.give_back(row, "its journal was not read")
            raise
        for row, past in zip(again, pasts, strict=True):
            if isinstance(past, StoreUnavailable):
                self.give_back(row, f"its journal could not be read: {past}")
            elif isinstance(past, Exception):
                self._park(row, past)
            else:
                self.begin(row, workflow or self.workflows[row.workflow], *past)
        await self._requests()  # somebody may have wanted one to end while its journal was read

    def _pasts(self, rows: list[RunRow]) -> list[tuple[list[Entry], list[Message]] | Exception]:
        """A journal that cannot be read is one run's trouble, not its neighbours'."""
        pasts: list[tuple[list[Entry], list[Message]] | Exception] = []
        for row in rows:
            try:
                pasts.append((self.whole_journal(row.pk), self.store.messages(row.pk)))
            except Exception as error:
                pasts.append(error)
        return pasts

    def _look_for_rest(self) -> None:
        """A run that only waits, and did when it was last looked at, is given back until there is something to do."""
        self._resting = None
        assert self.claimer is not None
        soon = self.store.now() + self.settings.linger
        for life in list(self.lives.values()):
            rest = life.rest() if life.row.queue in self.claimer.queues else None
            if rest is None or rest.due <= soon:
                continue
            if life.rested_at == rest.entry + 1:
                life.resting = rest
                life.evict(Evicted("it waits"))
            life.rested_at = rest.entry + 1
        self._watch_for_rest()

    def _watch_for_rest(self) -> None:
        """As long as a worker has anything in hand."""
        if self.claimer is not None and self._resting is None and self.lives and not self.closing:
            self._resting = self.loop.call_later(self.settings.linger, self._look_for_rest)

    def cleared(self, life: Life) -> None:
        """A suspect has recorded something: others may come in again."""
        self.room.open(life.fence)

    def wake_claimers(self) -> None:
        if self.claimer is not None:
            self.claimer.wake()
        for consumer in self.consumers:
            consumer.claimer.wake()

    def tell(self, what: str, id: str) -> None:
        """A run is parked, or a dead letter: say so, and call the hook."""
        log.error("run %s is %s", id, "parked" if what == "parked" else "a dead letter", extra={"run": id})
        hook = self.hooks.get(what)
        if hook is not None:
            self.keep(self.loop.create_task(self._tell(hook, id)))

    async def _tell(self, hook: Hook, id: str) -> None:
        row = await self.read(self.store.run, id)
        if row is not None:
            answer = hook(RunInfo.of(row))
            if isawaitable(answer):
                await answer

    # -- starting runs

    def know(self, workflow: Workflow[..., Any]) -> None:
        """Two workflows with one name are an error: a run could not tell which is its own."""
        known = self.workflows.setdefault(workflow.name, workflow)
        if known is not workflow and known.fn is not workflow.fn:
            same = (known.fn.__module__, known.fn.__qualname__) == (
                workflow.fn.__module__,
                workflow.fn.__qualname__,
            )
            if not same:
                raise DuplicateName(
                    f"two workflows have the name {workflow.name!r}: {known.fn.__module__}.{known.fn.__qualname__} and "
                    f"{workflow.fn.__module__}.{workflow.fn.__qualname__}. Name one: @workflow(name=...)."
                )
            self.workflows[workflow.name] = workflow

    def submission(self, call: Call[Any], id: str, **fields: Any) -> Submit:
        self.know(call.workflow)
        self.check_size(call.args, f"the arguments of {call.workflow.name}")
        call.workflow.signature.returns()
        return self.new(id, call.workflow.name, call.args, timeout=call.workflow.timeout, **fields)

    def new(self, id: str, workflow: str, args: str, **fields: Any) -> Submit:
        chance = secrets.token_hex(24)  # asked for once: it is a system call, and not a cheap one
        settings = self.settings
        return Submit(
            id=id,
            workflow=workflow,
            args=args,
            token=chance[:16],
            seed=chance[16:],
            attempts_max=settings.max_attempts,
            interruptions_max=settings.interruptions_max,
            **fields,
        )

    async def start(self, call: Call[Any], id: str, parent: RunRow | None = None) -> RunRow:
        """Have a run executed here: new, or taken over, or joined where it is under way. Conflict for other work.

        Who asked may be cancelled meanwhile; what was submitted is begun all the same, so that no run is left behind.
        """
        verb = self.submission(call, id)
        if parent is not None:  # it goes where its parent goes
            verb = verb._replace(parent=parent.id, queue=parent.queue, priority=parent.priority)
        return await asyncio.shield(self.keep(self.loop.create_task(self._start(call, verb)), quiet=True))

    async def _start(self, call: Call[Any], verb: Submit) -> RunRow:
        outcome: Submitted | Refused
        await self._while_a_suspect_is_alone(verb.parent)
        for _ in range(3):
            worker = self.worker.id
            outcome = await self.acquire(verb._replace(worker=worker))
            if not isinstance(outcome, Refused):
                break
            await self.worker.enlist(instead_of=worker)  # it was taken for dead since
        else:
            raise StoreUnavailable(
                "the store takes this worker for dead again and again: is its clock right?"
            )
        row = outcome.row
        assert row is not None, "a run with a worker is returned"
        if outcome.new:
            self.begin(row, call.workflow)
        else:
            check_same(row, call)
            if row.status not in ENDED and row.status != "parked":
                self.adoption.of(row, call.workflow)
        return row

    async def _while_a_suspect_is_alone(self, parent: str | None) -> None:
        """What is started here waits for it too, but not for long; its own children do not."""
        until = self.loop.time() + self.settings.suspect_patience
        while self.room.alone is not None and self.loop.time() < until and not self.closing:
            if self.room.alone in self.room.hands and self.room.hands[self.room.alone].id in self.room.line(
                parent
            ):
                return
            await asyncio.sleep(0.02)

    def begin(self, row: RunRow, workflow: Workflow[..., Any], entries: Any = (), messages: Any = ()) -> None:
        """Start a life of a run in hand."""
        if self.closing:
            return  # it is given back when this worker leaves
        if row.worker != self.worker.id:  # taken for dead since
            self._let_fall(row, workflow)
            return
        if row.id in self.lives:  # a life that lost the run has not ended yet: its step may still execute
            self.keep(self.loop.create_task(self._begin_after(self.lives[row.id], row, workflow)))
            return
        try:
            life = Life(self, row, workflow, entries, messages)
        except Exception as error:
            self._park(row, error)
            return
        life.claimed = self.claimer is not None and row.fence in self.claimer.hands
        self.lives[row.id] = life
        if life.claimed and log.isEnabledFor(logging.INFO):
            facts = {"run": row.id, "workflow": row.workflow, "queue": row.queue, "fence": row.fence}
            log.info("run %s is claimed", row.id, extra=facts)
        self.loop.call_soon(life.start)
        self._watch_for_rest()
        self.changes.tell()  # whoever waits for the run waits for this life now

    async def _begin_after(self, earlier: Life, row: RunRow, workflow: Workflow[..., Any]) -> None:
        await asyncio.wait([earlier.end])
        await self.begin_claimed([row._replace(lives=max(2, row.lives))], workflow)

    def _let_fall(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """A run that is not this worker's any more: what was claimed is the fleet's, what was started here is wanted back."""
        claimed = self.claimer is not None and row.fence in self.claimer.hands
        self._dropped(row.fence)
        if not claimed:
            self.adoption.of(row, workflow)

    def _park(self, row: RunRow, error: Exception) -> None:
        """Its journal cannot be read: a person must look."""

        def parked(_: Any, outcome: Any) -> None:
            self._dropped(row.fence)
            if outcome is None:
                self.tell("parked", row.id)
            self.changes.tell()

        why = f"its journal cannot be read: {error!r}"
        self.writer.put(Settle(row.pk, row.fence, "parked", reason=why), parked)

    def whole_journal(self, run: int) -> list[Entry]:
        entries: list[Entry] = []
        while page := self.store.journal(run, after=entries[-1].seq if entries else 0):
            entries += page
        return entries

    def gone(self, life: Life) -> None:
        """A life has ended. A run that has not is wanted back."""
        if self.lives.get(life.id) is life:
            del self.lives[life.id]
        self._waits.pop(life.id, None)
        self.free(life)
        if life.id not in self.hung:
            self.room.drop(life.fence)
        if life.claimed and log.isEnabledFor(logging.INFO):
            self._log_end(life)
        self.wake_claimers()  # its parent may have waited for it, or its queue be less full
        over = life.over
        wanted = not life.claimed and life.resting is None
        if wanted and isinstance(over, Evicted) and over.cause is None and life.verdict is None:
            self.adoption.of(life.row, life.workflow)

    def _log_end(self, life: Life) -> None:
        facts = {"run": life.id, "workflow": life.workflow.name, "queue": life.row.queue, "fence": life.fence}
        if life.verdict is not None:
            log.info(
                "run %s is %s", life.id, life.verdict.status, extra={**facts, "status": life.verdict.status}
            )
        else:
            log.info("run %s is released: %s", life.id, life.over, extra={**facts, "status": "released"})

    def free(self, life: Life) -> None:
        """Nothing of a run executes here any more: its slot is free."""
        if life.claimed and self.claimer is not None:
            self.claimer.done(life.fence)

    # -- what others want of a run

    async def cancel(self, id: str, why: str) -> Any:
        outcome = await self.writer.ask(Cancel(id, why))
        life = self.lives.get(id)
        if life is not None:
            life.check_requests(why)
        return outcome

    # -- waiting

    async def ended(self, id: str) -> End:
        """How a run ends, or that it was parked, wherever it executes."""
        while True:
            if self.closing:
                raise StoreUnavailable(f"Outlast was closed while run {id!r} was under way; it is resumable.")
            life = self.lives.get(id)
            if life is not None:
                end = await asyncio.shield(life.end)
                if end.status != "evicted":
                    return end
                if isinstance(life.over, Evicted) and life.over.cause is not None:
                    raise life.over.cause
                if self.closing:
                    raise StoreUnavailable(
                        f"Outlast was closed while run {id!r} was under way; it is resumable."
                    )
            seen = self.changes.count
            row = await self.read(self.store.run, id)
            if row is None:
                return End("failed", error=encode_error(LookupError(f"run {id} is gone"), 1000))
            if row.status in ENDED or row.status == "parked":
                return End(row.status, row.value, row.error, row.reason)
            await self.changes.next(self.settings.poll, seen)

    async def while_parked(self, id: str) -> None:
        while True:
            seen = self.changes.count
            row = await self.read(self.store.run, id)
            if row is None or row.status != "parked":
                return
            await self.changes.next(self.settings.poll, seen)

    def _ring(self) -> None:
        self.wake_claimers()
        if self.lives and not self.closing:
            self.keep(self.loop.create_task(self._requests()))

    async def _requests(self) -> None:
        """What others want of the runs that execute here: that they end, or that they take a message."""
        try:
            for id, why in await self.read(self.store.cancels, self.worker.id):
                life = self.lives.get(id)
                if life is not None:
                    life.check_requests(why)
        except StoreError as error:
            log.warning("could not look for requests: %s", error)
        for life in list(self.lives.values()):
            if life.mail.waiting:
                self.look_for_mail(life)

    def look_for_mail(self, life: Life) -> None:
        if life.id not in self._looking:
            self._looking.add(life.id)
            self.keep(asyncio.Task(self._mail(life), loop=self.loop))

    async def _mail(self, life: Life) -> None:
        await asyncio.sleep(0)
        self._looking.discard(life.id)
        try:
            messages = await self.read(self.store.messages, life.pk, life.mail.last)
        except StoreError as error:
            log.warning("could not look for messages: %s", error)
            return
        if life.over is not None or life.replaying:
            return
        life.mail.arrived(messages)
        if life.mail.waiting:
            self._waits.setdefault(life.id, ())
            self.say_waiting(life)

    def say_waiting(self, life: Life) -> None:
        """Keep what the store says a run waits for up to date, once it has said anything."""
        waiting = life.mail.waiting
        if life.over is None and self._waits.get(life.id, waiting) != waiting:
            self._waits[life.id] = waiting
            self.writer.put(Wait(life.pk, life.fence, waiting), lambda *_: None)

    # -- small services

    async def read(self, fn: Callable[..., T], *args: Any) -> T:
        """Call something that blocks, in a thread."""
        if self.inline:
            return fn(*args)
        return await self.pool.run(self.loop, copy_context(), fn, *args)

    def keep(self, task: asyncio.Task[T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Hold a task until it has ended, and say so if it failed, unless whoever waits for it is told."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._kept)
        return task

    def _kept(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.closing:
            log.error("a task of Outlast failed", exc_info=task.exception())

    def check_size(self, text: str, what: str) -> None:
        if len(text) > self.settings.value_size_max:
            raise LimitExceeded("value_size_max", self.settings.value_size_max, len(text), what)

    def _lost(self, worker: str) -> None:
        for life in list(self.lives.values()):
            if life.row.worker == worker:
                life.evict(lost("its worker was taken for dead"))
        for consumer in self.consumers:
            consumer.lost(worker)
        for fence, row in list(self.room.hands.items()):
            if row.worker == worker and row.id not in self.lives:
                self._dropped(fence)
        self.keep(self.loop.create_task(self.worker.enlist(instead_of=worker)))


def _given(outcome: Any) -> list[RunRow]:
    """What a verb gave to this worker."""
    if isinstance(outcome, Submitted):
        return (
            [outcome.row]
            if outcome.new and outcome.row is not None and outcome.row.worker is not None
            else []
        )
    return outcome if isinstance(outcome, list) else []


def check_same(row: RunRow, call: Call[Any]) -> None:
    if (row.workflow, row.args) != (call.workflow.name, call.args):
        raise Conflict(
            row.id, f"{row.workflow}({row.args})"[:500], f"{call.workflow.name}({call.args})"[:500]
        )
