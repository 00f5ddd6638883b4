"""Suspend the time-outs of steps while a use of a budget in them waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TimeLimit:
    """The time-out of one attempt, which several waits in it may suspend at a time."""

    __slots__ = ("_is_over", "_left", "_suspensions", "_timeout")

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._suspensions = 0
        self._left = 0.0
        self._is_over = False

    def suspend(self) -> None:
        """Stop counting time, until `resume` is called as often."""
        self._suspensions += 1
        when = self._timeout.when()
        if self._suspensions == 1 and self._may_change and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def resume(self) -> None:
        """Continue to count time, unless something else still suspends that."""
        self._suspensions -= 1
        if not self._suspensions and self._may_change:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)

    def end(self) -> None:
        """Note that the attempt has ended. A task that it left behind changes nothing."""
        self._is_over = True

    @property
    def _may_change(self) -> bool:
        return not self._is_over and not self._timeout.expired()


LIMITS: ContextVar[tuple[TimeLimit, ...]] = ContextVar("outlast_time_limits", default=())
"""The time-outs of the steps that the current code is in."""


@contextmanager
def limited_by(timeout: asyncio.Timeout) -> Iterator[None]:
    """Let waits within the block suspend this time-out."""
    limit = TimeLimit(timeout)
    token = LIMITS.set((*LIMITS.get(), limit))
    try:
        yield
    finally:
        limit.end()
        LIMITS.reset(token)


@contextmanager
def suspended_limits() -> Iterator[None]:
    """Suspend the time-outs of all steps that the current code is in."""
    limits = LIMITS.get()
    for limit in limits:
        limit.suspend()
    try:
        yield
    finally:
        for limit in limits:
            limit.resume()
