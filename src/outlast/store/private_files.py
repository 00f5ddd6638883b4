"""Lock files to coordinate the processes of one machine.

The kernel releases a lock when its process dies.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from outlast.store.file_trust import Owners, give, open_plain

if sys.platform == "win32":
    import msvcrt

    def lock(fd: int, *, shared: bool = False) -> bool:  # noqa: ARG001 - unused on Windows
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
            # The lock was not held.
            return

else:
    import fcntl

    def lock(fd: int, *, shared: bool = False) -> bool:
        """Take the lock if it is free now. The kernel releases it when the process dies."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock_patiently(fd: int) -> None:
        # The descriptor may be closed meanwhile. Then no thread still waits for the lock.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


def open_private(path: Path, owners: Owners | None = None) -> int:
    """Open a private file, creating it if needed, and return its descriptor.

    Only its owner may access the file, and the `owners` that share the store. Child programs do not
    inherit the descriptor. Raise StoreBroken if the path is a link.
    """
    fd = open_plain(path, os.O_RDWR | os.O_CREAT)
    give(owners, fd)
    return fd
