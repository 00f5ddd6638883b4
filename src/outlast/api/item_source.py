"""Read the items of an `each` or a `map` and look up which of them are done.

Nothing is read at the start. Done keys are looked up in batches. A batch doubles while every key in
it was done, and is a single key otherwise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from outlast.codec.identifiers import check_id

if TYPE_CHECKING:
    from outlast.engine.batch_run import BatchRun

T = TypeVar("T")

BATCH_MAX = 1_000
"""The most keys that are looked up in one read."""


class ItemSource(Protocol[T]):
    """A source of items."""

    async def pull(self, count: int) -> list[T]:
        """Return at least one and at most `count` items, or none at the end."""
        ...

    def close(self) -> None:
        """Stop reading: no more items are wanted."""


class FromIterable(Generic[T]):
    """A source over an iterable. An error is raised after the items that came before it."""

    def __init__(self, items: Iterable[T]) -> None:
        self._iterator: Iterator[T] = iter(items)
        self._error: Exception | None = None

    def take(self, count: int) -> list[T]:
        if self._error is not None:
            raise self._error
        items: list[T] = []
        try:
            items.extend(islice(self._iterator, count))
        except Exception as error:
            if not items:
                raise
            self._error = error
        return items

    async def pull(self, count: int) -> list[T]:
        return self.take(count)

    def close(self) -> None:
        pass


class FromAsync(Generic[T]):
    """A source over an async iterable.

    One task reads all of it, so that time-outs and task groups inside a generator work. It reads no
    more than is wanted, and each item is available at once: a batch does not delay a live stream.
    """

    def __init__(self, items: AsyncIterable[T]) -> None:
        self._items = items
        self._task: asyncio.Task[None] | None = None
        self._there: deque[T] = deque()
        self._wanted, self._arrived = asyncio.Event(), asyncio.Event()
        self._want = 0
        self._ended = False
        self._error: BaseException | None = None

    async def pull(self, count: int) -> list[T]:
        self._want = count
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._feed())
        while not self._there and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._there and self._error is not None:
            raise self._error
        return [self._there.popleft() for _ in range(min(count, len(self._there)))]

    async def _feed(self) -> None:
        try:
            async for item in self._items:
                self._there.append(item)
                self._arrived.set()
                while len(self._there) >= self._want:
                    self._wanted.clear()
                    await self._wanted.wait()
        except BaseException as error:
            # A CancelledError too: it must not look like the end of the items.
            self._error = error
        finally:
            self._ended = True
            self._arrived.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Lookup(NamedTuple, Generic[T]):
    key: str
    item: T
    done: bool
    value: str | None
    """Its result, if it is done."""


class Source(Generic[T]):
    def __init__(
        self,
        batch_run: BatchRun,
        items: Iterable[T] | AsyncIterable[T] | ItemSource[T],
        key: Callable[[T], str] | None,
        key_length_max: int,
    ) -> None:
        self._batch_run = batch_run
        self._pull = pulling(items)
        self._keys = Keys(key, key_length_max)
        self.total = total_of(items)
        self._size = 1
        self._begun = False

    async def batch(self) -> list[Lookup[T]]:
        """Return the next items with their state, or none at the end.

        A key that comes twice in a batch is one item. The batch run is acquired only after the
        first item and its key were read: if that fails, nothing was written.
        """
        keyed = await self._keyed()
        if not self._begun:
            await self._batch_run.take(self.total)
            self._begun = True
        if not keyed:
            return []
        done = await self._batch_run.done(list(keyed))
        self._size = min(2 * self._size, BATCH_MAX) if len(done) == len(keyed) else 1
        return [Lookup(key, item, key in done, done.get(key)) for key, item in keyed.items()]

    async def _keyed(self) -> dict[str, T]:
        keyed: dict[str, T] = {}
        for item in await self._pull.pull(self._size):
            keyed.setdefault(self._keys.of(item), item)
        return keyed

    def close(self) -> None:
        self._pull.close()


def pulling(items: Iterable[T] | AsyncIterable[T] | ItemSource[T]) -> ItemSource[T]:
    if isinstance(items, AsyncIterable):
        return FromAsync(items)
    if isinstance(items, Iterable):
        return FromIterable(items)
    if hasattr(items, "pull"):
        return items
    raise TypeError(f"items must be an iterable or an async iterable, not {items!r}.")


class Keys(Generic[T]):
    """The keys that identify items across lives."""

    def __init__(self, key: Callable[[T], str] | None, length_max: int) -> None:
        self._key, self._length_max = key, length_max
        self._kind: type | None = None
        """The type of items that are their own keys: 1 and "1" would be one key."""

    def of(self, item: T) -> str:
        if self._key is not None:
            return check_id(self._key(item), self._length_max, "the key of an item")
        kind = str if isinstance(item, str) else int if isinstance(item, int) else None
        if kind is None or isinstance(item, bool):
            raise TypeError(
                f"an item of type {type(item).__qualname__} has no key of its own. Pass a key that "
                "is the same in every life: key=lambda item: item.id."
            )
        self._kind = self._kind or kind
        if kind is not self._kind:
            raise TypeError(
                f"{item!r} is among items of type {self._kind.__name__}. If strings and numbers "
                'occur together, pass key=, because 1 and "1" would be one item.'
            )
        return check_id(str(item), self._length_max, "the key of an item")


def total_of(items: object) -> int | None:
    """Return the number of items, or None if it is unknown."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None
