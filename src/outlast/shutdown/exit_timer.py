"""End the process at a deadline, from a thread that does nothing else.

The thread is started before it is needed and depends on nothing else in the program. `os._exit`
runs no clean-up, joins nothing and flushes nothing, because the thread that hangs may hold the
locks a flush would need. The caller that arms the timer flushes what must be seen, while there is
time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from queue import Empty, SimpleQueue

BACKSTOP = 0.2
"""Seconds after the thread's deadline until SIGALRM at its default action.

It ends an interpreter in which no thread gets to run.
"""

_WAIT_SECONDS_MAX = 3600.0
_SAME_SECONDS = 0.05

_Order = tuple[float, int] | None


class ExitTimer:
    """End the process at a deadline.

    Call `start()` early, `arm()` when the end is known, and `disarm()` if the process continues
    after all. `arm` and `disarm` may be called in any thread and in a signal handler: they take no
    lock, log nothing and import nothing (a SimpleQueue's `put` is reentrant). A forked child has no
    thread until it calls `start()` itself.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._alarm_at: float | None = None

    def start(self) -> None:
        """Start the thread, once per process. A repeated call does nothing."""
        if self._pid == os.getpid():
            return
        self._orders = SimpleQueue()
        # A forked child does not inherit the timer.
        self._alarm_at = None
        threading.Thread(
            target=_wait, args=(self._orders,), name="outlast-deadline", daemon=True
        ).start()
        self._pid = os.getpid()

    def arm(self, seconds: float, code: int) -> None:
        """End the process in `seconds` with this exit code.

        A repeated call can only make it earlier. SIGALRM backs up the thread 0.2 s later, unless
        the program itself uses SIGALRM or its timer. It ends a process in which C code holds the
        GIL, or which hangs after its last thread has run. It does not end PID 1, where the kernel
        drops it. Raise RuntimeError before `start()`.
        """
        if self._pid != os.getpid():
            raise RuntimeError("arm() before start(), or in a forked child: call start() first")
        # Even for a deadline in the past, the thread gets its time before the timer.
        at = time.monotonic() + max(seconds, 0.0)
        self._orders.put((at, code))
        self._alarm(at + BACKSTOP)

    def disarm(self) -> None:
        """Cancel every `arm`, unless the process is ending already."""
        if self._pid != os.getpid():
            return
        self._orders.put(None)
        at, self._alarm_at = self._alarm_at, None
        if at is not None and self._is_ours(at):
            signal.setitimer(signal.ITIMER_REAL, 0)

    def stop(self) -> None:
        """Disarm the timer and end its thread."""
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
            # The program uses the timer itself.
            if signal.getitimer(signal.ITIMER_REAL)[0]:
                return
        elif at >= self._alarm_at or not self._is_ours(self._alarm_at):
            return
        self._alarm_at = at
        # Zero would disable the timer.
        signal.setitimer(signal.ITIMER_REAL, max(at - time.monotonic(), 0.001))

    @staticmethod
    def _is_ours(at: float) -> bool:
        """Return whether the running timer is the one set for `at`.

        The program may have replaced it.
        """
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
