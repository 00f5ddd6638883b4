"""Clean-up: what a program wants done before it ends. Newest first, each for a bounded time; one that fails is reported, and the
next is called all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.drain.report import CleanUp

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.drain")

Hook = Callable[[], Awaitable[Any] | Any]
SHARE_MIN = 0.05
"""Seconds that every hook has, whatever is left."""
STOP_SECONDS = 0.05
"""How long one that is cancelled may take to end."""


class Task(NamedTuple):
    name: str
    hook: Hook
    timeout: float | None
    in_thread: bool
    """A plain function may block: it gets a thread."""
    here: bool = False
    """It must end in the task that it began in: a lifespan."""


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
            tasks.append(Task("lifespan", lifespan, None, in_thread=False, here=True))
        self._tasks = []
        clock, outcomes = house.loop.time, list[CleanUp]()
        until = clock() + seconds
        for number, task in enumerate(tasks):
            began = clock()
            share = max(SHARE_MIN, (until - began) / (len(tasks) - number))
            error = await _bounded(house, task, share if task.timeout is None else min(share, task.timeout))
            outcomes.append(CleanUp(task.name, round(clock() - began, 4), error))
        return outcomes


async def _bounded(house: House, task: Task, seconds: float) -> str | None:
    """What went wrong, if anything did."""
    before = _cancellations()
    try:
        in_time = await (_here if task.here else _in_a_task)(house, task, seconds)
    except asyncio.CancelledError as error:
        if _cancellations() > before:
            raise  # not its own doing: whoever waits for it was cancelled
        log.exception("clean-up %s failed", task.name)
        return repr(error)
    except Exception as error:
        log.exception("clean-up %s failed", task.name)
        return repr(error)
    if in_time:
        return None
    log.error("clean-up %s took longer than its %.2f s", task.name, seconds)
    return f"it took longer than its {seconds:.2f} s"


async def _in_a_task(house: House, task: Task, seconds: float) -> bool:
    """Whether it ended in time. One that swallows its cancellation is left behind."""
    calling = house.loop.create_task(_call(house, task))
    try:
        await asyncio.wait([calling], timeout=seconds)
    finally:
        calling.cancel()
    if calling.done():
        calling.result()
        return True
    await asyncio.wait([calling], timeout=STOP_SECONDS)
    calling.add_done_callback(_seen)
    return False


async def _here(house: House, task: Task, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds) as limit:
            await _call(house, task)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


async def _call(house: House, task: Task) -> None:
    if task.in_thread:
        answer = await house.pool.run(house.loop, copy_context(), task.hook)
    else:
        answer = task.hook()
    if isawaitable(answer):
        await answer


def _cancellations() -> int:
    current = asyncio.current_task()
    return 0 if current is None else current.cancelling()


def _seen(calling: asyncio.Task[None]) -> None:
    if not calling.cancelled():
        calling.exception()
