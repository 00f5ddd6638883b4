"""Everything that the file store does to a disk. Each function says what is durable when it returns; none hides an error."""

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
"""What the name of a file ends with that is not whole yet."""

if sys.platform == "darwin":
    import fcntl

    def sync(fd: int) -> None:
        """To the disk itself: fsync alone leaves it in the drive's cache there."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:

    def sync(fd: int) -> None:
        """What was written is durable, and the file's length."""
        os.fsync(fd)


def write(fd: int, data: bytes) -> None:
    """All of it, or OSError; then a part of it may be there."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def reading(path: Path) -> BinaryIO:
    """A plain file. StoreBroken if it is none."""
    return os.fdopen(open_plain(path, os.O_RDONLY | FLAGS), "rb")


def read(path: Path) -> bytes:
    """All of it."""
    with reading(path) as file:
        return file.read()


def write_at(path: str | Path, start: int, data: bytes) -> None:
    """Nothing of it is durable yet."""
    fd = open_plain(path, os.O_WRONLY | os.O_CREAT | FLAGS)
    try:
        os.lseek(fd, start, os.SEEK_SET)
        write(fd, data)
    finally:
        os.close(fd)


def end_with(path: Path, start: int, data: bytes) -> None:
    """Cut the file at `start` and add this; all of the file is durable, its name is not."""
    fd = open_plain(path, os.O_WRONLY | os.O_CREAT | FLAGS)
    try:
        os.ftruncate(fd, start)
        os.lseek(fd, start, os.SEEK_SET)
        write(fd, data)
        sync(fd)
    finally:
        os.close(fd)


def sync_path(path: Path) -> None:
    """A file is durable, or a folder's names are. One that is gone needs nothing.

    An error of writing that nobody has been told yet is told here, also where the file was closed since.
    """
    if sys.platform == "win32" and path.is_dir():
        return  # there is no such thing: names are durable as the file system pleases
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
    """The file is this, durably, or as it was."""
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
    """It may come back after a power cut, until its folder is synced."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def make_folder(path: Path) -> None:
    """For its owner only; durable when its own folder is synced."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102


def is_same(fd: int, path: str) -> bool:
    """Whether a name is still that of an open file. OSError where that cannot be found out."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116 - quicker, at every commit
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
