"""Execute agents that are a `while True` loop until a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import Draining

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

R = TypeVar("R")


async def until_drain(engine: Engine, coro: Coroutine[Any, Any, R]) -> R | None:
    """Execute a coroutine and return its result, or None if a drain came first.

    The drain cancels the coroutine after the units that it is in have ended.
    """
    shutdown = engine.shutdown
    if shutdown.begun:
        coro.close()
        return None
    task = engine.loop.create_task(coro)
    token = engine.active_scopes.enter("agent", getattr(coro, "__qualname__", "run_until_drain"))
    begin: list[asyncio.Future[Any]] = [task, shutdown.announced]
    end: list[asyncio.Future[Any]] = [task, shutdown.finished]
    try:
        await asyncio.wait(begin, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await engine.drain.wait_until_free("unit")
            task.cancel(f"drain: {shutdown.reason}")
            await asyncio.wait(end, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        # The caller was cancelled.
        task.cancel()
        if not task.done():
            await asyncio.wait(end, return_when=asyncio.FIRST_COMPLETED)
        raise
    finally:
        task.add_done_callback(_seen)
        # Leave the scope only after the caller knows: the program may exit once no scope is active.
        if task.done():
            engine.active_scopes.leave(token)
        else:
            task.add_done_callback(lambda _: engine.active_scopes.leave(token))
    try:
        return task.result() if task.done() else None
    except (asyncio.CancelledError, Draining):
        if not shutdown.begun:
            raise
        return None


def _seen(task: asyncio.Task[Any]) -> None:
    """Mark the task's exception as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
