"""Plain work items: a queue of payloads, with the leases, fences, elevation and dead letters of runs.

An item is a run without a workflow. Its id in the store is its queue's name, a slash, and its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.app.claimer import Claimer
from outlast.app.submission import enqueue
from outlast.errors import Conflict, Draining, LeaseLost, OutlastError, StoreError
from outlast.store.rows import RunRow
from outlast.store.verbs import ITEM, Ack, Claim, Limit, Refused, Release, Submit
from outlast.values import plain
from outlast.values.names import check_id

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.items")

Handler = Callable[["Item"], Awaitable[Any] | Any]
UNCHANGED: Any = object()
DELAY_MAX = 300.0
"""The longest pause before an item that failed is tried again, unless `nack` names one."""


class Item:
    """An item in hand. It is this worker's until it is acked, nacked, or the worker is taken for dead."""

    def __init__(self, house: House, row: RunRow) -> None:
        self._house, self._row = house, row

    @property
    def id(self) -> str:
        """What `put` returned."""
        return self._row.id[len(self._row.queue) + 1 :]

    @property
    def queue(self) -> str:
        return self._row.queue

    @property
    def payload(self) -> Any:
        """What was put, as plain JSON."""
        return plain.decode(self._row.args)

    @property
    def attempts(self) -> int:
        """Which attempt this is, from 1. Interruptions do not count."""
        return 1 + self._row.failures + self._row.deaths

    @property
    def fence(self) -> int:
        """The number of this claim: it only grows. Hand it to outside systems, so that they can refuse an older one."""
        return self._row.fence

    async def ack(self) -> None:
        """It is done. LeaseLost if it is another worker's by now."""
        await self._say(Ack(self._row.pk, self._row.fence, self._row.queue))
        self._house.room.acked = True

    async def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """It failed: again after `delay` seconds (by default longer after each failure), or a dead letter after `max_attempts`."""
        outcome = await self._say(self._failed(delay, reason))
        if outcome == "dead":
            self._house.tell("dead", self._row.id)

    def _failed(self, delay: float | None, reason: str) -> Release:
        pause = min(2.0 ** min(self._row.failures, 60), DELAY_MAX) if delay is None else delay
        text = reason[: self._house.settings.error_text_max] or "nacked"
        return Release(self._row.pk, self._row.fence, text, delay=pause, interrupted=False, failed=True)

    async def _say(self, verb: Ack | Release) -> Any:
        outcome = await self._house.writer.ask(verb)
        self._house.room.items.discard(self._row.id)
        self._house.room.leave(self._row.id)
        if isinstance(outcome, Refused):
            raise LeaseLost(f"item {self.id!r} of queue {self.queue!r} is another worker's by now.")
        return outcome

    def __repr__(self) -> str:
        return f"<item {self.id!r} of {self.queue!r}, attempt {self.attempts}>"


class Queue:
    """A queue of plain items: `await app.queue("emails").put({"to": "ann"})`."""

    def __init__(self, house: Callable[[], House], name: str) -> None:
        self._open, self.name = house, name

    async def put(
        self, payload: Any, *, id: str | None = None, priority: int = 0, delay: float = 0.0, wait: float = 0.0
    ) -> str:
        """Put an item, durable when this returns. Its id, which is an idempotency key until a while after its ack.

        Backpressure if the queue is full, unless there is room within `wait` seconds. Draining if this process is on its
        way out. Conflict if the id is in the queue with another payload.
        """
        ids = None if id is None else [id]
        return (await self.put_many([payload], ids=ids, priority=priority, delay=delay, wait=wait))[0]

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
    ) -> list[str]:
        """Put several items in one commit: all of them or none."""
        house = self._open()
        if house.draining:
            raise Draining(
                f"this process is on its way out: nothing is put into queue {self.name!r}. Put it from another one."
            )
        texts = [plain.encode(payload) for payload in payloads]
        names = [secrets.token_hex(16) for _ in texts] if ids is None else list(ids)
        if len(names) != len(texts):
            raise ValueError(f"{len(texts)} payloads need as many ids, not {len(names)}.")
        verbs: list[Submit] = []
        for name, text in zip(names, texts, strict=True):
            house.check_size(text, f"the payload of item {name!r}")
            id = self._id(house, name)
            verbs.append(house.new(id, ITEM, text, queue=self.name, priority=priority, delay=delay))
        outcomes = await enqueue(house, verbs, wait)
        for verb, outcome in zip(verbs, outcomes, strict=True):
            row = outcome.row
            if row is not None and (row.workflow, row.args) != (ITEM, verb.args):
                raise Conflict(verb.id, f"{row.workflow}({row.args})"[:500], f"item {verb.args}"[:500])
        return names

    async def claim(self, *, wait: float = 0.0) -> Item | None:
        """The next item, or None if there is none within `wait` seconds. Ack it or nack it."""
        house = self._open()
        until = house.loop.time() + wait
        house.sweep_too()
        while not house.draining:
            seen = house.changes.count
            row = await asyncio.shield(house.keep(house.loop.create_task(self._claim_one(house)), quiet=True))
            if row is not None:
                house.room.items.add(row.id)
                if row.deaths_in_a_row:
                    house.room.take(row.id)
                return Item(house, row)
            left = until - house.loop.time()
            if left <= 0:
                return None
            outlook = await house.read(house.store.look, (self.name,), (ITEM,))
            due = [] if outlook.next_due is None else [max(0.0, outlook.next_due - house.store.now())]
            await house.changes.next(min([left, house.settings.poll, *due]), seen)
        raise Draining(f"this process is on its way out: nothing is claimed from queue {self.name!r}.")

    async def _claim_one(self, house: House) -> RunRow | None:
        """Whoever asked may be gone by then: the sweeper gives back what nobody has in hand."""
        worker = house.worker.id
        suspects = house.room.is_empty()
        for suspect in (False, True) if suspects else (False,):
            verb = Claim(worker, secrets.token_hex(8), (), (self.name,), (ITEM,), suspects=suspect)
            rows: list[RunRow] | Refused = await house.writer.ask(verb)
            if isinstance(rows, Refused):
                await house.worker.enlist(instead_of=worker)
                return None
            if rows:
                return rows[0]
        return None

    async def consume(self, fn: Handler, *, concurrency: int | None = None) -> None:
        """Call `fn(item)` for every item, `concurrency` at once (by default the setting), until cancelled or Outlast is closed.

        An item is acked when `fn` returns and nacked when it raises, unless it did so itself. A plain function is called
        in a thread. Items under way when this ends are given back, ahead of new ones.
        """
        house = self._open()
        await Consumer(house, self.name, fn, concurrency or house.settings.concurrency).work()

    async def size(self) -> int:
        """How many items (and runs) are queued here, due or not; those in somebody's hands are not counted."""
        house = self._open()
        return await house.read(house.store.depth, self.name)

    async def limit(self, *, depth: int | None = UNCHANGED, concurrency: int | None = UNCHANGED) -> None:
        """Give the queue limits of its own, over all processes: how many may be queued, how many may execute at once. None takes
        a limit away; one that is not named stays."""
        house = self._open()
        now = next((row for row in await house.read(house.store.queues) if row.name == self.name), None)
        if depth is UNCHANGED:
            depth = now.depth_max if now else None
        if concurrency is UNCHANGED:
            concurrency = now.concurrency_max if now else None
        for what, limit in (("depth", depth), ("concurrency", concurrency)):
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise ValueError(f"{what}={limit!r} must be a whole number from 1, or None for no limit.")
        await house.writer.ask(Limit(self.name, depth, concurrency))

    def _id(self, house: House, id: str) -> str:
        check_id(id, house.settings.id_length_max, "item id")
        return check_id(f"{self.name}/{id}", house.settings.id_length_max, "item id with its queue's name")

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"


class Consumer:
    """One `consume`: a claimer whose rows become calls of a handler."""

    def __init__(self, house: House, queue: str, fn: Handler, concurrency: int) -> None:
        self._house, self._fn = house, fn
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._tasks: dict[asyncio.Task[None], RunRow] = {}
        self._ended: list[tuple[Item, Ack | Release]] = []
        """What is to be said of items: together with the next claim, in one commit."""
        self.claimer = Claimer(house, (queue,), lambda: (ITEM,), concurrency, self._begin, self._say)
        self.ended: asyncio.Future[None] = house.loop.create_future()
        """Done when nothing is in hand any more, or will not end."""

    async def work(self) -> None:
        house = self._house
        house.consumers.add(self)
        house.sweep_too()
        try:
            await self.claimer.work()
        finally:
            self.claimer.stop()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks), timeout=house.settings.close_timeout)
            self._say()
            house.consumers.discard(self)
            for row in self._tasks.values():
                house.hung.add(row.id)  # a thread that still executes: it must not be given to anybody yet
            self.ended.set_result(None)

    def stop(self) -> None:
        self.claimer.stop()

    def lost(self, worker: str) -> None:
        """The worker was taken for dead: its items are others' by now."""
        for task, row in self._tasks.items():
            if row.worker == worker:
                task.cancel()

    async def _begin(self, rows: list[RunRow]) -> None:
        for row in rows:
            self._house.room.items.add(row.id)
            task = self._house.loop.create_task(self._handle(row))
            self._tasks[task] = row
            task.add_done_callback(partial(self._tasks.pop))

    async def _handle(self, row: RunRow) -> None:
        house, item = self._house, Item(self._house, row)
        verb: Ack | Release = Ack(row.pk, row.fence, row.queue)
        try:
            if self._is_async:
                await self._fn(item)
            else:
                await self._in_thread(item)
        except asyncio.CancelledError:
            verb = Release(row.pk, row.fence, "its consumer stopped")
        except Exception as error:
            log.warning(
                "item %s failed, attempt %d",
                item.id,
                item.attempts,
                exc_info=error,
                extra={"queue": item.queue},
            )
            verb = item._failed(None, repr(error))
        if row.id in house.room.items:  # not acked or nacked by the handler itself
            self._ended.append((item, verb))
            house.room.leave(row.id)
        self.claimer.done(row.id)

    def _say(self) -> None:
        ended, self._ended = self._ended, []
        for item, verb in ended:
            self._house.room.items.discard(item._row.id)
            self._house.writer.put(verb, partial(self._said, item))

    async def _in_thread(self, item: Item) -> None:
        """A thread cannot be cancelled: the item stays in hand until it has ended."""
        house = self._house
        thread = house.pool.run(house.loop, copy_context(), self._fn, item)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait([thread])
            raise

    def _said(self, item: Item, verb: Any, outcome: Any) -> None:
        house = self._house
        if isinstance(verb, Ack):
            house.room.acked = True
        if outcome == "dead":
            house.tell("dead", item._row.id)
        elif isinstance(outcome, (Refused, StoreError)):
            what = OutlastError(str(outcome))
            log.error("what became of item %s could not be written: %s", item.id, what)
