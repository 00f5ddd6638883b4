"""Name where an execution commits and reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from outlast.store.commands import Command
from outlast.store.protocol import Store

T = TypeVar("T")

Done = Callable[[Any, Any], None]
"""Receives a command and the store's answer."""


class Enqueue(Protocol):
    """Submit a command without waiting. `alone` says that no other run could share the commit."""

    def __call__(self, command: Command, done: Done, *, alone: bool = False) -> None: ...


class Execute(Protocol):
    """Submit a command and wait for the store's answer. Raise StoreError if there is none."""

    def __call__(self, command: Command, *, alone: bool = False) -> Awaitable[Any]: ...


class Read(Protocol):
    """Read from the backend in a thread."""

    def __call__(self, fn: Callable[..., T], *args: Any) -> Awaitable[T]: ...


@dataclass(slots=True)
class StoreAccess:
    """The store, as executions use it."""

    backend: Store
    """What `read` reads from. It blocks, so nothing calls it on the event loop."""
    now: Callable[[], float]
    """The store's clock."""
    enqueue: Enqueue
    execute: Execute
    read: Read
