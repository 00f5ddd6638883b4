"""Hold what the steps of one execution have opened and share: a browser, a connection.

A resource belongs to one execution of a run. The first step that asks opens it, and it is closed
when the execution ends. Nothing of it is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from typing import Any

from outlast.execution.step_execution import BODY

log = logging.getLogger("outlast.replay")
Open = Callable[[], AbstractAsyncContextManager[Any]]


class OpenResource:
    """One resource, held open by a task of its own.

    The task that opens it also closes it: what is built on anyio requires that.
    """

    __slots__ = ("_release", "task", "value")

    def __init__(self, host: asyncio.AbstractEventLoop, name: str, open: Open) -> None:
        self.value: asyncio.Future[Any] = host.create_future()
        self._release = asyncio.Event()
        context = copy_context()
        # The resource outlives the step that opens it.
        context.run(BODY.set, None)
        self.task = asyncio.Task(self._hold(name, open), loop=host, name=name, context=context)

    async def _hold(self, name: str, open: Open) -> None:
        try:
            async with open() as value:
                self.value.set_result(value)
                await self._release.wait()
        except asyncio.CancelledError:
            self.value.cancel()
            raise
        except Exception as error:
            if self.value.done():
                log.error("Failed to close resource %s.", name, exc_info=error)
                return
            self.value.set_exception(error)
            # Mark the exception as retrieved: the step that asked may have been cancelled.
            self.value.exception()

    def close(self) -> None:
        """Ask the task to close the resource, or to stop opening it."""
        if self.value.done():
            self._release.set()
        else:
            self.task.cancel()


class Resources:
    """The open resources of one execution, by definition and arguments. For the host loop."""

    __slots__ = ("_host", "_open")

    def __init__(self, host: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._open: dict[Hashable, OpenResource] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    async def get(self, key: Hashable, name: str, open: Open) -> Any:
        """Return the resource, and open it first if no step has.

        If opening fails, every step that waits for it gets the error, and the next one that asks
        tries again.
        """
        found = self._open.get(key)
        if found is None or found.task.done():
            found = self._open[key] = OpenResource(self._host, name, open)
        return await asyncio.shield(found.value)

    async def close(self, key: Hashable) -> None:
        """Close one resource. The next step that asks opens it again."""
        found = self._open.pop(key, None)
        if found is not None:
            found.close()
            await asyncio.wait([found.task])

    async def close_all(self, seconds: float) -> None:
        """Close all resources. After `seconds`, cancel what has not closed and do not wait."""
        tasks = {one.task for one in self._open.values()}
        for one in self._open.values():
            one.close()
        self._open.clear()
        if not tasks:
            return
        _, slow = await asyncio.wait(tasks, timeout=seconds)
        for task in slow:
            log.warning(
                "Resource %s did not close within %.3g s and is cancelled.",
                task.get_name(),
                seconds,
            )
            task.cancel()
