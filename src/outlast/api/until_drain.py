"""Agents that are a `while True`: executed until a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import Draining

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

R = TypeVar("R")


async def until_drain(engine: Engine, coro: Coroutine[Any, Any, R]) -> R | None:
    """What it returns, or None if a drain came first: then it was cancelled, after the units it was in."""
    drain = engine.drain
    if engine.draining:
        coro.close()
        return None
    task = engine.loop.create_task(coro)
    token = engine.active_scopes.enter("agent", getattr(coro, "__qualname__", "run_until_drain"))
    begin: list[asyncio.Future[Any]] = [task, drain.started]
    end: list[asyncio.Future[Any]] = [task, drain.over]
    try:
        await asyncio.wait(begin, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await drain.wait_until_free("unit")
            task.cancel(f"drain: {drain.reason}")
            await asyncio.wait(end, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # the caller's own
        task.cancel()
        if not task.done():
            await asyncio.wait(end, return_when=asyncio.FIRST_COMPLETED)
        raise
    finally:
        task.add_done_callback(_seen)
        # Not before whoever called is told: what ends the program comes when nothing is occupied any more.
        if task.done():
            engine.active_scopes.leave(token)
        else:
            task.add_done_callback(lambda _: engine.active_scopes.leave(token))
    try:
        return task.result() if task.done() else None
    except (asyncio.CancelledError, Draining):
        if not engine.draining:
            raise
        return None


def _seen(task: asyncio.Task[Any]) -> None:
    """What it raised is raised where somebody waits for it, or nobody wants to know."""
    if not task.cancelled():
        task.exception()
