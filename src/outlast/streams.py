"""Define `resume_stream`: a stream of text whose step resumes after a death, or starts clean.

The step's progress is what has arrived: the text, its position in the stream, and whether it is
complete, always from one moment. The next attempt, in any life, does one of three things. The
consumer sees which before it gets a chunk:

    the answer is complete          no request is made           complete, resumed_from is all of it
    the provider resumes            only new text arrives        resumed_from is the earlier text
    the provider cannot resume      the text is empty again      restarted

A consumer that shows the text sets it to `text` at the beginning and appends from there. That is
right in all three cases.
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, TypeVarTuple, overload

from outlast.api.definition_checks import check_options
from outlast.codec import plain
from outlast.codec.signature import canonical
from outlast.errors import CannotResume, OutlastError, SettingsError, StreamStalled, Unrecordable
from outlast.execution.progress import Progress, body_of

C = TypeVar("C", str, bytes)
K = TypeVar("K")
Ts = TypeVarTuple("Ts")
By = Literal["restart", "prefill", "cursor"]
Item = Any
"""What a source yields: a chunk, or with `by="cursor"` a chunk and a cursor."""

log = logging.getLogger("outlast.streams")

END: Any = object()
"""The source has ended."""
NONE: Any = object()
"""Nothing was read ahead."""


class Arrived(NamedTuple):
    """The text that has arrived by one moment.

    `chunks` only grows, so its first `length` items never change. Keeping this costs nothing,
    however long the text.
    """

    chunks: list[Any]
    length: int = 0
    cursor: str = "null"
    """As JSON."""
    complete: bool = False


class ArrivedCodec:
    def __init__(self, type: type[Any]) -> None:
        self._type = type

    def encode(self, value: Arrived) -> str:
        whole = self._type().join(value.chunks[: value.length])
        text = plain.encode(whole if self._type is str else b64encode(whole).decode())
        complete = "true" if value.complete else "false"
        return f'{{"{self._type.__name__}":{text},"cursor":{value.cursor},"complete":{complete}}}'

    def decode(self, text: str) -> Arrived:
        saved = json.loads(text)
        whole = saved.get(self._type.__name__)
        # The code has changed and now wants the other type.
        if whole is None:
            return Arrived([])
        chunk = whole if self._type is str else b64decode(whole)
        return Arrived([chunk], 1, plain.encode(saved["cursor"]), saved["complete"])

    def round_trip(self, value: Arrived) -> tuple[str, Arrived]:
        text = self.encode(value)
        return text, self.decode(text)


class StreamBase(Generic[C]):
    """The base of the async and sync streams: everything but the waiting."""

    def __init__(
        self,
        open: Callable[..., Any],
        args: tuple[Any, ...],
        by: By,
        type: type[C],
        trim: Callable[[C], C] | None,
    ) -> None:
        body = body_of("resume_stream")
        name = _name(open)
        if by not in ("restart", "prefill", "cursor"):
            raise SettingsError(
                f'resume_stream({name}): by="restart", "prefill" or "cursor", not {by!r}.'
            )
        if type not in (str, bytes):
            raise SettingsError(f"resume_stream({name}): type is str or bytes, not {type!r}.")
        if trim is not None and by != "prefill":
            raise SettingsError(f'resume_stream({name}): trim is for by="prefill".')
        self._open, self._args, self._by = open, args, by
        self._type: Any = type
        self._trim: Any = trim
        self._name, self._step = name, body.name
        # The arguments identify the stream: an answer to another question is not resumed. Streams
        # with the same arguments are numbered.
        identity = f"~{name}({_digest(name, args)})"
        body.calls[identity] = number = body.calls.get(identity, 0) + 1
        self._progress: Progress[Arrived] = Progress(
            body,
            ArrivedCodec(type),
            part=f"{identity}#{number}",
            what=f"stream {name}",
            frozen=True,
        )
        self._chunks: list[C] = []
        self._cursor = "null"
        self._start: Any = type() if by == "prefill" else None
        """What the provider resumes from."""
        self._joined: tuple[int, C] = (0, type())
        self._ahead: Item = NONE
        self._goes_on = False
        """Whether the provider is asked to resume. It may refuse."""
        self._entered = self._left = self._broken = self._discarded = False
        self.complete = False
        """Whether the whole text has arrived.

        At the beginning, True means that an earlier attempt received all of it, and no request is
        made.
        """
        self.restarted = False
        """Whether an earlier attempt's text was dropped. This is another answer, from the start."""
        self.resumed_from: C = type()
        """The earlier attempts' text that this one resumes from.

        It may be less than what they handed on.
        """

    @property
    def text(self) -> C:
        """Return everything that has arrived, including `resumed_from`.

        A stream of bytes returns bytes.
        """
        count, whole = self._joined
        if count < len(self._chunks):
            whole = whole + self._type().join(self._chunks[count:])
            self._joined = (len(self._chunks), whole)
        return whole

    def discard(self) -> None:
        """Discard the text: the step's next attempt asks again.

        Chunks that arrive from now on are not saved.
        """
        self._discarded = True
        self._progress.save(Arrived([]))

    # -- opening

    def _enter(self) -> None:
        if self._entered:
            raise OutlastError(
                f"the stream {self._name} was opened before: call resume_stream() again."
            )
        self._entered = True
        self._look()
        if self._by != "restart":
            # A restarting stream loses everything when it is stopped, and a drain must know that:
            # only the others enter their progress.
            self._progress.__enter__()

    def _look(self) -> None:
        """Decide how to use what an earlier attempt saved."""
        saved = self._progress.value
        if saved is None:
            return
        whole = self._type().join(saved.chunks)
        if saved.complete:
            self.complete = True
        elif self._by == "prefill":
            self._start = whole = self._trimmed(whole)
            self._goes_on = bool(whole)
        elif self._by == "cursor":
            self._start = json.loads(saved.cursor)
            self._goes_on = self._start is not None
        if self.complete or self._goes_on:
            self.resumed_from, self._chunks, self._cursor = whole, [whole], saved.cursor
        else:
            self.restarted = True

    def _trimmed(self, whole: C) -> C:
        if self._trim is None:
            return whole
        trimmed: C = self._trim(whole)
        if not whole.startswith(trimmed):
            raise SettingsError(
                f"resume_stream({self._name}): trim must give a beginning of the text, as str.rstrip does."
            )
        return trimmed

    def _start_clean(self) -> None:
        """Drop the earlier text, because the provider cannot resume."""
        self.resumed_from, self._chunks, self._joined = self._type(), [], (0, self._type())
        self._cursor, self._start = "null", self._type() if self._by == "prefill" else None
        self.restarted, self._broken = True, False
        self._progress.save(Arrived([]))

    def _ask(self) -> Any:
        asked = self._args if self._by == "restart" else (self._start, *self._args)
        source = self._open(*asked)
        if isinstance(source, Coroutine):
            # Nothing awaits it.
            source.close()
            raise SettingsError(
                f"resume_stream({self._name}): it is a coroutine function, which returns once. Let it give the chunks itself: "
                "`async for chunk in await …: yield chunk`."
            )
        return source

    # -- receiving

    def _check_open(self) -> None:
        if not self._entered or self._left:
            raise OutlastError(
                f"the stream {self._name} is {'closed' if self._left else 'not open'}: it is read inside its block, as in "
                "`async with resume_stream(...) as answer:`."
            )
        # A generator that has raised reports a normal end when it is asked again.
        if self._broken:
            raise OutlastError(
                f"the stream {self._name} has failed: another attempt of the step goes on with it. Let its error out of the step."
            )

    def _receive(self, item: Item) -> Any:
        """Save an item that has arrived and return its chunk.

        Raise Unrecordable if it has the wrong type.
        """
        chunk, cursor = item, None
        if self._by == "cursor":
            if not isinstance(item, tuple) or len(item) != 2:
                raise Unrecordable(
                    f'the stream {self._name} gave {_shown(item)}: with by="cursor" it gives pairs of a chunk and a cursor.'
                )
            chunk, cursor = item
        if not isinstance(chunk, self._type):
            raise Unrecordable(
                f"the stream {self._name} gave {_shown(chunk)}, which is not {self._type.__name__}: give the text alone, or say "
                "resume_stream(..., type=bytes) for bytes."
            )
        self._chunks.append(chunk)
        if cursor is not None:
            self._cursor = plain.encode(cursor)
        if cursor is not None or self._by == "prefill":
            self._save()
        elif len(self._chunks) == 1:
            # There is nothing to resume from, but the next attempt must know that something had
            # arrived.
            self._progress.save(Arrived([]))
        else:
            self._progress.check()
        return chunk

    def _save(self, *, complete: bool = False) -> None:
        if not self._discarded:
            self._progress.save(Arrived(self._chunks, len(self._chunks), self._cursor, complete))

    def _finish(self) -> None:
        self.complete = True
        if self._by == "restart":
            self._progress.__enter__()
        self._save(complete=True)

    def _leave(self, error: BaseException | None) -> None:
        self._left = True
        self._progress.__exit__(None if error is None else type(error), error, None)

    def __repr__(self) -> str:
        state = (
            "complete"
            if self.complete
            else "closed"
            if self._left
            else "open"
            if self._entered
            else "new"
        )
        return f"<stream {self._name} of step {self._step}: {state}, {len(self.text)} so far>"


class ResumableStream(StreamBase[C]):
    """The stream that `resume_stream` returns.

    `async with` opens and closes it. `async for` yields the new chunks.
    """

    _source: Any = None

    def __init__(self, *given: Any, stall: float | None) -> None:
        super().__init__(*given)
        check_options("stream", self._name, stall=stall)
        self._stall = stall

    async def __aenter__(self) -> Self:
        self._enter()
        try:
            if self._goes_on:
                try:
                    self._source = aiter(self._ask())
                    # Only the first chunk proves that the provider resumes.
                    self._ahead = await self._next()
                except CannotResume as refused:
                    await self._close(refused)
                    self._start_clean()
            if not self.complete and self._source is None:
                self._source = aiter(self._ask())
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
        self._broken = True
        if self._stall is None:
            item = await self._pull()
        else:
            try:
                async with asyncio.timeout(self._stall) as limit:
                    item = await self._pull()
            except TimeoutError as error:
                if limit.expired():
                    raise StreamStalled(
                        f"the stream {self._name} of step {self._step} gave nothing for {self._stall:g} s."
                    ) from error
                raise
        self._broken = False
        return item

    async def _pull(self) -> Item:
        task = asyncio.current_task()
        cancelled = 0 if task is None else task.cancelling()
        item = await anext(self._source, END)
        if item is END and task is not None and task.cancelling() > cancelled:
            # The source swallowed its cancellation and ended. That is not the end of the answer.
            raise asyncio.CancelledError(f"the stream {self._name} was cancelled")
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
            execution = self._progress._execution
            redacted, facts = (
                execution.engine.redact_exception(failed),
                execution.log_fields(self._step),
            )
            log.warning(
                "closing the stream %s of step %s failed",
                self._name,
                self._step,
                exc_info=redacted,
                extra=facts,
            )


@overload
def resume_stream(
    open: Callable[[*Ts], AsyncIterator[C]],
    /,
    *args: *Ts,
    by: Literal["restart"] = ...,
    type: type[C] = ...,
    stall: float | None = None,
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
) -> ResumableStream[C]: ...
@overload
def resume_stream(
    open: Callable[[K | None, *Ts], AsyncIterator[tuple[C, K | None]]],
    /,
    *args: *Ts,
    by: Literal["cursor"],
    type: type[C] = ...,
    stall: float | None = None,
) -> ResumableStream[C]: ...
def resume_stream(  # type: ignore[misc]  # mypy: `Any` does not accept `*Ts`
    open: Callable[..., Any],
    /,
    *args: Any,
    by: By = "restart",
    type: type[Any] = str,
    trim: Callable[[Any], Any] | None = None,
    stall: float | None = None,
) -> ResumableStream[Any]:
    """Open a stream of text that the step's next attempt resumes, or starts clean.

    The next attempt follows a death, a drain or a failure. Use it in a step:

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
    """
    return ResumableStream(open, args, by, type, trim, stall=stall)


def _name(open: Callable[..., Any]) -> str:
    while isinstance(open, partial):
        open = open.func
    name: str = getattr(open, "__qualname__", type(open).__qualname__)
    return name.rpartition("<locals>.")[2]


def _digest(name: str, args: tuple[Any, ...]) -> str:
    try:
        text = canonical(list(args))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unrecordable(
            f"the arguments of the stream {name} cannot be fingerprinted ({error}): they say what is asked. Bind what is no part of that, "
            "like a client, with functools.partial or a lambda."
        ) from error
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}…"
