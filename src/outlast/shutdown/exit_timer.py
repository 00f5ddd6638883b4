"""The thread that ends the process when its time has come, and does nothing else.

It stands before it is needed, and asks nothing of the rest of the program: `os._exit` runs no clean-up, joins nothing and
flushes nothing, because what it would flush may be locked by the thread that hangs. What has to be seen is flushed by
whoever arms it, while there is time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from queue import Empty, SimpleQueue

BACKSTOP = 0.2
"""So many seconds after the thread, SIGALRM at its default action: for an interpreter in which no thread gets a turn."""

_WAIT_SECONDS_MAX = 3600.0
_SAME_SECONDS = 0.05

_Order = tuple[float, int] | None


class ExitTimer:
    """`start()` early, `arm()` when the end is known, `disarm()` where the process is to go on after all.

    `arm` and `disarm` may be called in any thread and in a signal's handler: they take no lock, log nothing and import
    nothing (a SimpleQueue's `put` is reentrant). They are not for a forked child, which has no thread until it calls
    `start()` itself.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._alarm_at: float | None = None

    def start(self) -> None:
        """Make the thread. Once a process; again does nothing."""
        if self._pid == os.getpid():
            return
        self._orders = SimpleQueue()
        self._alarm_at = None  # a timer is not inherited
        threading.Thread(
            target=_wait, args=(self._orders,), name="outlast-deadline", daemon=True
        ).start()
        self._pid = os.getpid()

    def arm(self, seconds: float, code: int) -> None:
        """End the process in so many seconds with this exit code. Again: only if that is earlier.

        Behind the thread stands a timer (SIGALRM, 0.2 s later), unless the program uses SIGALRM or that timer itself. It
        ends a process in which C code holds the GIL or which hangs after its last thread had a turn; not as PID 1,
        where the kernel drops it.
        """
        if self._pid != os.getpid():
            raise RuntimeError("arm() before start(), or in a forked child: call start() first")
        # A deadline already past leaves the thread its time before the timer, too.
        at = time.monotonic() + max(seconds, 0.0)
        self._orders.put((at, code))
        self._alarm(at + BACKSTOP)

    def disarm(self) -> None:
        """Forget every `arm`. Too late is too late."""
        if self._pid != os.getpid():
            return
        self._orders.put(None)
        at, self._alarm_at = self._alarm_at, None
        if at is not None and self._is_ours(at):
            signal.setitimer(signal.ITIMER_REAL, 0)

    def stop(self) -> None:
        """Disarm it, and end its thread."""
        self.disarm()
        if self._pid == os.getpid():
            self._orders.put((-1.0, 0))
            self._pid = 0

    def _alarm(self, at: float) -> None:
        if (
            not hasattr(signal, "setitimer")
            or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        ):
            return
        if self._alarm_at is None:
            if signal.getitimer(signal.ITIMER_REAL)[0]:  # the program's
                return
        elif at >= self._alarm_at or not self._is_ours(self._alarm_at):
            return
        self._alarm_at = at
        signal.setitimer(
            signal.ITIMER_REAL, max(at - time.monotonic(), 0.001)
        )  # 0 would mean never

    @staticmethod
    def _is_ours(at: float) -> bool:
        """Whether the timer that runs is the one set for then: the program may have set its own over it."""
        left, again = signal.getitimer(signal.ITIMER_REAL)
        return left > 0 and again == 0 and abs(time.monotonic() + left - at) < _SAME_SECONDS


def _wait(orders: SimpleQueue[_Order]) -> None:
    at: float | None = None
    code = 0
    while True:
        left = None if at is None else min(max(at - time.monotonic(), 0.0), _WAIT_SECONDS_MAX)
        try:
            order = orders.get(timeout=left)
        except Empty:
            if at is not None and time.monotonic() >= at:
                os._exit(code)
            continue
        if order is None:
            at = None
        elif order[0] < 0:
            return
        elif at is None or order[0] < at:
            at, code = order
