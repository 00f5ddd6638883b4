"""Receive signals in a dedicated thread, pass them on to earlier handlers, and restore those.

A forked child gets the earlier handlers back.

A signal arrives in two ways, because either can fail. The Python-level handler runs in the main
thread, but not while that is in a C call. The C-level handler writes to the wake-up descriptor at
once, but a loop that asks for the descriptor later (asyncio's `add_signal_handler`, uvloop's
`run_forever`) owns it from then on. So this module uses both:

    C handler -> wake-up descriptor -> [the watchdog ->] our thread -> its previous owner
    Python handler -> a pipe -> our thread; and the previous handler, if a program had set it

Limit: a program that calls asyncio's `add_signal_handler` for the same signal after us has taken
both ways, and with them the signal. uvloop's takes only the handler, if we were installed while the
loop ran.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any

from outlast.shutdown.signal_thread import SignalReader
from outlast.shutdown.wakeup_descriptors import SignalChannels
from outlast.shutdown.watchdog import WatchdogProcess

log = logging.getLogger("outlast.drain")

Begin = Callable[[signal.Signals, float], None]


class SignalReceiver:
    """Call `begin(number, at)` once for each signal of `numbers`, in the thread `outlast-signals`.

    `at` is when the signal came, on the monotonic clock, as precisely as that is known. With a
    watchdog it is precise even while the GIL was held. `begin` should return soon, because the
    thread also relays signals to other readers. What it raises is logged. With a watchdog that was
    started, the wake-up descriptor is the watchdog's pipe.
    """

    def __init__(
        self,
        begin: Begin,
        *,
        numbers: Iterable[int] = (signal.SIGTERM, signal.SIGINT),
        watchdog: WatchdogProcess | None = None,
    ) -> None:
        self._begin = begin
        self._numbers = tuple(signal.Signals(number) for number in numbers)
        self._watchdog = watchdog
        # Keep one bound method, so that `is` shows whether it is still the current handler.
        self._handler = self._received
        self._pid = 0
        self._previous: dict[int, Any] = {}
        self._again: set[int] = set()
        self._channels: SignalChannels | None = None

    # --- for the program ---

    def install(self) -> bool:
        """Install the handlers and the wake-up descriptor. A repeated call does nothing.

        Outside the main thread, log a warning and return False. With uvloop, call this while the
        loop runs, because `run_forever` takes the wake-up descriptor when it starts.
        """
        if self._channels is not None:
            return True
        if threading.current_thread() is not threading.main_thread():
            log.warning(
                "Signals are received only in the main thread, so no signal drains this program. "
                "Call app.drain() to drain it.",
                extra={"event": "no_signals"},
            )
            return False
        self._pid = os.getpid()
        self._again.clear()
        self._previous.clear()
        self._channels = channels = SignalChannels(self._watchdog)
        _installed.add(self)
        reader = SignalReader(self._numbers, channels, partial(self._arrived, channels))
        threading.Thread(target=reader.run, name="outlast-signals", daemon=True).start()
        channels.install()
        for number in self._numbers:
            previous = signal.getsignal(number)
            if previous is None:
                # The handler is not Python's, so it could not be restored.
                log.warning(
                    "%s already has a handler outside Python, so it does not begin a drain.",
                    number.name,
                )
                continue
            if previous is signal.SIG_IGN:
                # A shell's `trap '' TERM` or a script's `&` ignores the signal on purpose.
                continue
            self._previous[number] = previous
            signal.signal(number, self._handler)
        return True

    def restore(self) -> None:
        """Restore the previous handlers, where ours is still the current one. Idempotent.

        After this, `begin` is not called. Only the main thread can restore handlers. In another
        thread, log a warning and only stop calling `begin`.
        """
        channels, pid = self._channels, self._pid
        if channels is None or pid != os.getpid():
            return
        if threading.current_thread() is not threading.main_thread():
            channels.mute()
            log.warning(
                "The signal handlers stay installed: only the main thread can restore them.",
                extra={"event": "signals_kept"},
            )
            return
        self._put_back()
        self._unlink(channels)
        channels.restore()
        self._channels = None
        _installed.discard(self)

    def had_handler(self, number: int) -> bool:
        """Return whether the program has its own handler for a signal, set before ours or over it.

        A loop's `add_signal_handler` counts. The default actions, the SIGINT handlers of Python and
        asyncio.Runner, and other SignalReceiver do not.
        """
        current = signal.getsignal(number)
        while (signals := _receiver_of(current)) is not None:
            current = signals._previous.get(number)
        return _is_programs(current)

    def raise_again(self, number: int) -> None:
        """Let a signal end the program after the drain, as it would have without us. Restore first.

        If the program has its own handler or ignores the signal, only restore. In the main thread,
        this may raise KeyboardInterrupt or not return. In another thread, it asks the main thread,
        which acts as soon as it executes Python code, and returns. As PID 1, where the kernel drops
        a signal at its default action, the process ends with exit code 128 + number. If the program
        has several SignalReceiver, the last one acts.
        """
        if threading.current_thread() is threading.main_thread():
            self._end_by(number)
            return
        if self.had_handler(number):
            return
        self._again.add(number)
        if any(
            number in other._previous and number not in other._again for other in list(_installed)
        ):
            # Another SignalReceiver will do it.
            return
        if os.getpid() == 1 and signal.getsignal(number) is signal.SIG_DFL:
            os._exit(128 + number)
        if hasattr(signal, "pthread_kill"):
            ident = threading.main_thread().ident
            assert ident is not None
            # Send it to that thread, so that its system call is interrupted.
            signal.pthread_kill(ident, number)
        else:
            import _thread

            _thread.interrupt_main(signal.Signals(number))

    # --- the handler ---

    def _received(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal in the main thread, between any two instructions of the program.

        Take no lock.
        """
        channels = self._channels
        if channels is None or os.getpid() != self._pid:
            self._as_before(number, frame)
            return
        if number in self._again:
            self._end_by(number)
            return
        channels.write(number)
        previous = self._previous.get(number)
        if previous is not None and _is_programs(previous):
            previous(number, frame)

    def _as_before(self, number: int, frame: FrameType | None) -> None:
        """Do what would have happened without us.

        This is for a forked child, and for a program that has reinstalled our handler after we had
        removed it.
        """
        previous = self._previous.get(number, signal.SIG_DFL)
        if callable(previous) and not isinstance(previous, signal.Handlers):
            previous(number, frame)
        elif previous is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _end_by(self, number: int) -> None:
        current = signal.getsignal(number)
        reaction = self._previous.get(number) if current is self._handler else current
        self.restore()
        if (other := _receiver_of(reaction)) is not None:
            if number in other._again:
                other._end_by(number)
            return
        if _is_programs(reaction) or reaction is signal.SIG_IGN or reaction is None:
            return
        if reaction is signal.SIG_DFL and os.getpid() == 1:
            os._exit(128 + number)
        signal.raise_signal(number)

    # --- the way back ---

    def _put_back(self) -> None:
        for number, previous in self._previous.items():
            if signal.getsignal(number) is self._handler:
                signal.signal(number, previous)

    def _unlink(self, channels: SignalChannels) -> None:
        """Make each SignalReceiver that was installed over us pass on to our predecessor."""
        for other in list(_installed):
            if other is self or other._channels is None:
                continue
            for number, previous in other._previous.items():
                if previous is self._handler:
                    other._previous[number] = self._previous.get(number, signal.SIG_DFL)
            if other._channels.next_fd == channels.wake_fd:
                other._channels.follow(channels)

    def _in_child(self) -> None:
        """Restore everything in a forked child.

        The parent's loop must not see the child's signals.
        """
        channels, self._channels = self._channels, None
        if channels is not None:
            self._put_back()
            channels.close_in_child()

    # --- the thread ---

    def _arrived(self, channels: SignalChannels, number: int, at: float) -> None:
        if channels.is_muted or number in self._again:
            return
        try:
            self._begin(signal.Signals(number), at)
        except Exception:
            log.exception("%s could not begin the drain.", signal.Signals(number).name)


# --- whose handler it is ---


def _receiver_of(handler: Any) -> SignalReceiver | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, SignalReceiver) else None


def _is_programs(handler: Any) -> bool:
    """Return whether a program has set this handler.

    Python's own handlers do not count. If we called one, it would end the main task, and the drain
    with it.
    """
    if handler is None or isinstance(handler, signal.Handlers) or not callable(handler):
        return False
    # asyncio.Runner sets a partial.
    function = getattr(handler, "func", handler)
    owner = getattr(function, "__self__", None)
    if getattr(function, "__name__", "") == "_on_sigint" and owner is not None:
        return not type(owner).__module__.startswith("asyncio")
    return function is not signal.default_int_handler


# --- fork ---

_installed: weakref.WeakSet[SignalReceiver] = weakref.WeakSet()
_masks: dict[int, set[signal.Signals]] = {}
"""Signal masks by forking thread.

A signal to a child that has not restored its handlers yet would be written into the parent's pipe.
"""


def _before_fork() -> None:
    numbers = {number for signals in _installed for number in signals._numbers}
    if numbers:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        _masks[threading.get_ident()] = mask  # type: ignore[assignment]


def _after_in_parent() -> None:
    mask = _masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_in_child() -> None:
    for signals in list(_installed):
        signals._in_child()
    _installed.clear()
    mask = _masks.pop(threading.get_ident(), None)
    _masks.clear()
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
