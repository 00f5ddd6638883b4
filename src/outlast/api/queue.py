"""Define queues of plain work items, with the leases, fences, elevation and dead letters of runs.

An item is a run without a workflow. Its id in the store is its queue's name, a slash, and its own
id.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.api.step import StepBase
from outlast.api.workflow import Workflow
from outlast.codec import plain
from outlast.codec.identifiers import check_id, new_ids
from outlast.engine.claimer import Claimer
from outlast.engine.in_flight import HeldState
from outlast.engine.submission import check_seconds, enqueue
from outlast.errors import Conflict, Draining, LeaseLost, SettingsError, StoreError, WrongStatus
from outlast.store.commands import ITEM, Ack, Claim, Refused, Release, SetQueueLimits, Submit
from outlast.store.rows import RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast.items")

Handler = Callable[["Item"], Awaitable[Any] | Any]
UNCHANGED: Any = object()
LOOK_SECONDS = 0.25
"""Seconds between polls while an item is there but cannot be claimed yet."""
DELAY_MAX = 300.0
"""The longest pause before a failed item is tried again, unless `nack` names one."""


class Item:
    """A claimed item.

    This worker holds it until it is acked or nacked, or the worker is declared dead.
    """

    def __init__(self, engine: Engine, row: RunRow, *, by_hand: bool = False) -> None:
        self._engine, self._row = engine, row
        self._by_hand = by_hand
        """Whether the program claimed it itself. Otherwise a consumer's handler processes it."""
        self._said = False
        """Whether it was acked or nacked, or is known to belong to another worker."""
        self._unheard = 0
        """The number of acks and nacks submitted but not yet answered."""
        self._lost = self._over = False
        """Whether it is known to belong to another worker; whether its handler has ended."""

    @property
    def id(self) -> str:
        """Return the id that `put` returned."""
        return self._row.id[len(self._row.queue) + 1 :]

    @property
    def queue(self) -> str:
        """Return the name of the queue that it was put into."""
        return self._row.queue

    @property
    def payload(self) -> Any:
        """Return the payload as plain JSON."""
        return plain.decode(self._row.args)

    @property
    def attempts(self) -> int:
        """Return the number of this attempt, from 1. Interruptions do not count."""
        return 1 + self._row.failures + self._row.deaths

    @property
    def fence(self) -> int:
        """Return the number of this claim. It only grows.

        Hand it to outside systems so that they can refuse an older one.
        """
        return self._row.fence

    async def ack(self) -> None:
        """Report the item as done. Raise LeaseLost if another worker has it by now."""
        await self._say(Ack(self._row.pk, self._row.fence, self._row.queue))

    async def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Report the item as failed.

        It is tried again after `delay` seconds (by default longer after each failure), or becomes a
        dead letter after `max_attempts`. Raise WrongStatus if it was acked or nacked already, and
        LeaseLost if another worker has it by now.
        """
        if delay is not None:
            check_seconds("delay", delay)
        await self._say(self._failed(delay, reason))

    def _failed(self, delay: float | None, reason: str) -> Release:
        pause = min(2.0 ** min(self._row.failures, 60), DELAY_MAX) if delay is None else delay
        text = reason[: self._engine.settings.error_text_max] or "nacked"
        return Release(
            self._row.pk, self._row.fence, text, delay=pause, interrupted=False, failed=True
        )

    async def _say(self, command: Ack | Release) -> None:
        if self._is_said and not self._lost and isinstance(command, Release):
            raise WrongStatus(
                f"item {self.id!r} of queue {self.queue!r} was acked or nacked already."
            )
        answer: asyncio.Future[Any] = self._engine.loop.create_future()

        def heard(_: Any, outcome: Any) -> None:
            self._unheard -= 1
            if not isinstance(outcome, StoreError):
                self._heard(command, outcome)
            elif self._over and not self._unheard:
                # The handler has ended: nothing acks or nacks the item again.
                self._engine.in_flight.drop(self._row.fence)
            if answer.done():
                # The caller was cancelled. The command is in effect all the same.
                return
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self._unheard += 1
        self._engine.writer.enqueue(command, heard)
        if isinstance(await answer, Refused):
            raise LeaseLost(f"item {self.id!r} of queue {self.queue!r} is another worker's by now.")

    @property
    def _is_said(self) -> bool:
        return self._said or self._unheard > 0

    def _heard(self, command: Ack | Release, outcome: Any) -> None:
        engine, fence = self._engine, self._row.fence
        again, self._said = self._said, True
        state = engine.in_flight.state(fence)
        if self._by_hand or self._over:
            engine.in_flight.drop(fence)
        elif state is not HeldState.HUNG:
            # Its handler goes on, and keeps its slot.
            engine.in_flight.ending(fence)
        if state is HeldState.BY_HAND and engine.shutdown.begun:
            engine.listener.item_ended(released=False)
        if not again:
            engine.meters.item(self.queue, _end_of(command, outcome))
        if isinstance(outcome, Refused):
            self._lost = True
        elif isinstance(command, Ack):
            engine.sweeper.item_acked()
        elif outcome == "dead":
            engine.hooks.tell("dead", self._row.id)

    def __repr__(self) -> str:
        return f"<item {self.id!r} of {self.queue!r}, attempt {self.attempts}>"


class Queue:
    """A queue of plain items: `await app.queue("emails").put({"to": "ann"})`."""

    def __init__(self, engine: Callable[[], Engine], name: str) -> None:
        self._open, self.name = engine, name

    async def put(
        self,
        payload: Any,
        *,
        id: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
    ) -> str:
        """Put an item and return its id. It is durable when this returns.

        The id is an idempotency key until some time after its ack. Raise Backpressure if the queue
        is full and has no room within `wait` seconds, Draining if this process is draining, and
        Conflict if the id is in the queue with another payload.
        """
        ids = None if id is None else [id]
        return (await self.put_many([payload], ids=ids, priority=priority, delay=delay, wait=wait))[
            0
        ]

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
    ) -> list[str]:
        """Put several items in one commit, all of them or none, and return their ids."""
        engine = self._open()
        if engine.shutdown.begun:
            raise Draining(
                f"this process is on its way out: nothing is put into queue {self.name!r}. Put it from another one."
            )
        texts = [plain.encode(payload) for payload in payloads]
        names = new_ids(len(texts)) if ids is None else list(ids)
        if len(names) != len(texts):
            raise ValueError(f"{len(texts)} payloads need as many ids, not {len(names)}.")
        commands: list[Submit] = []
        for name, text in zip(names, texts, strict=True):
            engine.check_size(text, f"the payload of item {name!r}")
            id = self._id(engine, name)
            commands.append(
                engine.build_submit(id, ITEM, text, queue=self.name, priority=priority, delay=delay)
            )
        outcomes = await enqueue(engine, commands, wait)
        for command, outcome in zip(commands, outcomes, strict=True):
            row = outcome.row
            if row is not None and (row.workflow, row.args) != (ITEM, command.args):
                there = (
                    f"item {row.args}" if row.workflow == ITEM else f"{row.workflow}({row.args})"
                )
                raise Conflict(command.id, there[:500], f"item {command.args}"[:500])
        return names

    async def claim(self, *, wait: float = 0.0) -> Item | None:
        """Claim the next item and return it, or None if there is none within `wait` seconds.

        Ack or nack the item when it is processed. Raise Draining if this process is draining.
        """
        engine = self._open()
        until = engine.loop.time() + wait
        engine.start_sweeping()
        while not engine.shutdown.begun:
            seen = engine.notifier.count
            try:
                row = await self._claim_one(engine)
                alive = row is not None and engine.worker.is_alive(row.worker or "")
                if row is not None and alive and engine.in_flight.start(row.fence, by_hand=True):
                    return Item(engine, row, by_hand=True)
                if row is not None:
                    engine.acquirer.release(row, "its worker was taken for dead or drains")
                    if not alive:
                        # Wait until the worker is registered again.
                        await asyncio.sleep(LOOK_SECONDS)
                    continue
                left = until - engine.loop.time()
                if left <= 0:
                    return None
                claimable = await engine.read(engine.store.peek, (self.name,), (ITEM,))
            except StoreError:
                if engine.shutdown.begun:
                    break
                raise
            pause = [left, engine.settings.poll]
            if claimable.next_due is not None:
                pause.append(max(0.0, claimable.next_due - engine.store.now()))
            # An item came in between, or must wait until it can be claimed.
            if claimable.ready or claimable.suspect:
                pause.append(0.0 if claimable.overdue else LOOK_SECONDS)
            if min(pause) > 0:
                await engine.notifier.wait(min(pause), seen)
        raise Draining(
            f"this process is on its way out: nothing is claimed from queue {self.name!r}."
        )

    async def _claim_one(self, engine: Engine) -> RunRow | None:
        for suspects in (False, True):
            if engine.isolation.suspends_claims or (suspects and not engine.in_flight.is_empty()):
                return None
            worker, token = engine.worker.id, secrets.token_hex(8)
            command = Claim(worker, token, (), (self.name,), (ITEM,), suspects=suspects)
            rows = await engine.acquirer.claim(command, alone=suspects)
            if rows:
                return rows[0]
        return None

    async def consume(self, fn: Handler, *, concurrency: int | None = None) -> None:
        """Call `fn(item)` for every item until this is cancelled or Outlast is closed.

        At most `concurrency` calls run at once (by default the setting). An item is acked when `fn`
        returns and nacked when it raises, unless `fn` did so itself. A plain function is called in
        a thread. Items in flight when this ends are released, ahead of new ones.
        """
        engine = self._open()
        check_handler(fn)
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise SettingsError(f"concurrency={concurrency!r} must be a whole number from 1.")
        await Consumer(engine, self.name, fn, concurrency or engine.settings.concurrency).work()

    async def size(self) -> int:
        """Return how many items and runs are ready.

        Delayed ones and those in progress do not count.
        """
        engine = self._open()
        return await engine.read(engine.store.depth, self.name)

    async def limit(
        self, *, depth: int | None = UNCHANGED, concurrency: int | None = UNCHANGED
    ) -> None:
        """Set the queue's own limits, across all processes.

        `depth` limits how many may be queued, `concurrency` how many may execute at once. None
        removes a limit. A limit that is not named stays.
        """
        engine = self._open()
        given = {"depth": depth, "concurrency": concurrency}
        kept = [what for what, limit in given.items() if limit is UNCHANGED]
        given |= dict.fromkeys(kept)
        for what, limit in given.items():
            if limit is not None and (type(limit) is not int or limit < 1):
                raise ValueError(
                    f"{what}={limit!r} must be a whole number from 1, or None for no limit."
                )
        keeps = ("depth" in kept, "concurrency" in kept)
        await engine.writer.execute(
            SetQueueLimits(self.name, given["depth"], given["concurrency"], *keeps)
        )

    def _id(self, engine: Engine, id: str) -> str:
        check_id(id, engine.settings.id_length_max, "item id")
        return check_id(
            f"{self.name}/{id}", engine.settings.id_length_max, "item id with its queue's name"
        )

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"


def check_handler(fn: Any) -> None:
    """Raise TypeError for an invalid handler.

    With such a handler every item would fail, or be acked with nothing done.
    """
    if isinstance(fn, (StepBase, Workflow)):
        raise TypeError(
            f"consume() takes a plain function of the item, not {fn!r}: that belongs to a run. Take its function, {fn.name}.fn, or start a run in a function."
        )
    if not callable(fn):
        raise TypeError(f"consume() takes a function of the item, not {fn!r}.")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"consume() takes a function that does its work when it is called, not {fn!r}, which yields."
        )


class Consumer:
    """One `consume` call: a claimer whose rows become calls of a handler."""

    def __init__(self, engine: Engine, queue: str, fn: Handler, concurrency: int) -> None:
        self._engine, self._fn = engine, fn
        self._is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._tasks: dict[asyncio.Task[None], Item] = {}
        self._commands: list[tuple[Item, Ack | Release]] = []
        """Acks and releases to submit, in one commit with the next claim."""
        self._unheard, self._all_heard = 0, asyncio.Event()
        """The number of acks and releases that are not answered yet; set once all are."""
        self._claiming = True
        self.claimer = Claimer(
            engine, (queue,), lambda: (ITEM,), concurrency, self._begin, self._say
        )

    async def work(self) -> None:
        engine = self._engine
        engine.consumers.add(self)
        engine.meters.begin(self.claimer.queues)
        engine.start_sweeping()
        try:
            await self.claimer.work()
            while (
                engine.shutdown.begun
                and not engine.shutdown.closing
                and self._tasks
                and self._claiming
            ):
                # A drain lets the handlers end.
                await asyncio.wait(list(self._tasks))
        finally:
            await self.close(engine.shutdown.close_seconds)

    @property
    def under_way(self) -> list[str]:
        """Return the ids of the items whose handlers have not ended."""
        return [item._row.id for item in list(self._tasks.values())]

    def stop_all(self) -> None:
        """Stop every handler.

        From here on each item is released as soon as its handler has ended.
        """
        self.claimer.stop()
        self._claiming = False
        for task in self._tasks:
            task.cancel()
        self._say()

    async def close(self, timeout: float) -> list[RunRow]:
        """Stop and return the items that still execute after `timeout` seconds."""
        self.stop_all()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout)
        if self._unheard:
            # An item may be a dead letter by now: its hook is called before the app is left.
            self._all_heard.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._all_heard.wait()
        return [item._row for item in self._tasks.values()]

    def stop(self) -> None:
        """Stop claiming and let the handlers in flight end.

        Submit the outcomes of ended handlers now: there is no next claim to commit them with.
        """
        self.claimer.stop()
        self._say()

    def lost(self, worker: str) -> None:
        """Cancel the handlers of a worker that was declared dead: it no longer owns its items."""
        for task, item in self._tasks.items():
            if item._row.worker == worker:
                item._said = item._lost = True
                self._engine.meters.item(item.queue, "lost")
                task.cancel()

    async def _begin(self, rows: list[RunRow]) -> None:
        for row in rows:
            mine = self._engine.worker.is_alive(row.worker or "") and self._claiming
            if not mine or not self._engine.in_flight.start(row.fence):
                self._engine.acquirer.release(
                    row, "its worker was taken for dead or drains, or its consumer stopped"
                )
                continue
            item = Item(self._engine, row)
            task = self._engine.loop.create_task(self._handle(item))
            self._tasks[task] = item
            task.add_done_callback(self._over)

    async def _handle(self, item: Item) -> None:
        if self._is_async:
            await self._fn(item)
            return
        # A thread cannot be cancelled: the item stays in flight until its thread has ended.
        thread = self._engine.pool.run(self._engine.loop, copy_context(), self._fn, item)
        cancelled: asyncio.CancelledError | None = None
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError as error:
                cancelled = error
        # The work was done before anything could stop it.
        answer = thread.result()
        # A lambda around a coroutine function returns an awaitable.
        if inspect.isawaitable(answer):
            if cancelled is not None:
                if inspect.iscoroutine(answer):
                    answer.close()
                raise cancelled
            await answer

    def _over(self, task: asyncio.Task[None]) -> None:
        """Record a handler's outcome and free its slot."""
        item = self._tasks.pop(task)
        row = item._row
        try:
            error = task.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        # A handler that raises a CancelledError of its own, as from something that it awaited, has
        # failed.
        told = isinstance(error, asyncio.CancelledError) and task.cancelling() > 0
        stopped = told or (isinstance(error, Draining) and self._engine.shutdown.begun)
        item._over = True
        if not item._is_said:
            if stopped:
                command: Ack | Release = Release(row.pk, row.fence, "its consumer stopped")
            elif error is not None:
                facts, redacted = (
                    self._engine.log_fields(row, attempt=item.attempts),
                    self._engine.redact_exception(error),
                )
                log.warning(
                    "item %s failed, attempt %d",
                    item.id,
                    item.attempts,
                    exc_info=redacted,
                    extra=facts,
                )
                command = item._failed(None, repr(error))
            else:
                command = Ack(row.pk, row.fence, row.queue)
            self._commands.append((item, command))
        elif item._unheard:
            self._engine.in_flight.ending(row.fence)
        else:
            self._engine.in_flight.drop(row.fence)
        self._engine.in_flight.release_slot(row.fence)
        if self._engine.shutdown.begun:
            self._engine.listener.item_ended(released=stopped)
        if not self._claiming or self._engine.shutdown.begun:
            self._say()

    def _strike_off(self) -> None:
        """Deregister this consumer once it is stopped, executes nothing and has all its answers."""
        if not self._claiming and not self._tasks and not self._unheard:
            self._engine.consumers.discard(self)

    def _say(self) -> None:
        commands, self._commands = self._commands, []
        for item, command in commands:
            item._said = True
            self._unheard += 1
            self._engine.writer.enqueue(command, partial(self._heard, item))
            self._engine.in_flight.ending(item._row.fence)
        self._strike_off()

    def _heard(self, item: Item, command: Any, outcome: Any) -> None:
        engine = self._engine
        engine.in_flight.drop(item._row.fence)
        self._unheard -= 1
        if not self._unheard:
            self._all_heard.set()
            self._strike_off()
        engine.meters.item(item.queue, _end_of(command, outcome))
        if isinstance(command, Ack):
            engine.sweeper.item_acked()
        if outcome == "dead":
            engine.hooks.tell("dead", item._row.id)
        elif isinstance(outcome, (Refused, StoreError)):
            facts = engine.log_fields(item._row)
            log.error(
                "what became of item %s could not be written: %s", item.id, outcome, extra=facts
            )


def _end_of(command: Ack | Release, outcome: Any) -> str:
    """Return an item's outcome, for the metrics."""
    if isinstance(outcome, (Refused, StoreError)):
        return "lost"
    if isinstance(command, Ack):
        return "acked"
    return "nacked" if command.failed else "given_back"
