"""A place: where a run's call waits for the entry that answers it."""

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
    """Taken by the plain call of a step or child, before any await, so that order follows the text of the code."""

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
        """Starts what is called, given the life and this place: it must not hold the place, which holds it. Set once the
        call is awaited."""
        self.stop: Callable[[], None] | None = None
        """Asks what was started to stop."""
        self.codec: Any = None
        self.coro: Coroutine[Any, Any, Any] | None = None
        """What the call returned, as long as nobody has awaited it."""
        self.context: Context | None = None
        """Of the call, if it could not be started at once."""
        self.cancelled = False
        """The workflow has cancelled the task that waits here."""
        self.awaited = False
        """The workflow has awaited the call."""
        self.messages: tuple[Any, ...] = ()
        """The messages of those cancellations, each once."""
        self.line: Line | None = None
        """The line of the workflow that made the call."""
        self.asked = False
        """What was started has been asked to stop."""
        self.child: str | None = None
        """The id of a child run, once it is in the store."""
        self.effect_call: EffectCall | None = None
        """What an effect is to do here."""
        self.text: str | None = None
        """Of an effect that has happened: its result, as it is recorded."""
        self.undone = False
        """It was compensated in this life."""
        self.units: tuple[str, ...] = ()
        """The names of the units that an effect was called in, outermost first."""
        self.watchers: list[asyncio.Future[None]] = []
        """Who else wants to know when it is answered."""
        self.delivered = False
        self.value: Any = None
        self.error: BaseException | None = None

    def cancelled_by(self, message: Any) -> bool:
        """Note a cancellation of the task that waits here. Return False for a mere repetition.

        A cancelled scope of anyio cancels its tasks again and again, with one message.
        """
        if message is not None and message in self.messages:
            return False
        self.cancelled = True
        self.messages = (*(one for one in self.messages if one != message), message)
        return True

    def cancelled_error(self) -> asyncio.CancelledError:
        """Return what the cancelled task is to get: with the message of the latest cancellation."""
        return asyncio.CancelledError(*[one for one in self.messages[-1:] if one is not None])

    def wake(self) -> None:
        for future in (self.future, *self.watchers):
            if future is not None and not future.done():
                future.set_result(None)

    def __str__(self) -> str:
        return f"{self.kind} {self.key}({self.args or ''})"


def child_id(parent: str, key: str, length_max: int) -> str:
    """The id of the child run at a place: every life of the parent finds the same one."""
    id = f"{parent}/{key}"
    if len(id) <= length_max:
        return id
    return f"{id[: length_max - 40]}…{blake2b(id.encode(), digest_size=16).hexdigest()}"
