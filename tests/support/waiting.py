"""Wait for something observable, with the one time-out of the test suite."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = 120.0
"""How long a test waits for what must happen. It only matters when a test fails, so it suits a machine
that is ten times slower than a developer's."""
PAUSE_SECONDS = 0.005
PAUSES_PER_LOOK = 3
"""The pause after a look is at least this many times as long as the look: a condition that reads a whole
store leaves most of the machine to the processes that it observes."""


def wait_until(
    condition: Callable[[], T],
    message: str | Callable[[], str] = "",
    *,
    timeout: float = WAIT_SECONDS,
    pause: float = PAUSE_SECONDS,
) -> T:
    """Return the first true result of `condition`, or fail with `message` after `timeout` seconds.

    Use `wait_for_state` for an amount of work, such as thousands of runs.
    """
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if result := condition():
            return result
        assert time.monotonic() < deadline, _failure(message, timeout)
        _pause_after_look(began, pause)


def wait_for_state(
    observe: Callable[[], T],
    is_reached: Callable[[T], bool],
    message: str | Callable[[], str] = "",
    *,
    timeout: float = WAIT_SECONDS,
    pause: float = PAUSE_SECONDS,
) -> T:
    """Return the first observed state for which `is_reached` is true.

    Fail with `message` after `timeout` seconds in which the state did not change. Work that goes on may
    take as long as it needs; only pytest's own time-out ends it.
    """
    last, deadline = None, time.monotonic() + timeout
    while True:
        began = time.monotonic()
        state = observe()
        if is_reached(state):
            return state
        if state != last:
            last, deadline = state, time.monotonic() + timeout
        assert time.monotonic() < deadline, _failure(message, timeout)
        _pause_after_look(began, pause)


async def wait_until_async(
    condition: Callable[[], T] | Callable[[], Awaitable[T]],
    message: str | Callable[[], str] = "",
    *,
    timeout: float = WAIT_SECONDS,
) -> T:
    """Do the same as `wait_until` without blocking the event loop. The condition may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, _failure(message, timeout)
        await asyncio.sleep(PAUSE_SECONDS)


def _pause_after_look(began: float, pause: float) -> None:
    time.sleep(max(pause, PAUSES_PER_LOOK * (time.monotonic() - began)))


def _failure(message: str | Callable[[], str], timeout: float) -> str:
    text = message() if callable(message) else message
    return f"still waiting after {timeout:g} s: {text or 'the condition is false'}"
