"""Define `app.each`: a sequential loop over items that resumes after a death or a drain."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from outlast.api.item_source import ItemSource, Lookup, Source
from outlast.api.progress_line import ProgressLine
from outlast.codec.identifiers import check_id
from outlast.errors import OutlastError
from outlast.store.commands import Record

if TYPE_CHECKING:
    from outlast.engine.execution_services import EngineServices

T = TypeVar("T")


class LoopState(Enum):
    """Where the loop of `app.each` is."""

    BETWEEN = auto()
    """The program has an item, or has not asked for one yet."""
    ASKED = auto()
    """The program waits for the next item."""
    LEFT = auto()
    """The loop was left before the items ended."""
    ENDED = auto()


class Each(AsyncIterator[T], Generic[T]):
    """The loop of `app.each`. An item is done when the loop asks for the next one.

    Any other end of the loop (break, an exception, a drain, the garbage collector) releases the
    run, and the current item is not done.
    """

    def __init__(
        self,
        services: EngineServices,
        items: Iterable[T] | AsyncIterable[T] | ItemSource[T],
        *,
        id: str,
        key: Callable[[T], str] | None,
    ) -> None:
        check_id(id, services.settings.id_length_max, "run id")
        self._loop = services.host
        self._scopes = services.scopes
        self._id = id
        self._batch_run = services.batches.build(id, "each")
        self._source = Source(self._batch_run, items, key, services.settings.id_length_max)
        self._progress_line = ProgressLine(id, self._source.total)
        self._todo: deque[Lookup[T]] = deque()
        self._pulling: asyncio.Task[list[Lookup[T]]] | None = None
        self._under_way: Record | None = None
        """The entry to record when the current item is done."""
        self._token: object = None
        self.thread: int | None = None
        """In a sync program: the thread that executes the loop."""
        self._state = LoopState.BETWEEN

    def __aiter__(self) -> Each[T]:
        return self

    async def __anext__(self) -> T:
        if self._state is LoopState.ENDED:
            raise StopAsyncIteration
        if self._state is LoopState.ASKED:
            raise OutlastError(f"each {self._id!r} is asked for two items at once.")
        if self._state is LoopState.LEFT:
            raise OutlastError(f"each {self._id!r} was left: make the call again.")
        self._state = LoopState.ASKED
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            # A cancellation too: its traceback may keep this iterator alive for long.
            self._leave(f"{type(error).__name__} ended it: {error}")
            raise
        finally:
            if self._state is LoopState.ASKED:
                self._state = LoopState.BETWEEN

    async def _next(self) -> T:
        batch_run = self._batch_run
        if self._under_way is not None:
            await batch_run.write(self._under_way, alone=True)
            self._under_way = None
            self._progress_line.add()
            # The drain also waits until the run is released.
            if batch_run.stopping:
                raise batch_run.draining()
            self._scopes.leave(self._token)
        await batch_run.check_cancelled()
        while not self._todo:
            found = await self._ahead()
            if not found:
                await self._end()
                raise StopAsyncIteration
            self._todo += (one for one in found if not one.done)
            self._progress_line.skip(len(found) - len(self._todo))
        if batch_run.stopping:
            raise batch_run.draining()
        found_one = self._todo.popleft()
        self._under_way = batch_run.note("done", found_one.key)
        self._token = self._scopes.enter("each", self._id, thread=self.thread)
        return found_one.item

    async def _ahead(self) -> list[Lookup[T]]:
        """Return the next batch. Raise Draining if a drain begins first."""
        if self._batch_run.stopping:
            raise self._batch_run.draining()
        self._pulling = self._loop.create_task(self._source.batch())
        found = await self._batch_run.unless_draining(self._pulling)
        self._pulling = None
        return found

    async def _end(self) -> None:
        await self._batch_run.settle()
        self._leave("it has ended")
        self._state = LoopState.ENDED

    async def aclose(self) -> None:
        """Leave the loop and release its run. The current item is not done."""
        self._leave("its loop was left")

    def _leave(self, why: str) -> None:
        if self._state in (LoopState.BETWEEN, LoopState.ASKED):
            self._state = LoopState.LEFT
            self._batch_run.leave(why)
            self._scopes.leave(self._token)
            self._progress_line.close()
            self._source.close()
            if self._pulling is not None:
                self._pulling.cancel()

    def __del__(self) -> None:
        """Leave the loop.

        `break` and exceptions end here at once, because nothing else refers to this iterator.
        """
        if getattr(self, "_state", LoopState.LEFT) in (LoopState.BETWEEN, LoopState.ASKED):
            self._progress_line.close()
            loop = self._loop
            if asyncio._get_running_loop() is loop:
                self._leave("its loop was left")
            else:
                # Another thread collects this. After the loop has closed, the worker has left too.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._leave, "its loop was left")
