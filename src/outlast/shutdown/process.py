"""Connect a shutdown to its process: signals, the exit timer and the exit code.

A process is *owned* where Outlast is the program (`outlast worker`, `outlast run`, `run`). However
its drain begins, it is gone before its grace ends: a watchdog process kills it if nothing in it can
run. A program of the user is ended only by a signal that would have ended it anyway.
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
from enum import Enum
from typing import NoReturn

from outlast.settings.checks import exit_seconds
from outlast.shutdown.exit_timer import ExitTimer
from outlast.shutdown.signal_handlers import SignalReceiver
from outlast.shutdown.watchdog import WatchdogProcess

TRY_AGAIN = 75
"""EX_TEMPFAIL of sysexits. With 0, a Kubernetes Job would count as done and never start again."""
INTERRUPTED = 130
EXPEDITED_SECONDS_MAX = 1.0
"""Maximum seconds that a second SIGINT waits for runs to be released."""


class ProcessRole(Enum):
    """Whose process the app runs in."""

    SHARED = "shared"
    """A program of the user."""
    PORTAL = "portal"
    """A sync program of the user. Its main thread installs the signal handlers."""
    WORKER = "worker"
    """`outlast worker`. It exits with 0 after its drain."""
    COMMAND = "command"
    """`outlast run` and `run()`. It exits with 75 after a drain: call it again."""

    @property
    def is_owned(self) -> bool:
        """Return whether Outlast is the program, so that the process ends with its drain."""
        return self in (ProcessRole.WORKER, ProcessRole.COMMAND)


_EXIT_CODES = {ProcessRole.WORKER: 0, ProcessRole.COMMAND: TRY_AGAIN}

_watchdogs: dict[float, WatchdogProcess] = {}
"""Watchdogs by grace. Each lives as long as the process, so the next `run` reuses it."""


def _watchdog_of_this_process(grace: float) -> WatchdogProcess | None:
    watchdog = _watchdogs.get(grace)
    if watchdog is None or not watchdog.running:
        watchdog = WatchdogProcess(grace)
        if not watchdog.start():
            return None
        watchdog.leave()
        _watchdogs[grace] = watchdog
    return watchdog


_ending: tuple[int, int] | None = None
"""The pid and the exit code of an owned process whose drain has begun."""


def check_not_ending(role: ProcessRole) -> None:
    """Raise SystemExit in an owned process whose drain has begun: it opens nothing more."""
    if role.is_owned and _ending is not None and _ending[0] == os.getpid():
        raise SystemExit(_ending[1])


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
    """The signals, the exit timer and the exit code of one opening of an app."""

    def __init__(
        self, role: ProcessRole, on_signal: Callable[[signal.Signals, float], None]
    ) -> None:
        """Set up the shutdown of a process.

        `on_signal` is called in the signal thread with each signal and the time at which it came.
        """
        self.role = role
        self._on_signal = on_signal
        self._exit_timer = ExitTimer()
        self._signals: SignalReceiver | None = None
        self._watchdog: WatchdogProcess | None = None
        self._interrupts = {True: 0, False: 0}
        """SIGINTs so far, by whether the program had its own handler.

        A server may raise the signal again when it has ended. That is not a second SIGINT.
        """
        self.signal: signal.Signals | None = None
        """The first signal that came, or the first that the program leaves to Outlast."""
        self.is_armed = False
        """Whether the exit timer ends the process."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of the process after a drain."""
        if self.signal is signal.SIGINT:
            return INTERRUPTED
        return _EXIT_CODES.get(self.role, 128 + (self.signal or signal.SIGTERM))

    @property
    def ends(self) -> bool:
        """Return whether the process ends with the drain and Outlast must see to that."""
        return self.role.is_owned or self.ends_by_signal

    @property
    def ends_by_signal(self) -> bool:
        """Return whether a signal that the program does not handle ends a program of the user."""
        return (
            not self.role.is_owned
            and self.signal is not None
            and self._signals is not None
            and not self._signals.had_handler(self.signal)
        )

    # -- signal handlers

    def start(self) -> None:
        """Start the exit timer of an owned process. Other programs start it with `install`."""
        if self.role.is_owned:
            self._exit_timer.start()

    def install(self, grace: float) -> None:
        """Start the exit timer, the signal handlers and, in an owned process, the watchdog.

        Handlers and watchdog need the main thread. In another thread only the exit timer starts.
        """
        self._exit_timer.start()
        if self.role.is_owned and threading.current_thread() is threading.main_thread():
            self._watchdog = _watchdog_of_this_process(grace)
        signals = SignalReceiver(self._on_signal, watchdog=self._watchdog)
        if signals.install():
            self._signals = signals

    def restore(self, *, ending: bool = False) -> None:
        """Restore the signal handlers, and stop the exit timer unless the process is `ending`.

        In another program, the signal now takes its own effect, and the program may continue. An
        owned process that ends ignores SIGTERM from now on: Kubernetes still sends one after a
        preStop command that began the drain, and its default action would change the exit code.
        """
        if self._signals is not None:
            main = threading.current_thread() is threading.main_thread()
            if ending and main and not self._signals.had_handler(signal.SIGTERM):
                # Set before our handler is removed, so that there is no gap.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._signals.restore()
        if ending:
            # While the interpreter shuts down, the exit timer's thread no longer runs, and
            # the garbage collector would traverse everything the process has imported. On a busy
            # machine that takes seconds and ends in SIGALRM.
            gc.freeze()
        else:
            self._exit_timer.stop()

    def note_signal(self, number: signal.Signals) -> bool:
        """Note a signal and return whether it is a repeated SIGINT. Called in the signal thread."""
        handled = self._signals is not None and self._signals.had_handler(number)
        self._interrupts[handled] += number is signal.SIGINT
        if self.signal is None or not (self.ends or handled):
            self.signal = number
        return number is signal.SIGINT and self._interrupts[handled] > 1

    def raise_again(self) -> None:
        """Let the signal take its effect after the drain, in a program that does not handle it."""
        if self.ends_by_signal and self._signals is not None and self.signal is not None:
            self._signals.raise_again(self.signal)

    # -- the deadline

    def drain_began(self, seconds: float) -> None:
        """End an owned process in `seconds`, whatever happens until then."""
        global _ending  # noqa: PLW0603 - it belongs to the process
        if self.role.is_owned:
            _ending = os.getpid(), self.exit_code
            self.arm(seconds)

    def arm(self, seconds: float) -> None:
        """End the process before `seconds` have passed."""
        self.is_armed = True
        self._exit_timer.arm(max(0.0, seconds - exit_seconds(seconds)), self.exit_code)
        if self._watchdog is not None:
            self._watchdog.arm(max(0.0, seconds - 0.1))

    def expedite(self, seconds: float) -> None:
        """End the process within a second, or in `seconds` if that is sooner."""
        if self.ends:
            self._exit_timer.arm(min(EXPEDITED_SECONDS_MAX, seconds), self.exit_code)
