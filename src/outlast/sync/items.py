"""Define queues of plain items for sync programs: the async ones, called through the portal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from outlast.api import queue as core
from outlast.api.map import is_async
from outlast.engine.queue_limits import UNCHANGED

if TYPE_CHECKING:
    from outlast.api.item import Item as AsyncItem
    from outlast.sync.portal import Portal


class Item:
    """A claimed item.

    This worker holds it until it is acked or nacked, or the worker is declared dead.
    """

    def __init__(self, portal: Portal, item: AsyncItem) -> None:
        self._portal = portal
        self._item = item

    @property
    def id(self) -> str:
        """Return the id that `put` returned."""
        return self._item.id

    @property
    def queue(self) -> str:
        return self._item.queue

    @property
    def payload(self) -> Any:
        """Return the payload as plain JSON."""
        return self._item.payload

    @property
    def attempts(self) -> int:
        """Return the number of this attempt, from 1. Interruptions do not count."""
        return self._item.attempts

    @property
    def fence(self) -> int:
        """Return the number of this claim. It only grows."""
        return self._item.fence

    def ack(self) -> None:
        """Report the item as done. Raise LeaseLost if another worker has it by now."""
        self._portal.call(self._item.ack)

    def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Report the item as failed.

        It is tried again after `delay` seconds (by default longer after each failure), or becomes a
        dead letter after `max_attempts`. Raise LeaseLost if another worker has it by now.
        """
        self._portal.call(self._item.nack, delay=delay, reason=reason)

    def __repr__(self) -> str:
        return repr(self._item)


class Queue:
    """A queue of plain items: `app.queue("emails").put({"to": "ann"})`.

    Its methods are those of the async queue.
    """

    def __init__(self, portal: Portal, queue: core.Queue) -> None:
        self._portal, self._queue, self.name = portal, queue, queue.name

    def put(
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

        The id is an idempotency key until some time after its ack. Items with different keys take
        turns. `by` is recorded as who put it.
        """
        return self._portal.call(
            self._queue.put,
            payload,
            id=id,
            priority=priority,
            delay=delay,
            wait=wait,
            key=key,
            by=by,
        )

    def put_many(
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
        """Put several items in one commit, all of them or none, and return their ids."""
        return self._portal.call(
            self._queue.put_many,
            payloads,
            ids=ids,
            priority=priority,
            delay=delay,
            wait=wait,
            keys=keys,
            by=by,
        )

    def claim(self, *, wait: float = 0.0) -> Item | None:
        """Claim the next item and return it, or None if there is none within `wait` seconds.

        Ack or nack the item when it is processed.
        """
        item = self._portal.call(self._queue.claim, wait=wait)
        return None if item is None else Item(self._portal, item)

    def consume(self, fn: Callable[[Item], Any], *, concurrency: int | None = None) -> None:
        """Call `fn(item)` for every item, in threads, until Outlast is closed from elsewhere.

        At most `concurrency` calls run at once (by default the setting). An item is acked when `fn`
        returns and nacked when it raises, unless `fn` did so itself.
        """
        core.check_handler(fn)
        wrong = (
            f"consume() of a sync program takes a plain function, not {fn!r}, which is async: "
            "`from outlast import Outlast`."
        )
        if is_async(fn):
            raise TypeError(wrong)

        def handle(item: AsyncItem) -> None:
            answer = fn(Item(self._portal, item))
            if inspect.isawaitable(answer):
                # A lambda around a coroutine function returns one. Nothing awaits it here.
                if inspect.iscoroutine(answer):
                    answer.close()
                raise TypeError(wrong)

        self._portal.call(self._queue.consume, handle, concurrency=concurrency)

    def size(self) -> int:
        """Return how many items and runs are ready.

        Delayed ones and those in progress do not count.
        """
        return self._portal.call(self._queue.size)

    def limit(
        self,
        *,
        depth: int | None = UNCHANGED,
        concurrency: int | None = UNCHANGED,
        per_key_concurrency: int | None = UNCHANGED,
        per_key_rate: str | None = UNCHANGED,
    ) -> None:
        """Set the queue's own limits, across all processes.

        None removes a limit. A limit that is not named stays.
        """
        self._portal.call(
            self._queue.limit,
            depth=depth,
            concurrency=concurrency,
            per_key_concurrency=per_key_concurrency,
            per_key_rate=per_key_rate,
        )

    def pause(self) -> None:
        """Stop claiming from the queue, in all processes. Runs already executing continue."""
        self._portal.call(self._queue.pause)

    def resume(self) -> None:
        """Claim from the queue again, within its limits."""
        self._portal.call(self._queue.resume)

    def __repr__(self) -> str:
        return repr(self._queue)
