"""Read a resumable stream with `async with` and `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, TypeVarTuple, overload

from outlast.api.definition_checks import check_options
from outlast.errors import CannotResume, StreamStalled
from outlast.streams.base import END, NONE, Item, StreamBase, StreamState
from outlast.streams.request import By

C = TypeVar("C", str, bytes)
K = TypeVar("K")
Ts = TypeVarTuple("Ts")


class ResumableStream(StreamBase[C]):
    """The stream that `resume_stream` returns.

    `async with` opens and closes it. `async for` yields the new chunks.
    """

    _source: Any = None

    def __init__(self, *given: Any, stall: float | None) -> None:
        super().__init__(*given)
        check_options("stream", self._request.name, stall=stall)
        self._stall = stall

    async def __aenter__(self) -> Self:
        self._enter()
        try:
            part = await self._earlier_part()
            if self._resumes:
                try:
                    self._source = aiter(self._ask())
                    # Only the first chunk proves that the provider resumes.
                    self._ahead = await self._next()
                except CannotResume as refused:
                    await self._close(refused)
                    self._start_clean()
            if not self.complete and self._source is None:
                self._source = aiter(self._ask())
            self._begin_publishing(part)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._close(error)
        except BaseException as raised:
            self._leave(raised)
            raise
        self._leave(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> C:
        self._check_open()
        if self.complete:
            raise StopAsyncIteration
        item, self._ahead = self._ahead, NONE
        if item is NONE:
            try:
                item = await self._next()
            except CannotResume:
                # It is too late to start clean: the consumer has received part of the text.
                self.discard()
                raise
        if item is END:
            self._finish()
            raise StopAsyncIteration
        chunk: C = self._receive(item)
        return chunk

    async def read(self) -> C:
        """Wait for the whole text and return it."""
        async for _ in self:
            pass
        return self.text

    async def _next(self) -> Item:
        self._state = StreamState.FAILED
        if self._stall is None:
            item = await self._pull()
        else:
            try:
                async with asyncio.timeout(self._stall) as limit:
                    item = await self._pull()
            except TimeoutError as error:
                if limit.expired():
                    raise StreamStalled(
                        f"the stream {self._request.name} of step {self._step} yielded nothing "
                        f"for {self._stall:g} s."
                    ) from error
                raise
        self._state = StreamState.OPEN
        return item

    async def _pull(self) -> Item:
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        item = await anext(self._source, END)
        if item is END and task is not None and task.cancelling() > cancelled:
            # The source swallowed its cancellation and ended. That is not the end of the answer.
            raise asyncio.CancelledError(f"the stream {self._request.name} was cancelled")
        return item

    async def _close(self, error: BaseException | None) -> None:
        source, self._source = self._source, None
        aclose = getattr(source, "aclose", None)
        # Nothing can be awaited during a GeneratorExit.
        if aclose is None or isinstance(error, GeneratorExit):
            return
        try:
            await aclose()
        except Exception as failed:
            if error is None:
                raise
            self._log_failed_close(failed)


@overload
def resume_stream(
    open: Callable[[*Ts], AsyncIterator[C]],
    /,
    *args: *Ts,
    by: Literal["restart"] = ...,
    type: type[C] = ...,
    stall: float | None = None,
    publish: str | None = None,
) -> ResumableStream[C]: ...
@overload
def resume_stream(
    open: Callable[[C, *Ts], AsyncIterator[C]],
    /,
    *args: *Ts,
    by: Literal["prefill"],
    type: type[C] = ...,
    trim: Callable[[C], C] | None = None,
    stall: float | None = None,
    publish: str | None = None,
) -> ResumableStream[C]: ...
@overload
def resume_stream(
    open: Callable[[K | None, *Ts], AsyncIterator[tuple[C, K | None]]],
    /,
    *args: *Ts,
    by: Literal["cursor"],
    type: type[C] = ...,
    stall: float | None = None,
    publish: str | None = None,
) -> ResumableStream[C]: ...
def resume_stream(  # type: ignore[misc]  # mypy: `Any` does not accept `*Ts`
    open: Callable[..., Any],
    /,
    *args: Any,
    by: By = "restart",
    type: type[Any] = str,
    trim: Callable[[Any], Any] | None = None,
    stall: float | None = None,
    publish: str | None = None,
) -> ResumableStream[Any]:
    """Open a stream of text that the step's next attempt continues, or starts from the beginning.

    There is a next attempt after a death, a drain or a failure. Use it in a step:

        async def ask(so_far: str, prompt: str) -> AsyncIterator[str]: ...

        async with resume_stream(ask, prompt, by="prefill", stall=30) as answer:
            show(answer.text)                    # "", or what an earlier attempt had received
            async for token in answer:           # what is new
                append(token)
        return answer.text

    `by` is what the provider can do:

    - "restart": it cannot resume. Outlast calls `open(*args)`. After a death the text is empty
      again, and `restarted` is True.
    - "prefill": it resumes from a text. Outlast calls `open(so_far, *args)`; `so_far` is empty at
      first. `trim` returns the part of the text to resume from.
    - "cursor": it resumes from a position. Outlast calls `open(cursor, *args)`; the cursor is None
      at first. `open` yields pairs of a chunk and a cursor (plain JSON). A None cursor keeps the
      previous one as the position to resume from.

    `open` raises CannotResume before its first chunk if it cannot resume after all. It is then
    called again for a clean start. It must end only when the answer has ended, and raise if the
    connection was cut.

    `args` identify the stream within the step. What an earlier attempt received for other arguments
    is not used. `stall` is the number of seconds to wait for a chunk; after that, StreamStalled is
    raised.

    `publish` names a stream of the run to which the text is published while it arrives. Viewers
    follow it with `app.watch(run_id, name)`.
    """
    return ResumableStream(open, args, by, type, trim, publish, stall=stall)
