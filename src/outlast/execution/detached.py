"""Run tasks of Outlast that finish even if their surroundings are cancelled.

Outlast must know what still executes before it deregisters a worker. The task that leaves an app
may be cancelled, for example by a time-out around its block. A loop that ends, as in `asyncio.run`,
cancels every task that it finds.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")


def spawn_detached(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]
) -> asyncio.Task[T]:
    """Create a task that the end of the loop does not find.

    A task that the loop does find must wait for it with `wait_uncancelled`.
    """
    task = asyncio.Task(work, loop=loop)
    asyncio._unregister_task(task)
    return task


async def wait_uncancelled(
    work: asyncio.Future[T], on_cancelled: Callable[[], object] = lambda: None
) -> T:
    """Wait until `work` has ended, however often the waiting task is cancelled.

    Call `on_cancelled` at each cancellation, and raise the last one when `work` has ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as again:
            cancelled = again
            on_cancelled()
    try:
        return work.result()
    finally:
        if cancelled is not None:
            raise cancelled


class Shield:
    """Let a cancelled anyio scope interrupt a block at most once, like a cancellation of asyncio.

    anyio cancels the tasks of a cancelled scope at every turn of the loop until they have left it.
    A task that must wait all the same would keep the loop spinning. In a scope that is already
    cancelled on entry, the block is not interrupted at all. If the program does not use anyio, this
    does nothing.
    """

    def __init__(self) -> None:
        self._scope: Any = None

    def __enter__(self) -> Self:
        anyio: Any = sys.modules.get("anyio")
        if anyio is not None:
            is_cancelled = anyio.current_effective_deadline() == -math.inf
            self._scope = anyio.CancelScope(shield=is_cancelled)
            self._scope.__enter__()
        return self

    def raise_up(self) -> None:
        """Block all further cancellations by anyio scopes."""
        if self._scope is not None:
            self._scope.shield = True

    def __exit__(self, *exc: object) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(*exc))
