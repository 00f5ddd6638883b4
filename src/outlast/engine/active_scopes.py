"""Track what a drain waits for besides steps: units, items of `each`, calls of `map`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class ActiveScope(NamedTuple):
    """A unit, an item or a call that is in flight outside of any run."""

    kind: str
    """unit, each, map or agent."""
    name: str
    since: float
    """When it was entered, on the monotonic clock."""
    task: asyncio.Task[Any] | None
    thread: int | None
    """The thread that owns it in a sync program. Otherwise the task does."""

    def goes_on(self, without: int | None, leaver: asyncio.Task[Any] | None) -> bool:
        """Return whether the scope still executes while this Outlast is being left.

        The task `leaver`, or the thread `without`, is the one that leaves.
        """
        if self.thread is not None:
            alive = any(thread.ident == self.thread for thread in threading.enumerate())
            return alive and self.thread != without
        return self.task is not None and not self.task.done() and self.task is not leaver


class ActiveScopes:
    """The active scopes of one engine. They may be entered and left in any thread."""

    def __init__(self, left: Callable[[ActiveScope], None]) -> None:
        self._left = left
        """Called with each scope that was left, from any thread."""
        self._under_way: dict[object, ActiveScope] = {}

    def enter(self, kind: str, name: str, *, thread: int | None = None) -> object:
        """Enter a scope that a drain must not cut, and return the token for `leave`."""
        token = object()
        task = None if asyncio._get_running_loop() is None else asyncio.current_task()
        self._under_way[token] = ActiveScope(kind, name, time.monotonic(), task, thread)
        return token

    def leave(self, token: object) -> None:
        """Leave a scope. A repeated call is harmless."""
        scope = self._under_way.pop(token, None)
        if scope is not None:
            self._left(scope)

    def __iter__(self) -> Iterator[ActiveScope]:
        return iter(list(self._under_way.values()))

    def __len__(self) -> int:
        return len(self._under_way)
