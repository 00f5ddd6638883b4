"""Clean-up: what a program wants done before it ends. Newest first, each for a bounded time; one that fails is reported, and the
next is called all the same."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.drain.report import CleanUp

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.drain")

Hook = Callable[[], Awaitable[Any] | Any]


class Task(NamedTuple):
    name: str
    hook: Hook
    timeout: float | None
    in_thread: bool
    """A plain function may block: it gets a thread."""


class Cleanup:
    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def add(self, hook: Hook, timeout: float | None = None) -> None:
        name = getattr(hook, "__qualname__", None) or repr(hook)
        in_thread = not (iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)))  # noqa: B004
        self._tasks.append(Task(name, hook, timeout, in_thread))

    async def run(self, house: House, seconds: float, lifespan: Hook | None = None) -> list[CleanUp]:
        """All of them, and then the end of the lifespan, in so many seconds. Each has an equal part of what is left, or its own
        time-out if that is shorter."""
        tasks = self._tasks[::-1]
        if lifespan is not None:
            tasks.append(Task("lifespan", lifespan, None, in_thread=False))
        self._tasks = []
        until, outcomes = time.monotonic() + seconds, list[CleanUp]()
        for number, task in enumerate(tasks):
            share = max(0.05, (until - time.monotonic()) / (len(tasks) - number))
            began = time.monotonic()
            error = await _bounded(house, task, share if task.timeout is None else min(share, task.timeout))
            outcomes.append(CleanUp(task.name, round(time.monotonic() - began, 4), error))
        return outcomes


async def _bounded(house: House, task: Task, seconds: float) -> str | None:
    """What went wrong, if anything did."""
    try:
        async with asyncio.timeout(seconds) as limit:
            if task.in_thread:
                answer = await house.pool.run(house.loop, copy_context(), task.hook)
            else:
                answer = task.hook()
            if isawaitable(answer):
                await answer
    except TimeoutError as error:
        if not limit.expired():
            log.exception("clean-up %s failed", task.name)
            return repr(error)
        log.error("clean-up %s took longer than its %.2f s", task.name, seconds)  # noqa: TRY400 - nothing to trace
        return f"it took longer than its {seconds:.2f} s"
    except Exception as error:
        log.exception("clean-up %s failed", task.name)
        return repr(error)
    return None
