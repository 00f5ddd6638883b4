"""Progress: what a step has saved of itself before it ends.

Saving costs the step next to nothing: the last value is kept, and written when the write before it is durable and a moment has
passed. A drain has it written at once. It is fenced by the claim and by the attempt: a thread that outlived its time-out saves
nothing into the next attempt, of its own step or of the step that called it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from outlast.codec.codecs import Codec
from outlast.errors import Evicted, LimitExceeded, NotInRun, StoreError, Unrecordable
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.store.commands import Refused, SaveProgress

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

T = TypeVar("T")
NOTHING: Any = object()
IMMUTABLE = frozenset({str, int, float, bool, type(None)})
"""What cannot change between `save` and the write need not be encoded before."""
_owners: WeakKeyDictionary[RunExecution, dict[str, int]] = WeakKeyDictionary()
"""Which body saves under a key: a step within a step has another one in every attempt of the outer step, each with a first attempt."""


def body_of(what: str) -> StepExecution:
    """The step's body that executes here. NotInRun elsewhere, also in a workflow that a step's body has started."""
    body = None if isinstance(asyncio._get_running_loop(), RunLoop) else BODY.get()
    if body is None:
        raise refused(NotInRun(f"{what}() is for a step's body."))
    return body


class _Text(str):
    """A value that is encoded already."""

    __slots__ = ()


class Progress(Generic[T]):
    """In a step: `async with progress(str) as p`, or `with`. `p.value` is what was saved last, in whatever life or attempt of the step; None if
    nothing was."""

    def __init__(
        self,
        body: StepExecution,
        codec: Codec,
        *,
        part: str = "",
        what: str = "progress",
        frozen: bool = False,
    ) -> None:
        """`part` is what of the step it is the progress of, `what` its name for people; `frozen`: no value changes after `save`."""
        self._body, self._codec, self._attempt = body, codec, body.attempt
        self._execution = body.execution
        self._loop = body.execution.host
        self._key, self._what, self._frozen = body.key + part, what, frozen
        self._keys = _owners.setdefault(self._execution, {})
        self._keys[self._key] = id(body)
        saved = self._execution.saved.get(self._key)
        self.value: T | None = None if saved is None else codec.decode(saved)
        self._next: Any = NOTHING
        """What is not written yet."""
        self._writing = self._scheduled = self._left = False
        self._written_at = -1e9
        self._error: BaseException | None = None

    def save(self, value: T) -> None:
        """Keep a value, which is written soon. Evicted if this life or this attempt is over, or the step must stop.

        A value that cannot be recorded raises here, or at the latest when the block is left.
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
        """As `save`, when there is nothing to save: Evicted if this life or this attempt is over, or the step must stop."""
        self._check()
        self._stop()

    def _stop(self) -> None:
        body = self._body.outer
        if body.leaving is not None and not body.cut:  # a thread can be stopped only here
            self._loop.call_soon_threadsafe(self.flush)
            body.aware = True
            raise Evicted(body.leaving)

    def _is_over(self) -> bool:
        """Whether another attempt, of the step or of one that it is part of, has taken its place."""
        return self._body.attempt != self._attempt or self._keys.get(self._key) != id(self._body)

    def _check(self) -> None:
        if self._execution.end_reason is not None:
            raise self._execution.end_reason
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._is_over():
            raise Evicted("this attempt of the step is over: another one is under way")

    def _encode(self, value: T) -> _Text:
        text = _Text(self._codec.encode(value))
        self._execution.engine.check_size(text, f"the {self._what} of step {self._body.name}")
        return text

    def _on_loop(self, action: Callable[[], None]) -> None:
        """A step's own thread may be another one."""
        if threading.get_ident() == self._execution.engine.thread:
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    def _schedule(self) -> None:
        """On the loop."""
        pause = (
            self._written_at + self._execution.engine.settings.progress_interval - self._loop.time()
        )
        if pause <= 0:
            self.flush()
        else:
            self._loop.call_later(pause, self.flush)

    def flush(self) -> None:
        """On the loop: have the last value written, unless a write is under way, which is followed by another."""
        if self._writing:
            return  # `_written` comes back here
        self._scheduled = False  # before the look: a thread that saves now has it scheduled again
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
        self._writing, self._written_at = True, self._loop.time()
        self._remember(text)
        self._execution.save(
            SaveProgress(
                self._execution.pk, self._execution.fence, self._key, self._attempt, str(text)
            ),
            self._written,
        )

    def _written(self, outcome: Any) -> None:
        self._writing = False
        if isinstance(outcome, (Refused, StoreError)):
            return  # the life is over, and says so at the next call
        self._scheduled = False
        if self._next is not NOTHING:
            if self._left or self._body.outer.leaving is not None:
                self.flush()
            else:
                self._scheduled = True
                self._schedule()

    def _remember(self, text: str) -> None:
        """For the next attempt in this life. Not of an attempt that is over: the next may have saved more."""
        if not self._is_over():
            self._execution.saved[self._key] = str(text)

    def _keep(self) -> None:
        """Have the last value written now. What is wrong with it, the next `_check` says."""
        value = self._next
        if value is not NOTHING and not isinstance(value, _Text):
            try:
                self._next = self._encode(value)
            except (Unrecordable, LimitExceeded) as unfit:
                self._next, self._error = NOTHING, unfit
        if isinstance(self._next, _Text):
            self._remember(self._next)  # at once: the next attempt does not wait for the write
        self._on_loop(self.flush)

    # -- the block

    def __enter__(self) -> Self:
        self._left = False
        self._body.outer.progress.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self in self._body.outer.progress:
            self._body.outer.progress.remove(self)
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
