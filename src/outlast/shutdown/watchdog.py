"""End this process from a helper process when Python can no longer run anything.

While C code holds the GIL (a regular expression, `sum(repeat(1, 10**11))`), none of our handlers
and threads runs. The wake-up descriptor still works: the C-level signal handler writes the signal's
number into it without the GIL. So a small process, the watchdog, reads the other end. It relays
every number to this process, the worker, and kills it when grace is about to end.

This file is also the watchdog's program (`python -I -S watchdog.py`), so it imports only what that
program needs at the top.

The wake-up pipe, worker to watchdog, one byte each:

    1..64          a signal's number; SIGTERM and SIGINT start the count of `grace`
    ARM b b b b    kill in this many milliseconds: four bytes of seven bits each, with the
                   high bit set, most significant first
    STOP           exit, and kill nothing

Numbers may come between the bytes of ARM. The relay pipe, watchdog to worker, carries nine bytes
per signal: its number, and the time it came in nanoseconds of the monotonic clock. The watchdog
exits when the wake-up pipe closes, which is when the worker ends.

Windows and frozen programs, whose executable is no interpreter, have no watchdog: `start()` logs
that and returns False.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    import subprocess
    import weakref

ARM = 0x80
STOP = 0x81
RECORD_BYTES = 9
MARGIN = 0.1
"""Seconds between the kill and the end of grace."""

POLL_SECONDS = 5.0
"""How often a watchdog without a pidfd checks that the worker is still its parent."""

_ARM_MILLISECONDS_MAX = (1 << 28) - 1
_COUNTED = (signal.SIGTERM, signal.SIGINT)
_IGNORED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTSTP")


class WatchdogProcess:
    """Run one watchdog for this process.

    `grace` is the time of the whole drain, from its first signal. Use it only in a process of our
    own. Whatever that is doing, it gets SIGKILL `grace - 0.1` seconds after a SIGTERM or a SIGINT.
    As PID 1 of a pid namespace, where the kernel drops a SIGKILL from inside, it ends with exit
    code 63 instead (see `_EndAsInit`).
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._fds: tuple[int, int, int] | None = None
        """The wake-up pipe's write end and read end, and the relay pipe's read end."""

    @property
    def running(self) -> bool:
        """Return whether it was started here and not stopped. Its process may have died since."""
        return self._fds is not None and self._pid == os.getpid()

    def start(self) -> bool:
        """Spawn the watchdog. A repeated call does nothing.

        If that is not possible, log a warning and return False. A drain then works without it.
        """
        if self.running:
            return True
        why = _cannot()
        if why is None:
            try:
                self._spawn()
            except OSError as error:
                why = str(error)
        if why is not None:
            _log().warning(
                "No watchdog process could be started: %s. "
                "C code that holds the GIL can delay the exit beyond `grace`.",
                why,
                extra={"event": "no_guard"},
            )
            return False
        return True

    def arm(self, seconds: float) -> bool:
        """Kill this process in `seconds`, unless an earlier kill is set.

        May be called from any thread. This is for drains that no signal began. Return False if no
        watchdog can be reached.
        """
        left = min(max(int(seconds * 1000), 0), _ARM_MILLISECONDS_MAX)
        return self._send(
            bytes((ARM, *(0x80 | (left >> shift) & 0x7F for shift in (21, 14, 7, 0))))
        )

    def stop(self) -> None:
        """Stop the watchdog, without a kill.

        SignalReceiver that use it continue without it. Idempotent.
        """
        if not self.running:
            return
        self._send(bytes((STOP,)))
        self._close()
        process, self._process = self._process, None
        if process is None:
            return
        from subprocess import TimeoutExpired

        try:
            process.wait(timeout=1.0)
        except TimeoutExpired:
            process.kill()
            process.wait()

    def leave(self) -> None:
        """Let the watchdog live as long as this process, without a wait for its exit."""
        if self._process is not None:
            # Popen must not warn about a process that still runs.
            self._process.returncode = 0

    def attach(self) -> tuple[int, int, int] | None:
        """Return new descriptors: one to write, one to read, and one to read if that one ends.

        The caller closes them. The last is the read end of the wake-up pipe: if the watchdog dies,
        the caller reads there what it has not read. Holding it also keeps a write from failing with
        SIGPIPE. Only one caller at a time may use them, since two would take each other's bytes.
        """
        if self._fds is None or not self.running:
            return None
        wake, other, relay = self._fds
        return os.dup(wake), os.dup(relay), os.dup(other)

    def _send(self, message: bytes) -> bool:
        if self._fds is None or not self.running:
            return False
        try:
            return os.write(self._fds[0], message) == len(message)
        except OSError:
            # The pipe is full: the watchdog has not read for long, and may be dead.
            return False

    def _spawn(self) -> None:
        import subprocess

        pid = os.getpid()
        if pid == 1:
            _EndAsInit.prepare()
        _watch(self)
        other, wake = os.pipe()
        relay, relay_other = os.pipe()
        # Set before the spawn: another thread may fork meanwhile.
        self._pid = pid
        self._fds = (wake, other, relay)
        # The watchdog inherits this thread's signal mask. From its first moment on, what ends the
        # worker does not end it.
        mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, [getattr(signal, name) for name in _IGNORED]
        )
        arguments = (str(other), str(relay_other), str(pid), repr(self.grace))
        try:
            for fd in (other, wake, relay, relay_other):
                os.set_blocking(fd, False)
            # A Ctrl-C, or a signal to our process group, is not for the watchdog, so it gets a new
            # session. `os.path` instead of pathlib keeps the imports of this file light.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-I", "-S", os.path.abspath(__file__), *arguments],  # noqa: PTH100
                pass_fds=(other, relay_other),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(relay_other)

    def _close(self) -> None:
        fds, self._fds = self._fds, None
        for fd in fds or ():
            os.close(fd)

    def _in_child(self) -> None:
        """Close the pipes in a forked child.

        While the child held them, the watchdog would not see the worker's end.
        """
        self._close()
        if self._process is not None:
            # The watchdog is not the child's own child: there is nothing to reap or to warn about.
            self._process.returncode = 0
            self._process = None


class _EndAsInit:
    """End PID 1, to which the kernel delivers no signal at its default action, not even SIGKILL.

    The kernel does deliver signals that have a handler. A C function can be the handler: `_exit`
    itself, which needs no GIL. It is called with the signal's number, which becomes the exit code.
    """

    number = int(getattr(signal, "SIGRTMAX", 64)) - 1

    @classmethod
    def prepare(cls) -> None:
        try:
            import ctypes

            libc = ctypes.CDLL(None)
            libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
            libc.signal.restype = ctypes.c_void_p
            libc.signal(cls.number, ctypes.cast(libc._exit, ctypes.c_void_p))
        except (ImportError, OSError, AttributeError) as error:
            _log().warning(
                "This process is PID 1 and has no ctypes (%s). "
                "C code that holds the GIL can delay the exit beyond `grace`.",
                error,
                extra={"event": "no_guard"},
            )


def _cannot() -> str | None:
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return "this platform has no pipes that can be passed on"
    if not sys.executable or getattr(sys, "frozen", False):
        return "the executable is not a Python interpreter"
    if not os.path.isfile(__file__):  # noqa: PTH113 - light
        return f"{__file__} is not a file"
    return None


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("outlast.drain")


_watched: weakref.WeakSet[WatchdogProcess] | None = None


def _watch(watchdog: WatchdogProcess) -> None:
    global _watched  # noqa: PLW0603 - made at first use: weakref is not for the helper
    if _watched is None:
        import weakref

        _watched = weakref.WeakSet()
        os.register_at_fork(after_in_child=_after_fork)
    _watched.add(watchdog)


def _after_fork() -> None:
    for watchdog in list(_watched or ()):
        watchdog._in_child()


class _Count:
    """Decide when to kill, and parse messages from the wake-up pipe. No I/O."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.kill_at: float | None = None
        self.stopped = False
        self._arming: list[int] | None = None

    def receive(self, data: bytes, now: float) -> list[int]:
        """Parse these bytes, and return the signal numbers among them, in order."""
        numbers = []
        for byte in data:
            if byte < ARM:
                numbers.append(byte)
                if byte in _COUNTED:
                    self._kill_at(now + self.grace - min(MARGIN, self.grace / 2))
            elif self._arming is not None:
                self._arming.append(byte & 0x7F)
                if len(self._arming) == 4:
                    a, b, c, d = self._arming
                    self._kill_at(now + (a << 21 | b << 14 | c << 7 | d) / 1000)
                    self._arming = None
            elif byte == ARM:
                self._arming = []
            elif byte == STOP:
                self.stopped = True
        return numbers

    def _kill_at(self, at: float) -> None:
        self.kill_at = at if self.kill_at is None else min(at, self.kill_at)


def _watchdog(wake: int, relay: int, worker: int, grace: float) -> None:
    # They are blocked since the spawn. Ignoring them discards the pending ones too.
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    pidfd = _pidfd(worker)
    if os.getppid() != worker:
        # The worker has ended. Its pid, and what the pidfd refers to, may be another process.
        return
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if pidfd is not None:
        poll.register(pidfd, select.POLLIN)
    count = _Count(grace)
    while not count.stopped:
        left = None if pidfd is not None else POLL_SECONDS
        if count.kill_at is not None:
            due = max(0.0, count.kill_at - time.monotonic())
            left = due if left is None else min(due, left)
        ready = [fd for fd, _ in poll.poll(None if left is None else left * 1000)]
        if wake in ready:
            try:
                data = os.read(wake, 4096)
            except BlockingIOError:
                continue
            if not data:
                return
            at = time.monotonic_ns().to_bytes(8, "big")
            for number in count.receive(data, time.monotonic()):
                try:
                    os.write(relay, bytes((number,)) + at)
                except OSError:
                    # The pipe is full or has no reader. The worker's Python handler gets the signal
                    # too.
                    break
        elif (pidfd is not None and pidfd in ready) or os.getppid() != worker:
            # Another process holds the pipe of a worker that is gone.
            return
        elif count.kill_at is not None and time.monotonic() >= count.kill_at:
            _kill(worker, pidfd)
            return


def _pidfd(worker: int) -> int | None:
    try:
        return os.pidfd_open(worker)
    except (AttributeError, OSError):
        # Not Linux, an old kernel, or not permitted.
        return None


def _kill(worker: int, pidfd: int | None) -> None:
    number = _EndAsInit.number if worker == 1 else signal.SIGKILL
    try:
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, number)
        elif os.getppid() == worker:
            os.kill(worker, number)
    except ProcessLookupError:
        # The worker ended first.
        return


if __name__ == "__main__":
    _watchdog(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
