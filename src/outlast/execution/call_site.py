"""Hold the state of a run's call until an entry answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from outlast.execution.source_lines import Line
from outlast.store.rows import EntryKind

if TYPE_CHECKING:
    from outlast.codec.error_codec import ErrorCodec
    from outlast.execution.effect_call import EffectCall


class EffectSite:
    """The effect that is called at a call site."""

    __slots__ = ("call", "text", "undone", "units", "watchers")

    def __init__(self, call: EffectCall, units: tuple[str, ...] = ()) -> None:
        self.call = call
        self.units = units
        """The names of the units around the call, outermost first."""
        self.text: str | None = None
        """The recorded result of an effect that happened."""
        self.undone = False
        """True if the effect was compensated in this execution."""
        self.watchers: list[asyncio.Future[None]] = []
        """Futures of other tasks that wait for the answer."""


class CallSite:
    """The call site of a step, child, effect or session call.

    The plain call reserves it, before any await, so that the order follows the text of the code.
    """

    # 18 attributes: the call, the coroutine that waits for it, its cancellation and its answer.
    # They are one object because every step has one, and more objects would cost every step.
    __slots__ = (
        "args",
        "asked",
        "awaited",
        "child",
        "codec",
        "coro",
        "delivered",
        "effect",
        "error",
        "errors",
        "future",
        "key",
        "kind",
        "launch",
        "line",
        "messages",
        "stop",
        "value",
    )

    def __init__(self, kind: EntryKind, key: str, args: str | None) -> None:
        self.kind = kind
        self.key = key
        self.args = args
        self.line: Line | None = None
        """The line of the workflow that made the call."""
        self.codec: Any = None
        self.errors: ErrorCodec | None = None
        """Rebuilds the errors of a step that has a codec of its own."""
        self.effect: EffectSite | None = None
        """The effect to execute here. None for other calls."""
        self.coro: Coroutine[Any, Any, Any] | None = None
        """The coroutine that the call returned, until it is awaited."""
        self.awaited = False
        """True if the workflow has awaited the call."""
        self.launch: Callable[[Any, CallSite], None] | None = None
        """Starts the call, given the execution and this call site. It must not hold the call
        site, which holds it. Set once the call is awaited."""
        self.stop: Callable[[], None] | None = None
        """Asks the started call to stop."""
        self.asked = False
        """True if the started call has been asked to stop."""
        self.child: str | None = None
        """The id of a child run, once it is in the store."""
        self.messages: tuple[Any, ...] = ()
        """The messages of the cancellations of the task that waits here, each once."""
        self.future: asyncio.Future[None] | None = None
        self.delivered = False
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether the workflow has cancelled the task that waits here."""
        return bool(self.messages)

    def cancelled_by(self, message: Any) -> bool:
        """Note a cancellation of the task that waits here. Return False for a repetition.

        A cancelled anyio scope cancels its tasks repeatedly with the same message.
        """
        if message is not None and message in self.messages:
            return False
        self.messages = (*(one for one in self.messages if one != message), message)
        return True

    def cancelled_error(self) -> asyncio.CancelledError:
        """Return the CancelledError for the task, with the message of the latest cancellation."""
        return asyncio.CancelledError(*[one for one in self.messages[-1:] if one is not None])

    def wake(self) -> None:
        """Wake the task that waits here, and those that watch an effect."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)
        if self.effect is not None:
            for watcher in self.effect.watchers:
                if not watcher.done():
                    watcher.set_result(None)

    def __str__(self) -> str:
        return f"{self.kind} {self.key}({self.args or ''})"


def child_id(parent: str, key: str, length_max: int) -> str:
    """Return the id of the child run at a call site.

    It is the same in every execution of the parent.
    """
    id = f"{parent}/{key}"
    if len(id) <= length_max:
        return id
    return f"{id[: length_max - 40]}…{blake2b(id.encode(), digest_size=16).hexdigest()}"
