"""Execute an engine inline: blocking calls and commits happen on the loop, on its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from outlast.engine.background import Background
from outlast.engine.execution_mode import ExecutionMode
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.writer.inline_writer import InlineWriter

T = TypeVar("T")


class InlineBackground(Background):
    """Call blocking functions directly. Steps still have threads.

    `detached` gets the detached tasks. A test in which a process dies finds them there, because
    their objects survive.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shutdown: ShutdownState,
        log_values: int,
        detached: WeakSet[asyncio.Task[Any]] | None = None,
    ) -> None:
        super().__init__(loop, shutdown, log_values)
        self._detached = detached

    def spawn_detached(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Execute a coroutine in a task that the end of the loop does not find."""
        task = super().spawn_detached(work)
        if self._detached is not None:
            self._detached.add(task)
        return task

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call the function and return its result."""
        return fn(*args)


INLINE = ExecutionMode(writer=InlineWriter, background=InlineBackground, threads=False)
"""The mode of an app on a virtual clock."""
