"""Do everything that the file store does to a disk.

Each function says what is durable when it returns. None hides an error.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from outlast.store.file_trust import NO_WAIT, open_plain

FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, getattr(errno, "ESTALE", errno.ENOENT))
NEW = ".new"
"""The suffix of a file that is not complete yet."""

if sys.platform == "darwin":
    import fcntl

    def sync(fd: int) -> None:
        """Make a file durable. On macOS, fsync alone leaves the data in the drive's cache."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:

    def sync(fd: int) -> None:
        """Make the content and the length of a file durable."""
        os.fsync(fd)


def write(fd: int, data: bytes) -> None:
    """Write all the data. On OSError a part of it may be written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def reading(path: Path) -> BinaryIO:
    """Open a plain file for reading. Raise StoreBroken if it is something else."""
    return os.fdopen(open_plain(path, os.O_RDONLY | FLAGS), "rb")


def read(path: Path) -> bytes:
    """Return the content of a plain file."""
    with reading(path) as file:
        return file.read()


def write_at(path: str | Path, start: int, data: bytes) -> None:
    """Write data at an offset. It is not durable yet."""
    fd = open_plain(path, os.O_WRONLY | os.O_CREAT | FLAGS)
    try:
        os.lseek(fd, start, os.SEEK_SET)
        write(fd, data)
    finally:
        os.close(fd)


def end_with(path: Path, start: int, data: bytes) -> None:
    """Cut the file at `start` and append the data. The whole file is durable, its name is not."""
    fd = open_plain(path, os.O_WRONLY | os.O_CREAT | FLAGS)
    try:
        os.ftruncate(fd, start)
        os.lseek(fd, start, os.SEEK_SET)
        write(fd, data)
        sync(fd)
    finally:
        os.close(fd)


def sync_path(path: Path) -> None:
    """Make a file durable, or the names in a folder. Ignore a path that does not exist.

    This also raises write errors that have not been reported yet, even if the file was closed
    since.
    """
    if sys.platform == "win32" and path.is_dir():
        # Windows cannot sync a folder. The file system decides when names are durable.
        return
    try:
        fd = os.open(
            path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | FLAGS | NO_WAIT
        )
    except FileNotFoundError:
        return
    try:
        sync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Replace a file's content durably, or leave it as it was."""
    new = path.with_name(path.name + NEW)
    try:
        end_with(new, 0, data)
        os.replace(new, path)  # noqa: PTH105 - one name for all of these
    except OSError:
        with suppress(OSError):
            os.unlink(new)  # noqa: PTH108
        raise
    sync_path(path.parent)


def remove(path: Path) -> None:
    """Remove a file. Until its folder is synced, a power cut may bring the file back."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def make_folder(path: Path) -> None:
    """Create a folder for its owner only. It is durable when its parent folder is synced."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102


def is_same(fd: int, path: str) -> bool:
    """Return whether a path still names an open file.

    Raise OSError if that cannot be determined.
    """
    try:
        # This runs at every commit, and os.stat is faster than Path.stat.
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
