"""Provide `each` and `map` for sync programs and sync workflows: the async ones, blocking.

The items of a sync program are read in the thread that asks for them, never on Outlast's event
loop. So a generator may block, and may call Outlast itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from outlast.api import batch_in_workflow
from outlast.api.each import Each as AsyncEach
from outlast.api.item_source import FromIterable, total_of
from outlast.api.map import MapJob
from outlast.sync.context import _on_run_loop

if TYPE_CHECKING:
    from outlast.engine.execution_services import EngineServices
    from outlast.sync.portal import Portal

T = TypeVar("T")
R = TypeVar("R")


class Exchange(Generic[T]):
    """Make calls on the portal's loop whose items are read in the caller's thread.

    The caller's thread waits for the call and reads items on demand.
    """

    def __init__(self, portal: Portal, items: Iterable[T]) -> None:
        self._portal, self._items = portal, FromIterable(items)
        self._length = total_of(items)
        self._task: asyncio.Task[Any] | None = None
        self._wanted: asyncio.Future[int] | None = None
        self._given: asyncio.Future[list[T]] | None = None

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the number of items is not known.")
        return self._length

    # -- on the loop

    async def pull(self, count: int) -> list[T]:
        self._given = asyncio.get_running_loop().create_future()
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(count)
        return await self._given

    def close(self) -> None:
        pass

    async def _turn(
        self, make: Callable[[], Coroutine[Any, Any, Any]], reply: list[T] | Exception | None
    ) -> tuple[int, Any]:
        """Wait until the call is over or wants items. Return (0, result) or (count, None)."""
        self._wanted = asyncio.get_running_loop().create_future()
        if reply is None:
            self._task = asyncio.create_task(make())
        elif self._given is not None and not self._given.done():
            # The call still waits for this reply.
            if isinstance(reply, Exception):
                self._given.set_exception(reply)
            else:
                self._given.set_result(reply)
        assert self._task is not None
        try:
            await asyncio.wait([self._task, self._wanted], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        return (0, self._task.result()) if self._task.done() else (self._wanted.result(), None)

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # -- in the caller's thread

    def call(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        reply: list[T] | Exception | None = None
        while True:
            count, value = self._portal.call(self._turn, make, reply)
            if not count:
                return value
            try:
                reply = self._items.take(count)
            except Exception as error:
                reply = error
            except BaseException:
                self._portal.call(self._cancel)
                raise


def _exchange(portal: Portal, items: Iterable[T] | AsyncIterable[T]) -> tuple[Exchange[Any], Any]:
    """Return the exchange that makes the calls, and the source that the calls read items from."""
    if isinstance(items, AsyncIterable):
        return Exchange(portal, ()), items
    if not isinstance(items, Iterable):
        raise TypeError(f"items must be an iterable or an async iterable, not {items!r}.")
    exchange = Exchange(portal, items)
    return exchange, exchange


class Each(Iterator[T], Generic[T]):
    """The loop of `app.each` in a sync program."""

    def __init__(
        self,
        portal: Portal,
        services: EngineServices,
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None,
    ) -> None:
        self._exchange, pull = _exchange(portal, items)
        self._each: AsyncEach[T] = AsyncEach(services, pull, id=id, key=key)

    def __next__(self) -> T:
        self._each.thread = threading.get_ident()
        try:
            value: T = self._exchange.call(self._each.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return value

    def close(self) -> None:
        """Leave the loop and release its run. The current item is not done."""
        self._exchange._portal.call(self._each.aclose)


def map_in(
    portal: Portal,
    services: EngineServices,
    fn: Callable[[Any], Any],
    items: Iterable[Any] | AsyncIterable[Any],
    *,
    id: str,
    key: Callable[[Any], str] | None,
    concurrency: int | None,
) -> dict[str, Any]:
    exchange, pull = _exchange(portal, items)
    mapping: MapJob[Any] = MapJob(services, fn, pull, id=id, key=key, concurrency=concurrency)
    results: dict[str, Any] = exchange.call(mapping.results)
    return results


# -- in a sync workflow


def each(
    items: Iterable[T] | AsyncIterable[T], *, id: str = "", key: Callable[[T], str] | None = None
) -> Iterator[T]:
    """Iterate over items one by one, in a sync workflow.

    Each item is recorded as plain JSON when the loop gets it, so that later lives get the same
    items in the same order. New items come after them. The items are read where steps execute, on
    Outlast's event loop. `key` identifies an item; text and whole numbers are their own keys. `id`
    names the loop in the journal.
    """

    async def begin() -> Any:
        return batch_in_workflow.each(items, id=id, key=key)

    return InsideEach(_on_run_loop("each", begin))


class InsideEach(Iterator[T], Generic[T]):
    def __init__(self, each: batch_in_workflow.InsideEach[T]) -> None:
        self._each = each

    def __next__(self) -> T:
        try:
            return _on_run_loop("each", self._each.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


@overload
def map(
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T] | AsyncIterable[T],
    *,
    id: str = "",
    key: Callable[[T], str] | None = None,
    concurrency: int | None = None,
) -> dict[str, R]: ...
@overload
def map(
    fn: Callable[[T], R],
    items: Iterable[T] | AsyncIterable[T],
    *,
    id: str = "",
    key: Callable[[T], str] | None = None,
    concurrency: int | None = None,
) -> dict[str, R]: ...
def map(
    fn: Callable[[Any], Any],
    items: Iterable[Any] | AsyncIterable[Any],
    *,
    id: str = "",
    key: Callable[[Any], str] | None = None,
    concurrency: int | None = None,
) -> dict[str, Any]:
    """Call a function for every item, as one step of a sync workflow.

    The result is a dict by item key. At most `concurrency` threads call the function at once.
    Results are recorded item by item: when the step is repeated, only the remaining items are
    processed.
    """

    def make() -> Coroutine[Any, Any, dict[str, Any]]:
        return batch_in_workflow.map(fn, items, id=id, key=key, concurrency=concurrency)

    return _on_run_loop("map", make)


__all__ = ["Each", "each", "map", "map_in"]
