"""Define `app.map`: a concurrent map over items that keeps results and resumes after a death."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlast.api.item_source import ItemSource, Lookup, Source
from outlast.api.progress_line import ProgressLine
from outlast.codec.codecs import codec_for
from outlast.codec.identifiers import check_id
from outlast.errors import SettingsError, Unrecordable
from outlast.execution.step_execution import BODY
from outlast.settings.limits import check_size

if TYPE_CHECKING:
    from outlast.engine.execution_services import EngineServices

T = TypeVar("T")
_TO_COME: Any = object()


class MapJob(Generic[T]):
    """One call of `map`. `parent` is the run whose step makes the call, if any."""

    # 18 attributes: the function, the items still to come, the calls in flight and their
    # results.
    # They are one object because each turn of `_work` reads all four.

    def __init__(
        self,
        services: EngineServices,
        fn: Callable[[T], Any],
        items: Iterable[T] | AsyncIterable[T] | ItemSource[T],
        *,
        id: str,
        key: Callable[[T], str] | None,
        concurrency: int | None,
        parent: str | None = None,
    ) -> None:
        check_id(id, services.settings.id_length_max, "run id")
        if not callable(fn):
            raise TypeError(f"map() takes a function first, not {fn!r}.")
        self._services = services
        self._fn = fn
        self._id = id
        self._is_async = is_async(fn)
        self._codec = codec_for(returned_by(fn))
        self._concurrency = check_concurrency(concurrency) or services.settings.concurrency
        self._batch_run = services.batches.build(id, "map", parent)
        self._source = Source(self._batch_run, items, key, services.settings.id_length_max)
        self._progress_line = ProgressLine(id, self._source.total)
        self._results: dict[str, Any] = {}
        """By key, in item order. Items in flight have a placeholder."""
        self._todo: deque[Lookup[T]] = deque()
        self._pulling: asyncio.Task[list[Lookup[T]]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: set[asyncio.Future[Any]] = set()
        self._error: BaseException | None = None
        self._all_seen = False
        self._leaving: str | None = None
        """Why the job stops. The run is released once nothing of it still executes."""
        self._wake = asyncio.Event()

    async def results(self) -> dict[str, Any]:
        """Process the items and return all results, including those of earlier lives.

        If an item raises, its exception is raised after the other calls in flight have ended. Raise
        Draining if a drain begins.
        """
        services = self._services
        token = services.scopes.enter("map", self._id)
        signs: tuple[asyncio.Future[Any], ...] = (
            services.shutdown.announced,
            services.shutdown.close_began,
        )
        for sign in signs:
            sign.add_done_callback(self._woken)
        try:
            await self._work()
            await self._batch_run.settle()
        except BaseException as error:
            await self._stop(f"{type(error).__name__} ended it: {error}")
            raise
        finally:
            for sign in signs:
                sign.remove_done_callback(self._woken)
            self._progress_line.close()
            self._source.close()
            services.scopes.leave(token)
        return self._results

    def _woken(self, _: object) -> None:
        self._wake.set()

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            if self._goes_on:
                await self._batch_run.check_cancelled()
            # An item may have failed during that read.
            if self._goes_on:
                self._take_pulled()
            # Reading the items may have failed.
            if self._goes_on:
                while self._todo and len(self._tasks) < self._concurrency:
                    self._begin(self._todo.popleft())
                if not self._todo and len(self._tasks) < self._concurrency:
                    self._pull_more()
                if self._all_seen and not self._tasks:
                    return
            elif not self._tasks:
                raise self._error or self._batch_run.draining()
            await self._wake.wait()

    @property
    def _goes_on(self) -> bool:
        return self._error is None and not self._batch_run.stopping

    def _pull_more(self) -> None:
        if self._pulling is None and not self._all_seen:
            self._pulling = self._services.host.create_task(self._source.batch())
            self._pulling.add_done_callback(self._woken)

    def _take_pulled(self) -> None:
        if self._pulling is None or not self._pulling.done():
            return
        pulled, self._pulling = self._pulling, None
        try:
            found = pulled.result()
            for one in found:
                if one.done:
                    self._results[one.key] = self._codec.decode(one.value or "null")
                    self._progress_line.skip(1)
                elif one.key not in self._results:
                    # A key that came before is in flight, and is one item.
                    self._results[one.key] = _TO_COME
                    self._todo.append(one)
        except BaseException as error:
            # Whatever reading the items raised.
            self._failed(error)
        else:
            self._all_seen = not found

    def _begin(self, found: Lookup[T]) -> None:
        task = self._services.host.create_task(self._do(found.key, found.item))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
        self._wake.set()
        self._leave_if_idle()

    def _failed(self, error: BaseException) -> None:
        self._error = self._error or error
        self._wake.set()

    async def _do(self, key: str, item: T) -> None:
        body = BODY.get()
        if body is None:
            await self._do_item(key, item)
            return
        # In a run: steps that this call makes belong to this item, whichever other items are
        # repeated.
        BODY.set(body.part(key))
        with body.open_part():
            await self._do_item(key, item)

    async def _do_item(self, key: str, item: T) -> None:
        try:
            value = await self._call(item)
        except Exception as error:
            error.add_note(f"(item {key!r} of map {self._id!r})")
            raise
        try:
            text, value = self._codec.round_trip(value)
        except Unrecordable as error:
            raise Unrecordable(
                f"the result of item {key!r} in map {self._id!r}: {error}"
            ) from error.__cause__
        check_size(self._services.settings, text, f"the result of item {key!r} in map {self._id!r}")
        await self._batch_run.write(self._batch_run.note("done", key, text))
        self._results[key] = value
        self._progress_line.add()

    async def _call(self, item: T) -> Any:
        if self._is_async:
            return await self._fn(item)
        thread = self._services.steps.in_thread(self._fn, item)
        self._threads.add(thread)
        thread.add_done_callback(self._thread_ended)
        value = await asyncio.shield(thread)
        return await value if inspect.isawaitable(value) else value

    def _thread_ended(self, thread: asyncio.Future[Any]) -> None:
        self._threads.discard(thread)
        if not thread.cancelled():
            # Mark the exception as retrieved, even if nothing still waits for it.
            thread.exception()
        self._leave_if_idle()

    async def _stop(self, why: str) -> None:
        """Cancel the calls in flight and release the run once they have ended.

        A thread cannot be stopped: the run is released when the last one has ended.
        """
        self._leaving = why
        if self._pulling is not None:
            self._pulling.cancel()
        for task in self._tasks:
            task.cancel()
        self._leave_if_idle()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._services.settings.close_timeout)

    def _leave_if_idle(self) -> None:
        if self._leaving is None:
            return
        if self._tasks or self._threads:
            self._batch_run.hang()
        else:
            self._batch_run.leave(self._leaving)


def is_async(fn: Callable[..., Any]) -> bool:
    call = getattr(fn, "__call__", None)  # noqa: B004 - an object with an async __call__
    # A step has this attribute.
    known = getattr(fn, "is_async", False)
    return bool(known) or inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def returned_by(fn: Callable[..., Any]) -> Any:
    """Return a function's annotated result type, or Any. For an awaitable it is the awaited type.

    Raise Unrecordable if the annotations cannot be resolved.
    """
    while isinstance(fn, partial):
        fn = fn.func
    # For a step, its plain function.
    plain = getattr(fn, "fn", fn)
    if not inspect.isroutine(plain) and not isinstance(plain, type):
        plain = type(plain).__call__
    try:
        hints = (
            typing.get_type_hints(plain, include_extras=True) if not isinstance(plain, type) else {}
        )
    except Exception as error:
        raise Unrecordable(f"the annotations of {fn!r} cannot be resolved: {error}") from error
    returned = hints.get("return", plain if isinstance(plain, type) else Any)
    if typing.get_origin(returned) in (Awaitable, Coroutine):
        return typing.get_args(returned)[-1]
    return returned


def check_concurrency(concurrency: int | None) -> int | None:
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise SettingsError(f"concurrency={concurrency!r} must be a whole number from 1.")
    return concurrency
