"""What a drain means for the process: a signal begins it, a deadline ends it.

A process is *ours* where Outlast is the program (`outlast worker`, `outlast run`, `run`): however its drain begins, it is gone before
grace ends, killed by a helper process if nothing in it can run. In somebody's own program only a signal that would have ended
it anyway does.
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
"""sysexits' EX_TEMPFAIL. A Kubernetes Job whose pod ends with 0 counts as done and is never started again."""
INTERRUPTED = 130
HURRY_SECONDS_MAX = 1.0
"""How long a second SIGINT waits for what can be released."""


_watchdogs: dict[float, WatchdogProcess] = {}
"""By grace. One stays for as long as the process: the next `run` need not start another."""


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
    """What a process of ours that was told to end exits with, whatever ended in time: it begins nothing more."""
    return _told[1] if _told is not None and _told[0] == os.getpid() else None


def end_now(code: int) -> NoReturn:
    """End the process without waiting for anything that hangs: no `atexit`, no joins; what was logged and printed is flushed."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or nobody reads it any more
            stream.flush()
    os._exit(code)


class ProcessShutdown:
    def __init__(self, drain: Drain, *, ours: int | None) -> None:
        """`ours` is the exit code of a process of ours that was told to end, but for SIGINT, whose is 130."""
        self._drain, self._ours = drain, ours
        self._exit_timer = ExitTimer()
        self._signals: Signals | None = None
        self._watchdog: WatchdogProcess | None = None
        self._interrupts = {True: 0, False: 0}
        """By whether the program had a handler: a server's that raises it again when it has ended makes no second one of it."""
        self.signal: signal.Signals | None = None
        """The first one that came; or the first that the program leaves to us."""
        self._armed = False
        self.again: Callable[[], object] = lambda: None
        """Called in the thread of the signals when one came that ends the process, and the drain has begun before."""
        drain.begin_callbacks.append(self._begun)
        if ours is not None:
            self._exit_timer.start()

    @property
    def code(self) -> int:
        """What to exit with."""
        if self.signal is signal.SIGINT:
            return INTERRUPTED
        return self._ours if self._ours is not None else 128 + (self.signal or signal.SIGTERM)

    @property
    def ends(self) -> bool:
        """Whether the process ends with this drain, and nobody else sees to it."""
        if self._ours is not None:
            return True
        return (
            self.signal is not None
            and self._signals is not None
            and not self._signals.had_handler(self.signal)
        )

    def install(self) -> None:
        """From the thread that has the program's attention: handlers can only be set in the main one."""
        self._exit_timer.start()
        if self._ours is not None and threading.current_thread() is threading.main_thread():
            self._watchdog = _watchdog_of_this_process(self._drain.grace)
        signals = Signals(self._came, guard=self._watchdog)
        if signals.install():
            self._signals = signals

    def restore(self) -> None:
        """Everything as it was. The deadline stays in a process of ours that ends; another's has its signal now, and may go on.

        SIGTERM is no news to one of ours that ends: it still comes where a preStop command began the drain and waited for it, and
        its default action would make 143 of the exit code.
        """
        if self._signals is not None:
            ending = self._ours is not None and self._drain.layer is not None
            main = threading.current_thread() is threading.main_thread()
            if ending and main and not self._signals.had_handler(signal.SIGTERM):
                signal.signal(
                    signal.SIGTERM, signal.SIG_IGN
                )  # before ours is taken away: there is no gap
            self._signals.restore()
        if self._drain.layer is None or self._ours is None:
            self._exit_timer.stop()
        else:
            # While the interpreter ends, the deadline's thread has no turn any more, and the collector would go through all that the
            # process has ever imported: on a busy machine that takes seconds, and ends in SIGALRM.
            gc.freeze()

    def raise_again(self) -> None:
        """The drain is over, in a program that left the signal's effect to Python: let it have that effect."""
        if (
            self._ours is None
            and self.ends
            and self._signals is not None
            and self.signal is not None
        ):
            self._signals.raise_again(self.signal)

    def _came(self, number: signal.Signals, at: float) -> None:
        """In the thread of the signals."""
        seen_to = self._signals is not None and self._signals.had_handler(number)
        self._interrupts[seen_to] += number is signal.SIGINT
        if self.signal is None or (self._ours is None and not self.ends and not seen_to):
            self.signal = number
        drain = self._drain
        drain.told_to_end()
        if drain.begin(number.name, at=at):
            if self._ours is None and self.ends:
                drain.ends_here = True
                self._arm(drain.left)
        elif self._interrupts[seen_to] > 1 and number is signal.SIGINT:
            if self.ends:
                self._exit_timer.arm(min(HURRY_SECONDS_MAX, drain.left), self.code)
            drain.expedite()
        elif self._ours is None and self.ends and not self._armed:
            if drain.over.done():
                self.renew_grace(at)
            self._arm(drain.left)
            self.again()

    def renew_grace(self, at: float) -> None:
        """The drain was over before the process was told to end, or the program left: that has a grace of its own."""
        self._drain.grace = at - self._drain.began + self._drain._engine.settings.grace

    def _begun(self, seconds: float) -> None:
        global _told  # noqa: PLW0603 - it is the process's
        if self._ours is not None:
            _told = os.getpid(), self.code
            self._drain.ends_here = True
            self._arm(seconds)

    def _arm(self, seconds: float) -> None:
        self._armed = True
        self._exit_timer.arm(max(0.0, seconds - exit_seconds(seconds)), self.code)
        if self._watchdog is not None:
            self._watchdog.arm(max(0.0, seconds - 0.1))
