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

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from outlast.shutdown.watchdog import ARM, RECORD_BYTES, WatchdogProcess

log = logging.getLogger("outlast.drain")

SAME_SECONDS = 0.05
"""The same signal within this time counts once.

A parent may pass on a signal that the terminal has sent too, or a key may bounce.
"""

OWED_SECONDS = 10.0
"""How much later than the handler's call the wake-up byte of the same signal may arrive.

The watchdog relays the byte, and on a busy machine it may get no CPU for seconds. A late byte must
not turn one SIGINT into two.
"""

_END = b"\0"
_BYTES = {number: bytes((number,)) for number in range(1, ARM)}

Begin = Callable[[signal.Signals, float], None]


class Signals:
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
        guard: WatchdogProcess | None = None,
    ) -> None:
        self._begin = begin
        self._numbers = tuple(signal.Signals(number) for number in numbers)
        self._watchdog = guard
        # Keep one bound method, so that `is` shows whether it is still the current handler.
        self._handler = self._received
        self._pid = 0
        self._previous: dict[int, Any] = {}
        self._again: set[int] = set()
        self._ways: _Ways | None = None

    # --- for the program ---

    def install(self) -> bool:
        """Install the handlers and the wake-up descriptor. A repeated call does nothing.

        Outside the main thread, log a warning and return False. With uvloop, call this while the
        loop runs, because `run_forever` takes the wake-up descriptor when it starts.
        """
        if self._ways is not None:
            return True
        if threading.current_thread() is not threading.main_thread():
            log.warning(
                "signals are only received in the main thread: nothing drains this program by itself, app.drain() still works",
                extra={"event": "no_signals"},
            )
            return False
        self._pid = os.getpid()
        self._again.clear()
        self._previous.clear()
        self._ways = ways = _Ways(self._watchdog)
        _installed.add(self)
        threading.Thread(
            target=_listen, args=(self, ways), name="outlast-signals", daemon=True
        ).start()
        ways.take()
        for number in self._numbers:
            previous = signal.getsignal(number)
            if previous is None:
                # The handler is not Python's, so it could not be restored.
                log.warning(
                    "%s belongs to a handler outside of Python, and is left to it", number.name
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
        ways, pid = self._ways, self._pid
        if ways is None or pid != os.getpid():
            return
        if threading.current_thread() is not threading.main_thread():
            ways.muted = True
            log.warning(
                "signals can only be given back in the main thread", extra={"event": "signals_kept"}
            )
            return
        self._put_back()
        self._unlink(ways)
        ways.give_back()
        self._ways = None
        _installed.discard(self)

    def had_handler(self, number: int) -> bool:
        """Return whether the program has its own handler for a signal, set before ours or over it.

        A loop's `add_signal_handler` counts. The default actions, the SIGINT handlers of Python and
        asyncio.Runner, and other Signals do not.
        """
        current = signal.getsignal(number)
        while (signals := _whose(current)) is not None:
            current = signals._previous.get(number)
        return _is_programs(current)

    def raise_again(self, number: int) -> None:
        """Let a signal end the program after the drain, as it would have without us. Restore first.

        If the program has its own handler or ignores the signal, only restore. In the main thread,
        this may raise KeyboardInterrupt or not return. In another thread, it asks the main thread,
        which acts as soon as it executes Python code, and returns. As PID 1, where the kernel drops
        a signal at its default action, the process ends with exit code 128 + number. If the program
        has several Signals, the last one acts.
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
            # Another Signals will do it.
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
        ways = self._ways
        if ways is None or os.getpid() != self._pid:
            self._as_before(number, frame)
            return
        if number in self._again:
            self._end_by(number)
            return
        ways.ring(number)
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
        if (other := _whose(reaction)) is not None:
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

    def _unlink(self, ways: _Ways) -> None:
        """Make each Signals that was installed over us pass on to our predecessor."""
        for other in list(_installed):
            if other is self or other._ways is None:
                continue
            for number, previous in other._previous.items():
                if previous is self._handler:
                    other._previous[number] = self._previous.get(number, signal.SIG_DFL)
            if other._ways.next_fd == ways.wake_fd:
                other._ways.follow(ways)

    def _in_child(self) -> None:
        """Restore everything in a forked child.

        The parent's loop must not see the child's signals.
        """
        ways, self._ways = self._ways, None
        if ways is not None:
            self._put_back()
            ways.leave()

    # --- the thread ---

    def _heard(self, ways: _Ways, number: int, at: float) -> None:
        if ways.muted or number in self._again:
            return
        try:
            self._begin(signal.Signals(number), at)
        except Exception:
            log.exception("a drain could not begin by %s", signal.Signals(number).name)


class _Pair:
    """Merge the two ways of one signal, and decide which arrivals are new signals. No I/O.

    The handler runs once for every wake-up byte or for several at once, and perhaps much later:
    when the main thread returns from a C call. So a handler's call is not new while a byte has no
    call yet. The first arrival always counts. At worst, a repeated signal is lost.
    """

    def __init__(self) -> None:
        self._begun = float("-inf")
        self._woken = 0
        self._owed = 0
        self._owed_until = float("-inf")

    def woken(self, at: float) -> bool:
        if self._owed and at < self._owed_until:
            self._owed -= 1
            return False
        self._woken += 1
        return self._is_new(at)

    def rung(self, at: float) -> bool:
        if self._woken:
            self._woken = 0
            return False
        self._owed = self._owed + 1 if at < self._owed_until else 1
        self._owed_until = at + OWED_SECONDS
        return self._is_new(at)

    def _is_new(self, at: float) -> bool:
        if at - self._begun < SAME_SECONDS:
            return False
        self._begun = at
        return True


class _Ways:
    """Hold the descriptors of one installation.

    The main thread writes and restores. Our thread reads, and closes what it reads.
    """

    def __init__(self, guard: WatchdogProcess | None) -> None:
        self.muted = False
        self.bell, self.bell_other = _pair()
        self.next_fd = -1
        self._next: socket.socket | int | None = None
        self._retired: list[socket.socket | int] = []
        self._taken = False
        attached = guard.attach() if guard is not None else None
        self.relay: int | None
        if attached is None:
            wake, other = _pair()
            self.wake_fd, self.wake_other = wake.detach(), other.detach()
            self.relay = None
        else:
            self.wake_fd, self.relay, self.wake_other = attached

    # called in the main thread

    def take(self) -> None:
        self.next_fd = signal.set_wakeup_fd(self.wake_fd, warn_on_full_buffer=False)
        self._taken = True
        if self.next_fd >= 0:
            self._next = _dup(self.next_fd)

    def ring(self, number: int) -> None:
        # If the pipe is full, there is a byte in it already.
        with contextlib.suppress(OSError):
            self.bell.send(_BYTES[number])

    def give_back(self) -> None:
        """Restore the wake-up descriptor.

        Our thread ends when it has read and passed on the rest.
        """
        self.muted = True
        old = signal.set_wakeup_fd(-1)
        if old != self.wake_fd:
            _set_wakeup_fd(old)
        elif self._next is not None and _same_file(self.next_fd, self._next):
            # Only if its loop is still open: otherwise the number may belong to another file by
            # now.
            _set_wakeup_fd(self.next_fd)
        _close(self.wake_fd)
        # If the pipe is full, the thread has not read yet, and will see the end.
        with contextlib.suppress(OSError):
            self.bell.send(_END)
        self.bell.close()

    def follow(self, gone: _Ways) -> None:
        """Pass on to the next reader in line, because the one that we passed on to goes away."""
        if self._next is not None:
            # Our thread may be writing to it.
            self._retired.append(self._next)
        self._next = None if gone._next is None else _dup(_fileno(gone._next))
        self.next_fd = gone.next_fd

    def leave(self) -> None:
        """Close the descriptors in a forked child, where no thread reads them."""
        if self._taken:
            old = signal.set_wakeup_fd(-1)
            if old != self.wake_fd:
                _set_wakeup_fd(old)
        _close(self.wake_fd)
        self.bell.close()
        self.close_read()

    # called in our thread

    def pass_on(self, data: bytes) -> None:
        following = self._next
        if following is None or not data:
            return
        # The pipe may be full, or its loop gone.
        with contextlib.suppress(OSError):
            if isinstance(following, socket.socket):
                following.send(data)
            else:
                os.write(following, data)

    def close_read(self) -> None:
        self.bell_other.close()
        _close(self.wake_other)
        if self.relay is not None:
            _close(self.relay)
        if self._next is not None:
            self._retired.append(self._next)
        self._next = None
        while self._retired:
            _close(self._retired.pop())


class _Listener:
    """Read both ways in our thread."""

    def __init__(self, signals: Signals, ways: _Ways) -> None:
        self._signals = signals
        self._ways = ways
        self._pairs = {int(number): _Pair() for number in signals._numbers}
        self._partial = b""
        self._selector: selectors.BaseSelector = getattr(
            selectors, "PollSelector", selectors.SelectSelector
        )()
        self._ended = False

    def run(self) -> None:
        ways = self._ways
        self._selector.register(ways.bell_other, selectors.EVENT_READ, self._read_bell)
        if ways.relay is None:
            self._selector.register(ways.wake_other, selectors.EVENT_READ, self._read_wake)
        else:
            self._selector.register(ways.relay, selectors.EVENT_READ, self._read_relay)
        while not self._ended:
            # Read the wake-up descriptor first: it has the more precise time.
            for key, _ in sorted(
                self._selector.select(), key=lambda ready: ready[0].fileobj is ways.bell_other
            ):
                key.data()
        self._selector.close()
        ways.close_read()

    def _read_bell(self) -> None:
        try:
            data = self._ways.bell_other.recv(4096)
        except BlockingIOError:
            return
        now = time.monotonic()
        for number in data:
            if number and self._pairs[number].rung(now):
                self._signals._heard(self._ways, number, now)
        self._ended = not data or 0 in data

    def _read_wake(self) -> None:
        try:
            data = _read(self._ways.wake_other)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._ways.wake_other)
            return
        self._ways.pass_on(bytes(number for number in data if number < ARM))
        now = time.monotonic()
        for number in data:
            self._woken(number, now)

    def _read_relay(self) -> None:
        relay = self._ways.relay
        assert relay is not None
        try:
            data = os.read(relay, 4096)
        except BlockingIOError:
            return
        if not data:
            # The watchdog is gone. Read what it would have read.
            self._selector.unregister(relay)
            self._selector.register(self._ways.wake_other, selectors.EVENT_READ, self._read_wake)
            return
        self._partial += data
        whole = len(self._partial) - len(self._partial) % RECORD_BYTES
        records, self._partial = self._partial[:whole], self._partial[whole:]
        self._ways.pass_on(records[::RECORD_BYTES])
        now = time.monotonic()
        for start in range(0, whole, RECORD_BYTES):
            at = int.from_bytes(records[start + 1 : start + RECORD_BYTES], "big") / 1e9
            self._woken(records[start], min(at, now))

    def _woken(self, number: int, at: float) -> None:
        pair = self._pairs.get(number)
        if pair is not None and pair.woken(at):
            self._signals._heard(self._ways, number, at)


def _listen(signals: Signals, ways: _Ways) -> None:
    _Listener(signals, ways).run()


# --- whose handler it is ---


def _whose(handler: Any) -> Signals | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, Signals) else None


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


# --- descriptors: on Windows, a socket's number is not a file's ---


def _pair() -> tuple[socket.socket, socket.socket]:
    write, read = socket.socketpair()
    write.setblocking(False)  # noqa: FBT003
    read.setblocking(False)  # noqa: FBT003
    return write, read


def _read(fd: int) -> bytes:
    if sys.platform != "win32":
        return os.read(fd, 4096)
    with contextlib.closing(socket.socket(fileno=fd)) as wrapped:
        try:
            return wrapped.recv(4096)
        finally:
            wrapped.detach()


def _dup(fd: int) -> socket.socket | int | None:
    try:
        return os.dup(fd) if sys.platform != "win32" else socket.socket(fileno=socket.dup(fd))
    except (OSError, AttributeError):
        return None


def _fileno(thing: socket.socket | int) -> int:
    return thing if isinstance(thing, int) else thing.fileno()


def _same_file(fd: int, kept: socket.socket | int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(_fileno(kept)))
    except OSError:
        return False


def _set_wakeup_fd(fd: int) -> None:
    # Its owner may have closed it meanwhile.
    with contextlib.suppress(OSError, ValueError):
        signal.set_wakeup_fd(fd)


def _close(thing: socket.socket | int) -> None:
    if isinstance(thing, socket.socket):
        thing.close()
    elif sys.platform != "win32":
        os.close(thing)
    else:
        socket.close(thing)


# --- fork ---

_installed: weakref.WeakSet[Signals] = weakref.WeakSet()
_masks: dict[int, set[signal.Signals]] = {}
"""Signal masks by forking thread.

A signal to a child that has not restored its handlers yet would be written into the parent's pipe.
"""


def _before_fork() -> None:
    numbers = {number for signals in _installed for number in signals._numbers}
    if numbers:
        _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # type: ignore[assignment]


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
