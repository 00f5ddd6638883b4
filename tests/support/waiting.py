"""Wait for something observable, with the one time-out of the test suite."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = 120.0
"""How long a test waits for what must happen. It only matters when a test fails, so it suits a machine
that is ten times slower than a developer's."""
PAUSE_SECONDS = 0.005


def wait_until(
    condition: Callable[[], T],
    message: str | Callable[[], str] = "",
    *,
    timeout: float = WAIT_SECONDS,
    pause: float = PAUSE_SECONDS,
) -> T:
    """Return the first true result of `condition`, or fail with `message` after `timeout` seconds.

    Set `pause` where the condition itself takes long, such as a read of a whole store.
    """
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, _failure(message, timeout)
        time.sleep(pause)
    return result


async def wait_until_async(
    condition: Callable[[], T],
    message: str | Callable[[], str] = "",
    *,
    timeout: float = WAIT_SECONDS,
) -> T:
    """Do the same as `wait_until` without blocking the event loop."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, _failure(message, timeout)
        await asyncio.sleep(PAUSE_SECONDS)
    return result


def _failure(message: str | Callable[[], str], timeout: float) -> str:
    text = message() if callable(message) else message
    return f"still waiting after {timeout:g} s: {text or 'the condition is false'}"
