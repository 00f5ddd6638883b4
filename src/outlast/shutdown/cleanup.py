"""Clean-up: what a program wants done before it ends. Newest first, each for a bounded time; one that fails is reported, and the
next is called all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.shutdown.report import CleanupResult

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

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


class CleanupRunner:
    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._calling: asyncio.Task[None] | None = None

    def add(self, hook: Hook, timeout: float | None = None) -> None:
        name = getattr(hook, "__qualname__", None) or repr(hook)
        in_thread = not (
            iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004
        )
        self._tasks.append(Task(name, hook, timeout, in_thread))

    async def run(self, engine: Engine, seconds: float, before: int = 0) -> list[CleanupResult]:
        """All of them, in so many seconds. Each has an equal part of what is left, or its own time-out if that is shorter; so have those
        that they come before."""
        tasks, self._tasks = self._tasks[::-1], []
        clock, outcomes = engine.loop.time, list[CleanupResult]()
        until = clock() + seconds
        for number, task in enumerate(tasks):
            share = max(SHARE_MIN, (until - clock()) / (len(tasks) - number + before))
            part = share if task.timeout is None else min(share, task.timeout)
            self._calling = engine.loop.create_task(_call(engine, task))
            outcomes.append(await _bounded(engine, task.name, _in_time(self._calling, part), part))
        return outcomes

    def cut(self) -> None:
        """Cancel the one that is being called: whoever waits for it was cancelled. The next is called all the same."""
        if self._calling is not None:
            self._calling.cancel()


async def end(
    engine: Engine, name: str, hook: Callable[[], Awaitable[Any]], until: float
) -> CleanupResult:
    """One that must end in the task that it began in: a lifespan."""
    part = max(SHARE_MIN, until - engine.loop.time())
    return await _bounded(engine, name, _here(hook, part), part)


async def _bounded(
    engine: Engine, name: str, ending: Coroutine[Any, Any, bool], seconds: float
) -> CleanupResult:
    """What came of it: whether it ended in time, and what went wrong if anything did."""
    before, began, error = _cancellations(), engine.loop.time(), None
    try:
        if not await ending:
            log.error("clean-up %s took longer than its %.2f s", name, seconds)
            error = f"it took longer than its {seconds:.2f} s"
    except (Exception, asyncio.CancelledError) as raised:
        if isinstance(raised, asyncio.CancelledError) and _cancellations() > before:
            raise  # not its own doing: whoever waits for it was cancelled
        log.exception("clean-up %s failed", name)
        error = repr(raised)
    return CleanupResult(name, round(engine.loop.time() - began, 4), error)


async def _in_time(calling: asyncio.Task[None], seconds: float) -> bool:
    """Whether it ended in time. One that swallows its cancellation is left behind."""
    try:
        await asyncio.wait([calling], timeout=seconds)
    finally:
        calling.cancel()
    if calling.done():
        gone = None if calling.cancelled() else calling.exception()
        if isinstance(
            gone, (SystemExit, KeyboardInterrupt)
        ):  # its task has let it out of the loop already
            raise RuntimeError(f"it ended the program: {gone!r}")
        calling.result()
        return True
    await asyncio.wait([calling], timeout=STOP_SECONDS)
    calling.add_done_callback(_seen)
    return False


async def _here(hook: Callable[[], Awaitable[Any]], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds) as limit:
            await hook()
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


async def _call(engine: Engine, task: Task) -> None:
    if task.in_thread:
        answer = await engine.pool.run(engine.loop, copy_context(), task.hook)
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
