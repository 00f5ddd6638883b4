"""Locks on files, which keep the processes of one machine apart. The kernel lets go of them when the process dies."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from outlast.store.file_trust import Owners, give, open_plain

if sys.platform == "win32":
    import msvcrt

    def lock(fd: int, *, shared: bool = False) -> bool:  # noqa: ARG001 - Windows knows no shared one
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def lock_patiently(fd: int) -> None:
        while not lock(fd):
            time.sleep(0.001)

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

    def lock_patiently(fd: int) -> None:
        with suppress(OSError):  # closed meanwhile: nobody waits any more
            fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


def open_private(path: Path, owners: Owners | None = None) -> int:
    """A descriptor that is not inherited by programs that are started, on a file only its owner may read, or whoever the store is shared with.
    StoreBroken if it is a link."""
    fd = open_plain(path, os.O_RDWR | os.O_CREAT)
    give(owners, fd)
    return fd
