"""Tasks of Outlast's own that come to their end, whoever is cancelled meanwhile.

What still executes must be known before a worker is struck off. The task that leaves an app may be cancelled, as by a time-out around its
block; and a loop that ends, as `asyncio.run` does, cancels every task that it finds.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from weakref import WeakSet

T = TypeVar("T")
_own: WeakSet[asyncio.Task[Any]] = WeakSet()


def spawn_detached(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]
) -> asyncio.Task[T]:
    """A task that the end of the loop does not find. Somebody whom it does find must wait for it, by `wait_uncancelled`."""
    task = asyncio.Task(work, loop=loop)
    asyncio._unregister_task(task)
    _own.add(task)
    return task


def tasks_of(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    """All that have not ended, these too: for tests, in which a process dies and its objects do not."""
    return asyncio.all_tasks(loop) | {
        task for task in _own if task.get_loop() is loop and not task.done()
    }


async def wait_uncancelled(
    work: asyncio.Future[T], on_cancelled: Callable[[], object] = lambda: None
) -> T:
    """Until something has ended that must, however often who waits for it is cancelled; that is raised then. `told` is called each time."""
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
    """Let a cancelled scope of anyio interrupt a block at most once, as a cancellation of asyncio does.

    anyio cancels the tasks of a cancelled scope again at every turn of the loop, until they have left
    it. A task that must wait all the same would keep the loop spinning. Entered in a scope that is
    cancelled already, the block is not interrupted at all. Where the program does not use anyio, this
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
        """Keep out every further cancellation by a scope of anyio."""
        if self._scope is not None:
            self._scope.shield = True

    def __exit__(self, *exc: object) -> bool:
        return self._scope is not None and bool(self._scope.__exit__(*exc))
