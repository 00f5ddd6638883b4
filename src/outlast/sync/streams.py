"""Provide `resume_stream` for sync steps: the async one, blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, TypeVarTuple, overload

from outlast.errors import CannotResume
from outlast.streams.base import END, NONE, Item, StreamBase, StreamState
from outlast.streams.request import By

C = TypeVar("C", str, bytes)
K = TypeVar("K")
Ts = TypeVarTuple("Ts")


class ResumableStream(StreamBase[C]):
    """The stream that `resume_stream` returns.

    `with` opens and closes it, `for` yields the new chunks.
    """

    _source: Any = None

    def __enter__(self) -> Self:
        self._enter()
        try:
            host = self._body.execution.host
            part = asyncio.run_coroutine_threadsafe(self._earlier_part(), host).result()
            if self._resumes:
                try:
                    self._source = iter(self._ask())
                    # Only the first chunk proves that the provider resumes.
                    self._ahead = self._pull()
                except CannotResume as refused:
                    self._close(refused)
                    self._start_clean()
            if not self.complete and self._source is None:
                self._source = iter(self._ask())
            self._begin_publishing(part)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close(error)
        except BaseException as raised:
            self._leave(raised)
            raise
        self._leave(error)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> C:
        self._check_open()
        if self.complete:
            raise StopIteration
        item, self._ahead = self._ahead, NONE
        if item is NONE:
            try:
                item = self._pull()
            except CannotResume:
                # It is too late to start clean: the consumer has received part of the text.
                self.discard()
                raise
        if item is END:
            self._finish()
            raise StopIteration
        chunk: C = self._receive(item)
        return chunk

    def read(self) -> C:
        """Wait for the whole text and return it."""
        for _ in self:
            pass
        return self.text

    def _pull(self) -> Item:
        self._state = StreamState.FAILED
        item = next(self._source, END)
        self._state = StreamState.OPEN
        return item

    def _close(self, error: BaseException | None) -> None:
        source, self._source = self._source, None
        close = getattr(source, "close", None)
        if close is None:
            return
        try:
            close()
        except Exception as failed:
            if error is None:
                raise
            self._log_failed_close(failed)


@overload
def resume_stream(
    open: Callable[[*Ts], Iterator[C]],
    /,
    *args: *Ts,
    by: Literal["restart"] = ...,
    type: type[C] = ...,
    publish: str | None = None,
) -> ResumableStream[C]: ...
@overload
def resume_stream(
    open: Callable[[C, *Ts], Iterator[C]],
    /,
    *args: *Ts,
    by: Literal["prefill"],
    type: type[C] = ...,
    trim: Callable[[C], C] | None = None,
    publish: str | None = None,
) -> ResumableStream[C]: ...
@overload
def resume_stream(
    open: Callable[[K | None, *Ts], Iterator[tuple[C, K | None]]],
    /,
    *args: *Ts,
    by: Literal["cursor"],
    type: type[C] = ...,
    publish: str | None = None,
) -> ResumableStream[C]: ...
def resume_stream(  # type: ignore[misc]  # mypy: `Any` does not accept `*Ts`
    open: Callable[..., Any],
    /,
    *args: Any,
    by: By = "restart",
    type: type[Any] = str,
    trim: Callable[[Any], Any] | None = None,
    publish: str | None = None,
) -> ResumableStream[Any]:
    """Open a resumable stream in a sync step, with plain iterators, `with` and `for`.

    It works like `outlast.resume_stream`, but has no `stall`: nothing interrupts a thread that
    waits. Give your client a read time-out instead.
    """
    return ResumableStream(open, args, by, type, trim, publish)
