"""Define queues of plain work items, with the leases, fences, elevation and dead letters of runs.

An item is a run without a workflow. Its id in the store is its queue's name, a slash, and its own
id.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from outlast.api.item import Item
from outlast.api.step import StepBase
from outlast.api.workflow import Workflow
from outlast.codec import plain_json
from outlast.codec.identifiers import new_ids
from outlast.engine.item_submission import put_items
from outlast.engine.queue_limits import UNCHANGED, limits_command
from outlast.errors import SettingsError

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

Handler = Callable[[Item], Awaitable[Any] | Any]


class Queue:
    """A queue of plain items: `await app.queue("emails").put({"to": "ann"})`."""

    def __init__(self, engine: Callable[[], Engine], name: str) -> None:
        self._open = engine
        self.name = name

    async def put(
        self,
        payload: Any,
        *,
        id: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        key: str | None = None,
        by: str | None = None,
    ) -> str:
        """Put an item and return its id. It is durable when this returns.

        The id is an idempotency key until some time after its ack. Raise Backpressure if the queue
        is full and has no room within `wait` seconds, Draining if this process is draining, and
        Conflict if the id is in the queue with another payload. Items with different
        keys take turns, and the limits per key of `limit` apply. `by` is recorded as who put it.
        """
        ids = None if id is None else [id]
        keys = None if key is None else [key]
        names = await self.put_many(
            [payload], ids=ids, priority=priority, delay=delay, wait=wait, keys=keys, by=by
        )
        return names[0]

    async def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        keys: Iterable[str | None] | None = None,
        by: str | None = None,
    ) -> list[str]:
        """Put several items in one commit, all of them or none, and return their ids.

        `keys` has the key of each item, or None for an item without one.
        """
        texts = [plain_json.encode(payload) for payload in payloads]
        names = new_ids(len(texts)) if ids is None else list(ids)
        await put_items(
            self._open(),
            self.name,
            texts,
            names,
            priority=priority,
            delay=delay,
            wait=wait,
            keys=keys,
            by=by,
        )
        return names

    async def claim(self, *, wait: float = 0.0) -> Item | None:
        """Claim the next item and return it, or None if there is none within `wait` seconds.

        Ack or nack the item when it is processed. Raise Draining if this process is draining.
        """
        return await self._open().items.claim(self.name, Item, wait)

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
        concurrency = concurrency or engine.settings.concurrency
        await engine.items.consume(self.name, fn, Item, concurrency)

    async def size(self) -> int:
        """Return how many items and runs are ready.

        Delayed ones and those in progress do not count.
        """
        engine = self._open()
        return await engine.client.read(engine.store.depth, self.name)

    async def limit(
        self,
        *,
        depth: int | None = UNCHANGED,
        concurrency: int | None = UNCHANGED,
        per_key_concurrency: int | None = UNCHANGED,
        per_key_rate: str | None = UNCHANGED,
    ) -> None:
        """Set the queue's own limits, across all processes.

        `depth` limits how many may be queued, `concurrency` how many may execute at once. Of the
        runs with the same key, at most `per_key_concurrency` execute at once, and at most the
        `per_key_rate`, such as "100/1m", start in any such period. None removes a limit. A limit
        that is not named stays.
        """
        command = limits_command(
            self.name,
            depth=depth,
            concurrency=concurrency,
            per_key_concurrency=per_key_concurrency,
            per_key_rate=per_key_rate,
        )
        await self._open().writer.execute(command)

    async def pause(self) -> None:
        """Stop claiming from the queue, in all processes. Runs already executing continue."""
        await self._set_paused(paused=True)

    async def resume(self) -> None:
        """Claim from the queue again, within its limits."""
        await self._set_paused(paused=False)

    async def _set_paused(self, *, paused: bool) -> None:
        await self._open().writer.execute(limits_command(self.name, paused=paused))

    def __repr__(self) -> str:
        return f"<queue {self.name!r}>"


def check_handler(fn: Any) -> None:
    """Raise TypeError for an invalid handler.

    With such a handler every item would fail, or be acked with nothing done.
    """
    if isinstance(fn, (StepBase, Workflow)):
        raise TypeError(
            f"consume() takes a plain function of the item, not {fn!r}: that belongs to a run. "
            f"Pass its function, {fn.name}.fn, or start a run in a function."
        )
    if not callable(fn):
        raise TypeError(f"consume() takes a function of the item, not {fn!r}.")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"consume() takes a function that does its work when it is called, not {fn!r}, "
            "which yields."
        )
