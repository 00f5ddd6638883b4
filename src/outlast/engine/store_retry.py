"""Retry an action while the store is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outlast.errors import StoreUnavailable

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 0.5


async def patiently(
    action: Callable[[], Awaitable[None]],
    seconds: float,
    *,
    until: Callable[[], bool] = lambda: False,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Await the action, and repeat it while it raises StoreUnavailable.

    Stop after `seconds`, or when `until` returns True, and raise the last error. Report the first
    one with `report`.
    """
    loop = asyncio.get_running_loop()
    deadline, pause, is_first = loop.time() + seconds, PAUSE_SECONDS, True
    while True:
        try:
            return await action()
        except StoreUnavailable as error:
            if until() or loop.time() + pause > deadline:
                raise
            if is_first:
                is_first = False
                report(f"waiting for the store, up to {seconds:g} s: {error}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, PAUSE_SECONDS_MAX)
