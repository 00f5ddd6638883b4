"""Carry a caller's deadline to the store calls made on its behalf.

A caller that must not wait beyond some moment wraps its calls in `until`. A store calls `time_left`
before it waits for a server, a lock or a file.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from outlast.errors import StoreUnavailable

CALL_SECONDS = 10.0
"""The default bound on one store call. `store_timeout` sets another."""
CALL_SECONDS_MIN = 0.05
"""What a call gets even after its deadline: enough for a healthy store to answer."""
CALLS_AHEAD = 3
"""How many call bounds a call waits for its connection. They cover a call that timed out, its
repeat, and a spare.
"""

_deadline: ContextVar[float] = ContextVar("outlast_store_deadline", default=math.inf)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Bound the store calls of this block by a moment on the monotonic clock."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left(seconds_max: float) -> float:
    """Return how many seconds a call may take: `seconds_max`, or less if the deadline is nearer."""
    left = _deadline.get()
    if left == math.inf:
        return seconds_max
    return min(seconds_max, max(left - time.monotonic(), CALL_SECONDS_MIN))


@contextmanager
def acquired(lock: threading.Lock, call_timeout: float, place: str) -> Iterator[None]:
    """Hold the lock of a connection. Raise StoreUnavailable if the previous call does not end.

    That call gives up after its own bound and is repeated once on a new connection.
    """
    if not lock.acquire(timeout=time_left(call_timeout * CALLS_AHEAD)):
        raise StoreUnavailable(
            f"{place}: an earlier call has not ended. Check that the server answers, and "
            "the network."
        )
    try:
        yield
    finally:
        lock.release()
