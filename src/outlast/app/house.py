"""The house: everything one process needs to execute runs. `Outlast` is its public face.

It owns the store, the writer, the lease and the lives; it starts runs, takes over those whose worker died, and listens for what
others want of its own.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.app.changes import Changes
from outlast.app.settings import Settings
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
from outlast.store.rows import ENDED, Entry, RunRow
from outlast.store.verbs import (
    Cancel,
    Claim,
    Refused,
    Release,
    Settle,
    Submit,
    Submitted,
    Sweep,
    Wait,
)
from outlast.values.exceptions import encode_error

if TYPE_CHECKING:
    from outlast.define.workflow import Call, Workflow
    from outlast.replay.loop import RunLoop

log = logging.getLogger("outlast")
T = TypeVar("T")


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
        self.closing = False
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
        """Evict every life, give back what has stopped, strike this worker off.

        A run whose step still executes (a thread that hangs) is kept: its lock is held and its lease renewed until this
        process is gone.
        """
        self.closing = True
        if not self.closed_soon.done():
            self.closed_soon.set_result(None)
        self.changes.stop()
        for life in list(self.lives.values()):
            life.evict(Evicted("the program closed Outlast"))
        if self.lives:
            ends = [life.end for life in self.lives.values()]
            await asyncio.wait(ends, timeout=self.settings.close_timeout * 2)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.settings.close_timeout)
        if self.hung:
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
        chance = secrets.token_hex(24)  # asked for once: it is a system call, and not a cheap one
        return Submit(
            id=id,
            workflow=call.workflow.name,
            args=call.args,
            token=chance[:16],
            seed=chance[16:],
            timeout=call.workflow.timeout,
            **fields,
        )

    async def start(self, call: Call[Any], id: str, parent: str | None = None) -> RunRow:
        """Have a run executed here: new, or taken over, or joined where it is under way. Conflict for other work.

        Who asked may be cancelled meanwhile; what was submitted is begun all the same, so that no run is left behind.
        """
        verb = self.submission(call, id, parent=parent)
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
        try:
            life = Life(self, row, workflow, entries, messages)
        except Exception as error:  # a journal that cannot be read
            self.keep(self.loop.create_task(self._park(row, f"its journal cannot be read: {error!r}")))
            return
        self.lives[row.id] = life
        self.loop.call_soon(life.start)
        self.changes.tell()  # whoever waits for the run waits for this life now

    async def _park(self, row: RunRow, why: str) -> None:
        log.error("run %s is parked: %s", row.id, why)
        await self.writer.ask(Settle(row.pk, row.fence, "parked", reason=why))
        self.changes.tell()

    def adopt(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """Take a run over as soon as nobody has it, in the background; once, however often it is asked for."""
        if row.id not in self._adopting and row.id not in self.lives and not self.closing:
            self._adopting.add(row.id)
            task = self.loop.create_task(self._adopt(row, workflow))
            task.add_done_callback(lambda _: self._adopting.discard(row.id))
            self.keep(task)

    async def _adopt(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """Ends when this worker has it, or when it has ended or is parked."""
        while not self.closing:
            seen = self.changes.count
            try:
                if await self._try_to_adopt(row.id, workflow):
                    return
            except StoreError as error:
                log.warning("run %s cannot be taken up yet: %s", row.id, error)
            await self.changes.next(min(self.settings.heartbeat, self.settings.poll), seen)

    async def _try_to_adopt(self, id: str, workflow: Workflow[..., Any]) -> bool:
        """True if there is nothing left to do."""
        row = await self.read(self.store.run, id)
        if row is None or row.status in ENDED or row.status == "parked" or id in self.lives:
            return True
        if row.worker == self.worker.id and id not in self.hung:
            # Left behind by a life here when the store did not answer: nobody executes it.
            await self.writer.ask(Release(row.pk, row.fence, "taken up again"))
        elif row.worker is not None and bool(await self.read(self.store.dead_workers)):
            await self.writer.ask(Sweep())
        elif row.worker is not None:
            return False
        return await self._claim(row, workflow)

    async def _claim(self, row: RunRow, workflow: Workflow[..., Any]) -> bool:
        worker = self.worker.id
        claimed = await self.writer.ask(Claim(worker, secrets.token_hex(8), ids=(row.id,)))
        if isinstance(claimed, Refused):
            await self.worker.enlist(instead_of=worker)
            return False
        for mine in claimed:
            entries = await self.read(self._whole_journal, mine.pk)
            messages = await self.read(self.store.messages, mine.pk)
            self.begin(mine, workflow, entries, messages)
        if claimed:
            await self._requests()  # somebody may have wanted it to end while its journal was read
        return bool(claimed)

    def _whole_journal(self, run: int) -> list[Entry]:
        entries: list[Entry] = []
        while page := self.store.journal(run, after=entries[-1].seq if entries else 0):
            entries += page
        return entries

    def gone(self, life: Life) -> None:
        """A life has ended. A run that has not is wanted back."""
        if self.lives.get(life.id) is life:
            del self.lives[life.id]
        self._waits.pop(life.id, None)
        over = life.over
        if isinstance(over, Evicted) and over.cause is None and life.verdict is None:
            self.adopt(life.row, life.workflow)

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
        self.keep(self.loop.create_task(self.worker.enlist(instead_of=worker)))


def check_same(row: RunRow, call: Call[Any]) -> None:
    if (row.workflow, row.args) != (call.workflow.name, call.args):
        raise Conflict(
            row.id, f"{row.workflow}({row.args})"[:500], f"{call.workflow.name}({call.args})"[:500]
        )
