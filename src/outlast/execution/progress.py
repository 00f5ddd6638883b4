"""Save the progress of a step before it ends.

Saving costs the step almost nothing. The last value is kept, and is written once the previous write
is durable and a short interval has passed. A drain writes it at once. Progress is fenced by the
claim and by the attempt: a thread that outlived its time-out cannot save into the next attempt of
its own step or of the step that called it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from outlast.codec.codecs import Codec
from outlast.errors import Evicted, LimitExceeded, NotInRun, StoreError, Unrecordable
from outlast.execution import recording
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.store.commands import Refused, SaveProgress

T = TypeVar("T")
NOTHING: Any = object()
IMMUTABLE = frozenset({str, int, float, bool, type(None)})
"""Types whose values cannot change between `save` and the write, so they are encoded only then."""


def body_of(what: str) -> StepExecution:
    """Return the step execution of the current code.

    Raise NotInRun outside a step's body, even in a workflow that a step's body has started.
    """
    body = None if isinstance(asyncio._get_running_loop(), RunLoop) else BODY.get()
    if body is None:
        raise refused(NotInRun(f"{what}() is for a step's body."))
    return body


class _Text(str):
    """A value that is already encoded."""

    __slots__ = ()


class Progress(Generic[T]):
    """Save and restore a step's progress: `async with progress(str) as p`, or `with`.

    `p.value` is the value saved last, in any execution or attempt of the step. None if there is
    none.
    """

    # 16 attributes: where to save, the value that is not written yet, and the state of the write.

    def __init__(
        self,
        body: StepExecution,
        codec: Codec,
        *,
        part: str = "",
        what: str = "progress",
        frozen: bool = False,
    ) -> None:
        """Load the saved progress of a step.

        `part` names the part of the step that makes progress, and `what` is its name in messages.
        `frozen` states that no value changes after `save`.
        """
        self._body = body
        self._codec = codec
        self._attempt = body.attempt
        self._execution = body.execution
        self._loop = body.execution.host
        self._key = body.key + part
        self._what = what
        self._frozen = frozen
        self._saved = body.execution.steps.progress
        saved = self._saved.take(self._key, body)
        self.value: T | None = None if saved is None else codec.decode(saved)
        self._next: Any = NOTHING
        """The value that is not written yet."""
        self._writing = self._scheduled = self._left = False
        self._written_at = -1e9
        self._error: BaseException | None = None

    def save(self, value: T) -> None:
        """Save a value. It is written soon.

        Raise Evicted if this execution or attempt is over, or if the step must stop. A value that
        cannot be recorded raises Unrecordable or LimitExceeded, now or when the block is left.
        """
        self._check()
        self._next = value if self._frozen or type(value) in IMMUTABLE else self._encode(value)
        self.value = value
        if self._left:
            self._keep()
            self._check()
        elif not self._scheduled:
            self._scheduled = True
            self._on_loop(self._schedule)
        self._stop()

    def check(self) -> None:
        """Raise Evicted if this execution or attempt is over, or if the step must stop.

        Like `save` without a value.
        """
        self._check()
        self._stop()

    def _stop(self) -> None:
        body = self._body.outer
        if body.must_stop:
            # A thread can be stopped only here.
            self._loop.call_soon_threadsafe(self.flush)
            body.drain.note_aware()
            raise Evicted(body.leaving or "")

    def _is_over(self) -> bool:
        """Return whether another attempt of this step, or of one around it, has replaced this."""
        return self._body.attempt != self._attempt or not self._saved.is_owner(
            self._key, self._body
        )

    def _check(self) -> None:
        self._execution.check_active()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._is_over():
            raise Evicted("this attempt of the step has been replaced by another one")

    def _encode(self, value: T) -> _Text:
        text = _Text(self._codec.encode(value))
        self._execution.services.check_size(text, f"the {self._what} of step {self._body.name}")
        return text

    def _on_loop(self, action: Callable[[], None]) -> None:
        """Call an action on the host loop's thread. The step may execute in another thread."""
        if threading.get_ident() == self._execution.services.host_thread:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    def _schedule(self) -> None:
        """Flush now, or once `progress_interval` has passed since the last write.

        Runs on the host loop.
        """
        pause = (
            self._written_at
            + self._execution.services.settings.progress_interval
            - self._loop.time()
        )
        if pause <= 0:
            self.flush()
        else:
            self._loop.call_later(pause, self.flush)

    def flush(self) -> None:
        """Write the last value. Runs on the host loop.

        If a write is in flight, another one follows it.
        """
        if self._writing:
            # `_written` calls this again.
            return
        # Reset the flag before reading the value: a thread that saves now schedules another flush.
        self._scheduled = False
        if self._next is NOTHING or self._execution.end_reason is not None:
            return
        value, self._next = self._next, NOTHING
        if self._is_over():
            return
        try:
            text = value if isinstance(value, _Text) else self._encode(value)
        except (Unrecordable, LimitExceeded) as error:
            self._error = error
            return
        self._writing = True
        self._written_at = self._loop.time()
        self._remember(text)
        recording.save(
            self._execution,
            SaveProgress(
                self._execution.pk, self._execution.fence, self._key, self._attempt, str(text)
            ),
            self._written,
        )

    def flush_at_once(self) -> None:
        """Submit the last value even if another write is in flight. Runs on the host loop."""
        self._writing = False
        self.flush()

    def _written(self, outcome: Any) -> None:
        self._writing = False
        if isinstance(outcome, (Refused, StoreError)):
            # The execution is over. The next call raises that.
            return
        self._scheduled = False
        if self._next is not NOTHING:
            if self._left or self._body.outer.leaving is not None:
                self.flush()
            else:
                self._scheduled = True
                self._schedule()

    def _remember(self, text: str) -> None:
        """Keep the text for the next attempt in this execution.

        Do nothing if this attempt is over: the next one may have saved more.
        """
        if not self._is_over():
            self._saved.remember(self._key, str(text))

    def _keep(self) -> None:
        """Write the last value now. If it cannot be recorded, the next `_check` raises that."""
        value = self._next
        if value is not NOTHING and not isinstance(value, _Text):
            try:
                self._next = self._encode(value)
            except (Unrecordable, LimitExceeded) as unfit:
                self._next = NOTHING
                self._error = unfit
        if isinstance(self._next, _Text):
            # Remember the value at once: the next attempt does not wait for the write.
            self._remember(self._next)
        self._on_loop(self.flush)

    # -- the context manager

    def __enter__(self) -> Self:
        self._left = False
        self._body.outer.drain.progress.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        progress = self._body.outer.drain.progress
        if self in progress:
            progress.remove(self)
        self._left = True
        self._keep()
        if error is None and self._error is not None:
            self._check()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
        await asyncio.sleep(0)
