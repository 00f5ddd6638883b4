"""The turnstile: processes that write one file take turns.

SQLite's own write lock is not fair: a process that commits back to back starves the others for seconds. Here, who
wants to write takes the gate, then the room, then leaves the gate. Who waits for the room holds the gate, so a
process that has just left the room queues behind it.

It is fairness and nothing else: `BEGIN IMMEDIATE` keeps writers apart. So a process that was stopped inside can
hold up the others for `PATIENCE` only; then they go on without it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

PATIENCE = 1.0

if sys.platform == "win32":
    import msvcrt

    def lock(fd: int, *, shared: bool = False) -> bool:  # noqa: ARG001 - Windows knows no shared one
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        except OSError:
            return  # it was not held

else:
    import fcntl

    def lock(fd: int, *, shared: bool = False) -> bool:
        """Take the lock if it is free now. The kernel lets go of it when the process dies."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class Turnstile:
    """A context manager. The kernel lets go of both locks if the process dies inside."""

    def __init__(self, folder: Path) -> None:
        self._gate = open_private(folder / "gate")
        self._room = open_private(folder / "room")

    def __enter__(self) -> None:
        if lock(self._gate) or _wait_for(self._gate):
            try:
                if not lock(self._room):
                    _wait_for(self._room)
            finally:
                unlock(self._gate)

    def try_enter(self) -> bool:
        """Enter only if nobody is in the way. A true answer must be followed by `__exit__`."""
        if not lock(self._gate):
            return False
        try:
            return lock(self._room)
        finally:
            unlock(self._gate)

    def __exit__(self, *exc: object) -> None:
        unlock(self._room)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._room)


class NoTurnstile:
    """For a store that only this process can see."""

    def __enter__(self) -> None:
        pass

    def try_enter(self) -> bool:
        return True

    def __exit__(self, *exc: object) -> None:
        pass


def _wait_for(fd: int) -> bool:
    """Look again, at growing intervals: `flock` itself cannot be given a time-out."""
    deadline, pause = time.monotonic() + PATIENCE, 0.00005
    while time.monotonic() < deadline:
        time.sleep(pause)
        if lock(fd):
            return True
        pause = min(pause * 1.5, 0.002)
    return False


def open_private(path: Path) -> int:
    """A descriptor that is not inherited by programs that are started, on a file only its owner may read."""
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
