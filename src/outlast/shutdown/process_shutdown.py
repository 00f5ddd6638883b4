"""Connect a drain to the process: a signal begins it, a deadline ends it.

A process is *ours* where Outlast is the program (`outlast worker`, `outlast run`, `run`). However
its drain begins, it is gone before grace ends: a helper process kills it if nothing in it can run.
A user's own program is ended only by a signal that would have ended it anyway.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from outlast.settings.checks import exit_seconds
from outlast.shutdown.exit_timer import ExitTimer
from outlast.shutdown.signals import Signals
from outlast.shutdown.watchdog import WatchdogProcess

if TYPE_CHECKING:
    from outlast.shutdown.drain import Drain

TRY_AGAIN = 75
"""EX_TEMPFAIL of sysexits. With 0, a Kubernetes Job would count as done and never start again."""
INTERRUPTED = 130
HURRY_SECONDS_MAX = 1.0
"""Maximum seconds that a second SIGINT waits for runs to be released."""


_watchdogs: dict[float, WatchdogProcess] = {}
"""Watchdogs by grace. Each lives as long as the process, so the next `run` reuses it."""


def _watchdog_of_this_process(grace: float) -> WatchdogProcess | None:
    guard = _watchdogs.get(grace)
    if guard is None or not guard.running:
        guard = WatchdogProcess(grace)
        if not guard.start():
            return None
        guard.leave()
        _watchdogs[grace] = guard
    return guard


_told: tuple[int, int] | None = None
"""The pid and the exit code of a process of ours that was told to end."""


def told_to_end() -> int | None:
    """Return the exit code of a process of ours that was told to end. None otherwise.

    It is the same whatever ended in time. Such a process starts nothing more.
    """
    return _told[1] if _told is not None and _told[0] == os.getpid() else None


def end_now(code: int) -> NoReturn:
    """Flush logs and output, and end the process without waiting for hung threads.

    `atexit` functions are not called and threads are not joined.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # The stream may be closed, or its reader gone.
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class ProcessShutdown:
    """Handle signals and deadlines for the drain of one engine."""

    def __init__(self, drain: Drain, *, ours: int | None) -> None:
        """Set up the shutdown, and start the exit timer in a process of ours.

        `ours` is the exit code of a process of ours that was told to end. After SIGINT it is 130
        instead. None in another program.
        """
        self._drain, self._ours = drain, ours
        self._exit_timer = ExitTimer()
        self._signals: Signals | None = None
        self._watchdog: WatchdogProcess | None = None
        self._interrupts = {True: 0, False: 0}
        """SIGINTs so far, by whether the program had its own handler.

        A server may raise the signal again when it has ended. That is not a second SIGINT.
        """
        self.signal: signal.Signals | None = None
        """The first signal that came, or the first that the program leaves to Outlast."""
        self._armed = False
        self.again: Callable[[], object] = lambda: None
        """Called in the signal thread when a signal ends the process after the drain has begun."""
        drain.begin_callbacks.append(self._begun)
        if ours is not None:
            self._exit_timer.start()

    @property
    def code(self) -> int:
        """Return the exit code of the process."""
        if self.signal is signal.SIGINT:
            return INTERRUPTED
        return self._ours if self._ours is not None else 128 + (self.signal or signal.SIGTERM)

    @property
    def ends(self) -> bool:
        """Return whether the process ends with this drain and Outlast must see to that."""
        if self._ours is not None:
            return True
        return (
            self.signal is not None
            and self._signals is not None
            and not self._signals.had_handler(self.signal)
        )

    def install(self) -> None:
        """Start the exit timer, the signal handlers and, in a process of ours, the watchdog.

        Handlers and watchdog need the main thread. In another thread only the exit timer is
        started.
        """
        self._exit_timer.start()
        if self._ours is not None and threading.current_thread() is threading.main_thread():
            self._watchdog = _watchdog_of_this_process(self._drain.signal.grace)
        signals = Signals(self._came, guard=self._watchdog)
        if signals.install():
            self._signals = signals

    def restore(self) -> None:
        """Restore the signal handlers, and stop the exit timer unless a process of ours is ending.

        In another program, the signal now takes its own effect, and the program may continue. A
        process of ours that ends ignores SIGTERM from now on. Kubernetes still sends one after a
        preStop command that began the drain and waited for it, and its default action would change
        the exit code to 143.
        """
        if self._signals is not None:
            ending = self._ours is not None and self._drain.signal.draining
            main = threading.current_thread() is threading.main_thread()
            if ending and main and not self._signals.had_handler(signal.SIGTERM):
                # Set before our handler is removed, so that there is no gap.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._signals.restore()
        if not self._drain.signal.draining or self._ours is None:
            self._exit_timer.stop()
        else:
            # While the interpreter shuts down, the exit timer's thread does not run any more, and
            # the garbage collector would traverse everything the process has imported. On a busy
            # machine that takes seconds and ends in SIGALRM.
            gc.freeze()

    def raise_again(self) -> None:
        """Let the signal take its effect after the drain, in a program that left it to Python."""
        if (
            self._ours is None
            and self.ends
            and self._signals is not None
            and self.signal is not None
        ):
            self._signals.raise_again(self.signal)

    def _came(self, number: signal.Signals, at: float) -> None:
        """Begin, expedite or time the drain for a signal. Called in the signal thread."""
        seen_to = self._signals is not None and self._signals.had_handler(number)
        self._interrupts[seen_to] += number is signal.SIGINT
        if self.signal is None or (self._ours is None and not self.ends and not seen_to):
            self.signal = number
        drain = self._drain
        drain.told_to_end()
        if drain.begin(number.name, at=at):
            if self._ours is None and self.ends:
                drain.signal.ends_process = True
                self._arm(drain.signal.seconds_left)
        elif self._interrupts[seen_to] > 1 and number is signal.SIGINT:
            if self.ends:
                self._exit_timer.arm(min(HURRY_SECONDS_MAX, drain.signal.seconds_left), self.code)
            drain.expedite()
        elif self._ours is None and self.ends and not self._armed:
            if drain.signal.finished.done():
                drain.signal.renew_grace(at)
            self._arm(drain.signal.seconds_left)
            self.again()

    def _begun(self, seconds: float) -> None:
        global _told  # noqa: PLW0603 - it is the process's
        if self._ours is not None:
            _told = os.getpid(), self.code
            self._drain.signal.ends_process = True
            self._arm(seconds)

    def _arm(self, seconds: float) -> None:
        self._armed = True
        self._exit_timer.arm(max(0.0, seconds - exit_seconds(seconds)), self.code)
        if self._watchdog is not None:
            self._watchdog.arm(max(0.0, seconds - 0.1))
