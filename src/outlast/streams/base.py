"""Resume a stream, save what it receives, and finish it.

The async and sync streams add the waiting.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlast.api.publish import publisher_for
from outlast.codec import plain_json
from outlast.errors import OutlastError, SettingsError
from outlast.execution.progress import Progress, body_of
from outlast.execution.publishing import Publisher, earlier_part
from outlast.streams.arrived import Arrived, ArrivedCodec, ReceivedText
from outlast.streams.request import By, StreamRequest

if TYPE_CHECKING:
    from outlast.store.stream_rows import PartRow

C = TypeVar("C", str, bytes)
Item = Any
"""What a source yields: a chunk, or with `by="cursor"` a chunk and a cursor."""

log = logging.getLogger("outlast.streams")

END: Any = object()
"""The source has ended."""
NONE: Any = object()
"""Nothing was read ahead."""


class StreamState(Enum):
    NEW = "new"
    OPEN = "open"
    FAILED = "failed"
    """The source raised. Asked again, a generator would report a normal end."""
    CLOSED = "closed"


class StreamBase(Generic[C]):
    """The base of the async and sync streams: everything but the waiting."""

    def __init__(
        self,
        open: Callable[..., Any],
        args: tuple[Any, ...],
        by: By,
        type: type[C],
        trim: Callable[[C], C] | None,
        publish: str | None = None,
    ) -> None:
        body = body_of("resume_stream")
        self._request: StreamRequest[C] = StreamRequest(open, args, by, type, trim)
        self._step = body.name
        # Streams with the same arguments are numbered.
        identity = self._request.identity
        body.calls[identity] = number = body.calls.get(identity, 0) + 1
        self._progress: Progress[Arrived] = Progress(
            body,
            ArrivedCodec(type),
            part=f"{identity}#{number}",
            what=f"stream {self._request.name}",
            frozen=True,
        )
        self._received: ReceivedText[C] = ReceivedText(type)
        self._body = body
        self._publish = publish
        self._publisher = None if publish is None else self._publisher_for(publish)
        self._start: Any = self._request.beginning
        """What the provider resumes from."""
        self._ahead: Item = NONE
        self._resumes = False
        """Whether the provider is asked to resume. It may refuse."""
        self._state = StreamState.NEW
        self._discarded = False
        self.complete = False
        """Whether the whole text has arrived.

        At the beginning, True means that an earlier attempt received all of it, and no request is
        made.
        """
        self.restarted = False
        """Whether an earlier attempt's text was dropped. The provider sends another answer from the
        start."""
        self.resumed_from: C = type()
        """The earlier attempts' text that this one resumes from.

        It may be less than what they handed on.
        """

    @property
    def text(self) -> C:
        """Return everything that has arrived, including `resumed_from`.

        A stream of bytes returns bytes.
        """
        return self._received.text

    def discard(self) -> None:
        """Discard the text, so that the step's next attempt asks again.

        Later chunks are not saved.
        """
        self._discarded = True
        self._progress.save(Arrived([]))

    def _publisher_for(self, stream: str) -> Publisher:
        if self._request.type is not str:
            raise SettingsError(
                f"the stream {self._request.name} cannot be published: only text can (type=str)."
            )
        return publisher_for("resume_stream", stream)

    # -- opening

    def _enter(self) -> None:
        if self._state is not StreamState.NEW:
            raise OutlastError(
                f"the stream {self._request.name} has already been opened. Call resume_stream() "
                "again."
            )
        self._state = StreamState.OPEN
        self._restore()
        if self._request.by != "restart":
            # A restarting stream loses everything when it is stopped, and a drain must know that:
            # only the others enter their progress.
            self._progress.__enter__()

    def _restore(self) -> None:
        """Decide how to use what an earlier attempt saved."""
        saved = self._progress.value
        if saved is None:
            return
        whole = self._request.type().join(saved.chunks)
        if saved.complete:
            self.complete = True
        elif self._request.by == "prefill":
            self._start = whole = self._request.trimmed(whole)
            self._resumes = bool(whole)
        elif self._request.by == "cursor":
            self._start = json.loads(saved.cursor)
            self._resumes = self._start is not None
        if self.complete or self._resumes:
            self.resumed_from = whole
            self._received.restore(whole, saved.cursor)
        else:
            self.restarted = True

    def _start_clean(self) -> None:
        """Drop the earlier text, because the provider cannot resume."""
        self._received.clear()
        self._start = self._request.beginning
        self._state = StreamState.OPEN
        self.resumed_from = self._request.type()
        self.restarted = True
        self._progress.save(Arrived([]))

    async def _earlier_part(self) -> PartRow | None:
        """Return what earlier attempts have published, if this one may continue it."""
        publisher = self._publisher
        if publisher is None or self._publish is None or publisher.has_begun:
            return None
        if not (self.complete or self._resumes):
            return None
        return await earlier_part(self._body, self._publish)

    def _begin_publishing(self, part: PartRow | None) -> None:
        """Publish the text that this attempt begins with. Called once the provider has resumed."""
        if self._publisher is None:
            return
        self._publisher.before_flush = self._progress.flush_at_once
        if self.resumed_from:
            if not self._publisher.has_begun:
                self._publisher.resume(part)
            self._publisher.write(self.resumed_from)

    def _ask(self) -> Any:
        return self._request.ask(self._start)

    # -- receiving

    def _check_open(self) -> None:
        if self._state in (StreamState.NEW, StreamState.CLOSED):
            state = "closed" if self._state is StreamState.CLOSED else "not open"
            raise OutlastError(
                f"the stream {self._request.name} is {state}. Read it inside its block, as in "
                "`async with resume_stream(...) as answer:`."
            )
        if self._state is StreamState.FAILED:
            raise OutlastError(
                f"the stream {self._request.name} has failed. Let its error leave the step: the "
                "next attempt resumes the stream."
            )

    def _receive(self, item: Item) -> Any:
        """Save an item that has arrived and return its chunk.

        Raise Unrecordable if it has the wrong type.
        """
        chunk, cursor = self._request.unpack(item)
        received = self._received
        received.chunks.append(chunk)
        if cursor is not None:
            received.cursor = plain_json.encode(cursor)
        if cursor is not None or self._request.by == "prefill":
            self._save()
        elif len(received.chunks) == 1:
            # There is nothing to resume from, but the next attempt must know that something had
            # arrived.
            self._progress.save(Arrived([]))
        else:
            self._progress.check()
        if self._publisher is not None:
            # Publish after the text is saved, so that published text is never ahead of it.
            self._publisher.write(chunk)
        return chunk

    def _save(self, *, complete: bool = False) -> None:
        if not self._discarded:
            self._progress.save(self._received.snapshot(complete=complete))

    def _finish(self) -> None:
        self.complete = True
        if self._request.by == "restart":
            self._progress.__enter__()
        self._save(complete=True)

    # -- closing

    def _leave(self, error: BaseException | None) -> None:
        self._state = StreamState.CLOSED
        self._progress.__exit__(None if error is None else type(error), error, None)

    def _log_failed_close(self, failed: Exception) -> None:
        """Log a source that failed to close after an error of the step, which matters more."""
        execution = self._progress._execution
        log.warning(
            "Failed to close the stream %s of step %s.",
            self._request.name,
            self._step,
            exc_info=execution.services.redact(failed),
            extra=execution.log_fields(self._step),
        )

    def __repr__(self) -> str:
        state = "complete" if self.complete else self._state.value
        name = self._request.name
        return f"<stream {name} of step {self._step}: {state}, {len(self.text)} so far>"
