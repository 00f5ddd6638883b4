"""Execute agents that are a `while True` loop until a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import Draining

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

R = TypeVar("R")
POLL_SECONDS = 0.1


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
            await _wait_for_units(engine)
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


async def _wait_for_units(engine: Engine) -> None:
    """Wait until no unit is open, or until steps get the request to stop."""
    shutdown = engine.shutdown
    reserve = shutdown.checkpoint_reserve + shutdown.exit_reserve
    while any(scope.kind == "unit" for scope in engine.active_scopes):
        left = shutdown.seconds_until(reserve)
        if left <= 0 or shutdown.finished.done():
            return
        await asyncio.sleep(min(POLL_SECONDS, left))


def _seen(task: asyncio.Task[Any]) -> None:
    """Mark the task's exception as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
