"""A helper process that ends this one when nothing in Python can run any more.

While C code holds the GIL (a regular expression, `sum(repeat(1, 10**11))`) no handler and no thread of ours runs. What
still works is the wake-up descriptor: the C-level signal handler writes the signal's number into it without the GIL. So
a small process reads the other end. It passes every number on to this process, and kills it when grace is about to end.

This file is also that process's program (`python -I -S guard.py`): it imports nothing at its top that the program does
not need.

The wake-up pipe, worker to guard, one byte each:

    1..64          a signal's number; SIGTERM and SIGINT start the count of `grace`
    ARM b b b b    kill in so many milliseconds: four bytes of seven bits, high bit set, the highest first
    STOP           end, and kill nobody

Numbers may come between the bytes of ARM. The relay pipe, guard to worker: nine bytes a signal, its number and the
monotonic clock's nanoseconds at which it came. The guard ends when the wake-up pipe does, which is when the worker does.

Not on Windows, and not in a frozen program, whose executable is no interpreter: `start()` says so and returns False.
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
"""The kill comes so many seconds before grace ends: later is not before it."""

LOOK_SECONDS = 5.0
"""How often a guard without a pidfd looks whether its worker is still its parent."""

_ARM_MILLISECONDS_MAX = (1 << 28) - 1
_COUNTED = (signal.SIGTERM, signal.SIGINT)
_IGNORED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTSTP")


class WatchdogProcess:
    """One helper process for this one. `grace` is what the whole drain has, from its first signal.

    Only for a process that is ours: whatever it is doing, it is killed (SIGKILL) `grace - 0.1` seconds after a SIGTERM
    or a SIGINT. As PID 1 of a pid namespace, where the kernel drops a SIGKILL from inside, it ends with exit code 63
    instead (see `_EndAsInit`).
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._fds: tuple[int, int, int] | None = None
        """The wake-up pipe's write end and read end, the relay pipe's read end."""

    @property
    def running(self) -> bool:
        """Whether it was started here and has not been stopped. Its process may have died since."""
        return self._fds is not None and self._pid == os.getpid()

    def start(self) -> bool:
        """Spawn it. False, with a warning logged, where that cannot be; a drain then does without. Once is enough."""
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
                "no helper process: %s. C code that holds the GIL can outlast grace", why,
                extra={"event": "no_guard"},
            )  # fmt: skip
            return False
        return True

    def arm(self, seconds: float) -> bool:
        """Kill this process in so many seconds, whatever was said before if that is later. Any thread may.

        For drains that no signal began. False if there is no guard to hear it.
        """
        left = min(max(int(seconds * 1000), 0), _ARM_MILLISECONDS_MAX)
        return self._tell(
            bytes((ARM, *(0x80 | (left >> shift) & 0x7F for shift in (21, 14, 7, 0))))
        )

    def stop(self) -> None:
        """End it in an orderly way: what it counted is forgotten. Signals that use it go on without. Idempotent."""
        if not self.running:
            return
        self._tell(bytes((STOP,)))
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
        """It stays until this process is gone, and nobody here waits for it."""
        if self._process is not None:
            self._process.returncode = 0  # nothing to warn of

    def attach(self) -> tuple[int, int, int] | None:
        """Descriptors of the asker's own, to be closed by it: where to write, where to read, where to read if that ends.

        The last is the wake-up pipe's other end: if the guard dies, what it has not read can be read there. It also
        keeps a write from failing with SIGPIPE then. One asker at a time: two would take each other's bytes.
        """
        if self._fds is None or not self.running:
            return None
        wake, other, relay = self._fds
        return os.dup(wake), os.dup(relay), os.dup(other)

    def _tell(self, message: bytes) -> bool:
        if self._fds is None or not self.running:
            return False
        try:
            return os.write(self._fds[0], message) == len(message)
        except OSError:  # full: it has not read for long. It may be dead
            return False

    def _spawn(self) -> None:
        import subprocess

        pid = os.getpid()
        if pid == 1:
            _EndAsInit.prepare()
        _watch(self)
        other, wake = os.pipe()
        relay, relay_other = os.pipe()
        self._pid, self._fds = (
            pid,
            (wake, other, relay),
        )  # before the spawn: another thread may fork meanwhile
        # Its mask is what this thread's is: from its first moment on, what ends the worker does not end it.
        mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, [getattr(signal, name) for name in _IGNORED]
        )
        words = (str(other), str(relay_other), str(pid), repr(self.grace))
        try:
            for fd in (other, wake, relay, relay_other):
                os.set_blocking(fd, False)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                [sys.executable, "-I", "-S", os.path.abspath(__file__), *words],  # noqa: PTH100 - light
                pass_fds=(other, relay_other),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # a Ctrl-C, or a signal to our group, is not for it
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
        """A forked child lets go of the pipe: as long as it held it, the guard would not see the worker's end."""
        self._close()
        if self._process is not None:
            self._process.returncode = 0  # not its child: nothing to reap, nothing to warn of
            self._process = None


class _EndAsInit:
    """How a guard ends PID 1. The kernel drops signals to it that are at their default action, SIGKILL too.

    It does deliver those with a handler, and a C function can be one: `_exit` itself, which needs no GIL. What it is
    called with, and the process then ends with, is the signal's number.
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
                "as PID 1, without ctypes (%s), C code that holds the GIL can outlast grace", error,
                extra={"event": "no_guard"},
            )  # fmt: skip


def _cannot() -> str | None:
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return "this platform has no pipes that can be passed on"
    if not sys.executable or getattr(sys, "frozen", False):
        return "the executable is no Python interpreter"
    if not os.path.isfile(__file__):  # noqa: PTH113 - light
        return f"{__file__} is no file"
    return None


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("outlast.drain")


_watched: weakref.WeakSet[WatchdogProcess] | None = None


def _watch(guard: WatchdogProcess) -> None:
    global _watched  # noqa: PLW0603 - made at first use: weakref is not for the helper
    if _watched is None:
        import weakref

        _watched = weakref.WeakSet()
        os.register_at_fork(after_in_child=_after_fork)
    _watched.add(guard)


def _after_fork() -> None:
    for guard in list(_watched or ()):
        guard._in_child()


class _Count:
    """What the helper knows: when to kill, and how far a message has come. No input, no output."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.kill_at: float | None = None
        self.stopped = False
        self._arming: list[int] | None = None

    def hear(self, data: bytes, now: float) -> list[int]:
        """The signals among these bytes, in order."""
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
    for name in _IGNORED:  # blocked since it was spawned: here they are forgotten too
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    pidfd = _pidfd(worker)
    if (
        os.getppid() != worker
    ):  # it has ended: the number, and what the pidfd stands for, may be another's by now
        return
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if pidfd is not None:
        poll.register(pidfd, select.POLLIN)
    count = _Count(grace)
    while not count.stopped:
        left = None if pidfd is not None else LOOK_SECONDS
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
            for number in count.hear(data, time.monotonic()):
                try:
                    os.write(relay, bytes((number,)) + at)
                except OSError:  # full, or nobody reads any more: its handler has the signal too
                    break
        elif (pidfd is not None and pidfd in ready) or os.getppid() != worker:
            return  # somebody holds the pipe for a worker that is gone
        elif count.kill_at is not None and time.monotonic() >= count.kill_at:
            _kill(worker, pidfd)
            return


def _pidfd(worker: int) -> int | None:
    try:
        return os.pidfd_open(worker)
    except (AttributeError, OSError):  # not Linux, an old one, or not allowed
        return None


def _kill(worker: int, pidfd: int | None) -> None:
    number = _EndAsInit.number if worker == 1 else signal.SIGKILL
    try:
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, number)
        elif os.getppid() == worker:
            os.kill(worker, number)
    except ProcessLookupError:  # it was faster
        return


if __name__ == "__main__":
    _watchdog(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
