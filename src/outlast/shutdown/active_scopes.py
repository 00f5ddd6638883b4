"""What a drain waits for beside the steps of runs: units, items of `each`, calls of `map`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class ActiveScope(NamedTuple):
    kind: str
    """unit, each or map."""
    name: str
    since: float
    """On the monotonic clock."""
    task: asyncio.Task[Any] | None
    thread: int | None
    """Whose it is: a task's, or in a sync program a thread's."""

    def goes_on(self, without: int | None, leaver: asyncio.Task[Any] | None) -> bool:
        """Whether it still executes, although this Outlast is being left: by the task `leaver`, or by the thread `without`."""
        if self.thread is not None:
            alive = any(thread.ident == self.thread for thread in threading.enumerate())
            return alive and self.thread != without
        return self.task is not None and not self.task.done() and self.task is not leaver


class ActiveScopes:
    """May be entered and left in any thread."""

    def __init__(self, left: Callable[[ActiveScope], None]) -> None:
        self._left = left
        """Called, from any thread, with what was left."""
        self._under_way: dict[object, ActiveScope] = {}

    def enter(self, kind: str, name: str, *, thread: int | None = None) -> object:
        """Something begins that a drain must not cut. The token is for `leave`."""
        token = object()
        task = None if asyncio._get_running_loop() is None else asyncio.current_task()
        self._under_way[token] = ActiveScope(kind, name, time.monotonic(), task, thread)
        return token

    def leave(self, token: object) -> None:
        """It has ended. A repeat is harmless."""
        scope = self._under_way.pop(token, None)
        if scope is not None:
            self._left(scope)

    def __iter__(self) -> Iterator[ActiveScope]:
        return iter(list(self._under_way.values()))

    def __len__(self) -> int:
        return len(self._under_way)
