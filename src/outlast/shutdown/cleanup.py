"""Call a program's clean-up hooks before it ends, newest first, each for a bounded time.

A failing hook is reported, and the next one is still called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from outlast.execution.threads import Pool
    from outlast.shutdown.report import CleanupResult

log = logging.getLogger("outlast.drain")

Hook = Callable[[], Awaitable[Any] | Any]
SHARE_MIN = 0.05
"""Minimum seconds for every hook, even if less time is left."""
STOP_SECONDS = 0.05
"""How long a cancelled hook may take to end."""


class Task(NamedTuple):
    """One registered clean-up hook."""

    name: str
    hook: Hook
    timeout: float | None
    in_thread: bool
    """Whether the hook gets a thread. A plain function may block."""


class CleanupRunner:
    """Keep the clean-up hooks of an app, and call them."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._calling: asyncio.Task[None] | None = None

    def add(self, hook: Hook, timeout: float | None = None) -> None:
        """Add a hook that may take at most `timeout` seconds."""
        if not callable(hook):
            raise TypeError(f"on_cleanup() takes a function, not {hook!r}.")
        name = getattr(hook, "__qualname__", None) or repr(hook)
        call = getattr(hook, "__call__", None)  # noqa: B004 - an object may have an async __call__
        in_thread = not (iscoroutinefunction(hook) or iscoroutinefunction(call))
        self._tasks.append(Task(name, hook, timeout, in_thread))

    async def run(self, pool: Pool, seconds: float, before: int = 0) -> list[CleanupResult]:
        """Call all hooks within `seconds`, and return their results. `pool` has their threads.

        Each hook gets an equal part of the time left, or its own timeout if that is shorter.
        `before` parts are reserved for steps that follow.
        """
        loop = asyncio.get_running_loop()
        tasks, self._tasks = self._tasks[::-1], []
        outcomes: list[CleanupResult] = []
        until = loop.time() + seconds
        for number, task in enumerate(tasks):
            share = max(SHARE_MIN, (until - loop.time()) / (len(tasks) - number + before))
            part = share if task.timeout is None else min(share, task.timeout)
            self._calling = loop.create_task(_call(pool, task))
            outcomes.append(await _bounded(task.name, _in_time(self._calling, part), part))
        return outcomes

    def cut(self) -> None:
        """Cancel the current hook, because the task that waits for it was cancelled.

        The next hook is still called.
        """
        if self._calling is not None:
            self._calling.cancel()


async def end(name: str, hook: Callable[[], Awaitable[Any]], until: float) -> CleanupResult:
    """Call a hook that must end in the task it began in, such as a lifespan. Return its result."""
    part = max(SHARE_MIN, until - asyncio.get_running_loop().time())
    return await _bounded(name, _here(hook, part), part)


async def _bounded(name: str, ending: Coroutine[Any, Any, bool], seconds: float) -> CleanupResult:
    """Return the result of a hook: whether it ended in time, and its error.

    Raise CancelledError if the waiting task was cancelled, not the hook.
    """
    from outlast.shutdown.report import CleanupResult

    clock = asyncio.get_running_loop().time
    before = _cancellations()
    began = clock()
    error = None
    try:
        if not await ending:
            log.error(
                "Clean-up hook %s took longer than its %.2f s and was stopped.", name, seconds
            )
            error = f"it took longer than its {seconds:.2f} s"
    except (Exception, asyncio.CancelledError) as raised:
        if isinstance(raised, asyncio.CancelledError) and _cancellations() > before:
            # The waiting task was cancelled, not the hook.
            raise
        log.exception("Clean-up hook %s failed. The remaining hooks still run.", name)
        error = repr(raised)
    return CleanupResult(name, round(clock() - began, 4), error)


async def _in_time(calling: asyncio.Task[None], seconds: float) -> bool:
    """Return whether a hook ended in time. A hook that swallows its cancellation is left behind."""
    try:
        await asyncio.wait([calling], timeout=seconds)
    finally:
        calling.cancel()
    if calling.done():
        gone = None if calling.cancelled() else calling.exception()
        # The task has raised it out of the loop already.
        if isinstance(gone, (SystemExit, KeyboardInterrupt)):
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


async def _call(pool: Pool, task: Task) -> None:
    if task.in_thread:
        answer = await pool.run(asyncio.get_running_loop(), copy_context(), task.hook)
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
