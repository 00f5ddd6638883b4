"""Hold the state of a run's call until an entry answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from outlast.execution.source_lines import Line

if TYPE_CHECKING:
    from outlast.execution.effect_call import EffectCall


class CallSite:
    """The call site of a step, child, effect or session call.

    The plain call reserves it, before any await, so that the order follows the text of the code.
    """

    __slots__ = (
        "args",
        "asked",
        "awaited",
        "cancelled",
        "child",
        "codec",
        "context",
        "coro",
        "delivered",
        "effect_call",
        "error",
        "future",
        "key",
        "kind",
        "launch",
        "line",
        "messages",
        "stop",
        "text",
        "undone",
        "units",
        "value",
        "watchers",
    )

    def __init__(self, kind: str, key: str, args: str | None) -> None:
        self.kind, self.key, self.args = kind, key, args
        self.future: asyncio.Future[None] | None = None
        self.launch: Callable[[Any, CallSite], None] | None = None
        """Starts the call, given the execution and this call site. It must not hold the call
        site, which holds it. Set once the call is awaited."""
        self.stop: Callable[[], None] | None = None
        """Asks the started call to stop."""
        self.codec: Any = None
        self.coro: Coroutine[Any, Any, Any] | None = None
        """The coroutine that the call returned, until it is awaited."""
        self.context: Context | None = None
        """The context of the call, if the call could not start at once."""
        self.cancelled = False
        """True if the workflow has cancelled the task that waits here."""
        self.awaited = False
        """True if the workflow has awaited the call."""
        self.messages: tuple[Any, ...] = ()
        """The messages of those cancellations, each once."""
        self.line: Line | None = None
        """The line of the workflow that made the call."""
        self.asked = False
        """True if the started call has been asked to stop."""
        self.child: str | None = None
        """The id of a child run, once it is in the store."""
        self.effect_call: EffectCall | None = None
        """The effect call to execute here. None for other calls."""
        self.text: str | None = None
        """The recorded result of an effect that happened."""
        self.undone = False
        """True if the effect was compensated in this execution."""
        self.units: tuple[str, ...] = ()
        """The names of the units around the effect call, outermost first."""
        self.watchers: list[asyncio.Future[None]] = []
        """Futures of other tasks that wait for the answer."""
        self.delivered = False
        self.value: Any = None
        self.error: BaseException | None = None

    def cancelled_by(self, message: Any) -> bool:
        """Note a cancellation of the task that waits here. Return False for a repetition.

        A cancelled anyio scope cancels its tasks repeatedly with the same message.
        """
        if message is not None and message in self.messages:
            return False
        self.cancelled = True
        self.messages = (*(one for one in self.messages if one != message), message)
        return True

    def cancelled_error(self) -> asyncio.CancelledError:
        """Return the CancelledError for the task, with the message of the latest cancellation."""
        return asyncio.CancelledError(*[one for one in self.messages[-1:] if one is not None])

    def wake(self) -> None:
        for future in (self.future, *self.watchers):
            if future is not None and not future.done():
                future.set_result(None)

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
