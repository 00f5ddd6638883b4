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
        self.room = Room(self.lives)
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
        self._adopting: set[str] = set()

    # -- opening and closing

    async def open(self) -> None:
        await self.read(self.store.open)
        self.writer.start()
        self.store.listen(self.changes.ring)
        try:
            await self.worker.enlist()
        except BaseException:
            self.writer.close()
            self.store.close()
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
        if (
            self.lives or self.room.items
        ):  # should it be killed meanwhile: they were interrupted, not at fault
            draining = Renew(self.worker.id, self.settings.lease, draining=True)
            self.writer.put(draining, lambda *_: None)
        for life in list(self.lives.values()):
            life.evict(Evicted("the program closed Outlast"))
        ends: list[asyncio.Future[Any]] = [life.end for life in self.lives.values()]
        ends += [consumer.ended for consumer in self.consumers]
        if ends:
            await asyncio.wait(ends, timeout=self.settings.close_timeout * 2)
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

    def _shut(self) -> None:
        self.writer.close()
        self.store.close()

    # -- claiming from queues

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Be a worker: execute what others submit."""
        self.claimer = Claimer(self, queues, lambda: tuple(self.workflows), concurrency, self._begin_claimed)
        self.keep(self.loop.create_task(self.claimer.work()))
        self.sweep_too()

    def sweep_too(self) -> None:
        """Whoever claims also looks after the dead."""
        if not self._sweeping:
            self._sweeping = True
            self.keep(self.loop.create_task(self.sweeper.work()))

    async def _begin_claimed(self, rows: list[RunRow]) -> None:
        """Those in their first life at once; the others when their journals are read, all in one go."""
        again: list[RunRow] = []
        for row in rows:
            if row.lives == 1:
                self.begin(row, self.workflows[row.workflow])
            else:
                self.room.pending.add(row.id)
                again.append(row)
        if not again:
            return
        try:
            past = await self.read(self._pasts, again)
        finally:
            self.room.pending.difference_update(row.id for row in again)
        for row, (entries, messages) in zip(again, past, strict=True):
            self.begin(row, self.workflows[row.workflow], entries, messages)
        await self._requests()  # somebody may have wanted one to end while its journal was read

    def _pasts(self, rows: list[RunRow]) -> list[tuple[list[Entry], list[Message]]]:
        return [(self.whole_journal(row.pk), self.store.messages(row.pk)) for row in rows]

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
        self.room.leave(life.id)
        self.wake_claimers()

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
        for _ in range(3):
            worker = self.worker.id
            outcome = await self.writer.ask(verb._replace(worker=worker))
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
                self.adopt(row, call.workflow)
        return row

    def begin(self, row: RunRow, workflow: Workflow[..., Any], entries: Any = (), messages: Any = ()) -> None:
        if self.closing:
            return  # it is given back when this worker leaves
        if row.worker != self.worker.id:  # taken for dead since
            self._let_fall(row, workflow)
            return
        try:
            life = Life(self, row, workflow, entries, messages)
        except Exception as error:  # a journal that cannot be read
            self.keep(self.loop.create_task(self._park(row, f"its journal cannot be read: {error!r}")))
            return
        life.claimed = self.claimer is not None and row.id in self.claimer.hands
        self.lives[row.id] = life
        if life.claimed:
            log.info(
                "run %s is claimed",
                row.id,
                extra={"run": row.id, "workflow": row.workflow, "fence": row.fence},
            )
        self.loop.call_soon(life.start)
        self._watch_for_rest()
        self.changes.tell()  # whoever waits for the run waits for this life now

    def _let_fall(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """A run that is not this worker's any more: what was claimed is the fleet's, what was started here is wanted back."""
        self.room.leave(row.id)
        if self.claimer is not None and row.id in self.claimer.hands:
            self.claimer.done(row.id)
        else:
            self.adopt(row, workflow)

    async def _park(self, row: RunRow, why: str) -> None:
        outcome = await self.writer.ask(Settle(row.pk, row.fence, "parked", reason=why))
        if outcome is None:
            self.tell("parked", row.id)
        if self.claimer is not None:
            self.claimer.done(row.id)
        self.room.leave(row.id)
        self.changes.tell()

    def adopt(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """Take a run over as soon as nobody has it, in the background; once, however often it is asked for."""
        if row.id not in self._adopting and row.id not in self.lives and not self.closing:
            self._adopting.add(row.id)
            task = self.loop.create_task(self._adopt(row, workflow))
            task.add_done_callback(lambda _: self._adopting.discard(row.id))
            self.keep(task)

    async def _adopt(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """Ends when this worker has it, when it has ended or is parked, or when it is the fleet's to take."""
        patience = self.loop.time() + self.settings.suspect_patience
        while not self.closing:
            seen, pause = self.changes.count, min(self.settings.heartbeat, self.settings.poll)
            try:
                found = await self._in_the_way(row.id)
                if found is None:
                    return
                suspect = (
                    found.deaths_in_a_row and self.loop.time() < patience and not self._alone_with(found)
                )
                pause = (
                    min(pause, max(0.001, found.due - self.store.now())) if found.worker is None else pause
                )
                free = found.worker is None and found.due <= self.store.now() and not suspect
                if free and await self._claim(found, workflow):
                    return
            except StoreError as error:
                log.warning("run %s cannot be taken up yet: %s", row.id, error)
            await self.changes.next(pause, seen)

    async def _in_the_way(self, id: str) -> RunRow | None:
        """A run as it stands, swept if its worker is dead; None if there is nothing to take over."""
        row = await self.read(self.store.run, id)
        if row is not None and row.worker == self.worker.id and not self.room.has(id) and id not in self.hung:
            # Left behind by a life here when the store did not answer: nobody executes it.
            await self.writer.ask(Release(row.pk, row.fence, "taken up again"))
            row = await self.read(self.store.run, id)
        elif row is not None and row.worker is not None and await self.sweeper.sweep():
            row = await self.read(self.store.run, id)
        if row is None or row.status in ENDED or row.status == "parked" or self.room.has(id):
            return None
        return None if self._is_the_fleets(row) else row

    def _is_the_fleets(self, row: RunRow) -> bool:
        """Whether this worker's claimer, or another's, takes it when the time has come: not to be pulled from there."""
        claimer = self.claimer
        if claimer is None or row.queue not in claimer.queues or row.worker == self.worker.id:
            return False
        return row.worker is not None or row.due > self.store.now() or row.deaths_in_a_row > 0

    def _alone_with(self, row: RunRow) -> bool:
        """Whether a suspect would have this process to itself; those who wait for it are no company."""
        return self.room.alone in (None, row.id) and self.room.is_empty(but=self.room.line(row.parent))

    async def _claim(self, row: RunRow, workflow: Workflow[..., Any]) -> bool:
        worker = self.worker.id
        claimed = await self.writer.ask(Claim(worker, secrets.token_hex(8), ids=(row.id,)))
        if isinstance(claimed, Refused):
            await self.worker.enlist(instead_of=worker)
            return False
        for mine in claimed:
            if mine.deaths_in_a_row and self._alone_with(mine):
                self.room.take(mine.id)
            self.room.pending.add(mine.id)
            try:
                ((entries, messages),) = await self.read(self._pasts, [mine])
            finally:
                self.room.pending.discard(mine.id)
            self.begin(mine, workflow, entries, messages)
        if claimed:
            await self._requests()  # somebody may have wanted it to end while its journal was read
        return bool(claimed)

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
        self.room.leave(life.id)
        self.free(life)
        if life.claimed and log.isEnabledFor(logging.INFO):
            self._log_end(life)
        if life.row.parent is not None:
            self.wake_claimers()  # its parent may have waited for it
        over = life.over
        wanted = not life.claimed and life.resting is None
        if wanted and isinstance(over, Evicted) and over.cause is None and life.verdict is None:
            self.adopt(life.row, life.workflow)

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
            self.claimer.done(life.id)

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
        self.keep(self.loop.create_task(self.worker.enlist(instead_of=worker)))


def check_same(row: RunRow, call: Call[Any]) -> None:
    if (row.workflow, row.args) != (call.workflow.name, call.args):
        raise Conflict(
            row.id, f"{row.workflow}({row.args})"[:500], f"{call.workflow.name}({call.args})"[:500]
        )
