"""Work in a directory by its descriptor, and use nothing in it that another user may have planted.

Every name is looked up relative to the open directory. Swapping the directory for another one, or
for a symbolic link, between a check and its use therefore changes nothing. No symbolic link is
followed, no FIFO blocks, and new files are created exclusively, with mode 0600. Windows has neither
directory descriptors nor these flags: names are joined to the path there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HAS_DIR_FD = os.open in os.supports_dir_fd
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
BINARY: int = getattr(os, "O_BINARY", 0)
LINKS_MAX = 40


class Untrusted(OSError):
    """Another user may have planted what is in the place of one of our files or directories."""

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(
            errno.EPERM,
            f"{what}. Find out who made it, and remove it or use another directory",
            str(path),
        )


class Directory:
    """An open directory, and the operations in it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self._fd = path, fd
        self.status = os.fstat(fd) if HAS_DIR_FD else path.stat()

    @classmethod
    def open(cls, path: Path, parent: Directory | None = None) -> Directory:
        """Open a directory.

        Raise OSError if it does not exist, and Untrusted if it is a symbolic link or not a
        directory.
        """
        if not HAS_DIR_FD:
            if path.is_symlink() or not path.is_dir():
                # This raises FileNotFoundError.
                path.stat()
                raise Untrusted(path, "it is not a directory")
            return cls(path, -1)
        flags = os.O_RDONLY | DIRECTORY | NO_FOLLOW | CLOSE_ON_EXEC
        try:
            fd = (
                os.open(path, flags)
                if parent is None
                else os.open(path.name, flags, dir_fd=parent._fd)
            )
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise Untrusted(path, "it is a symbolic link, or not a directory") from None
            error.filename = str(path)
            raise
        return cls(path, fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def trusts(self, uid: int) -> bool:
        """Return whether files of this user are used here.

        Files of this process's user, of root and of the directory's owner are. If a group, but not
        everybody, may write the directory, its members share it, so files of every user are.
        """
        if not hasattr(os, "geteuid"):
            return True
        mode = self.status.st_mode
        is_shared = bool(mode & stat.S_IWGRP) and not mode & stat.S_IWOTH
        return is_shared or uid in (os.geteuid(), 0, self.status.st_uid)

    def create(self, name: str, mode: int = 0o600) -> int:
        """Create a file and return its descriptor. Raise FileExistsError if the name is taken."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | CLOSE_ON_EXEC | BINARY
        return os.open(*self._at(name), flags, mode, **self._in())

    def open_file(self, name: str, *, check_owner: bool = True) -> int:
        """Open a regular file of a trusted user for reading. Raise Untrusted for anything else."""
        flags = os.O_RDONLY | NO_FOLLOW | NO_WAIT | CLOSE_ON_EXEC | BINARY
        try:
            fd = os.open(*self._at(name), flags, **self._in())
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
                raise Untrusted(self.path / name, "it is not a regular file") from None
            raise
        try:
            self._check(name, os.fstat(fd), check_owner)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check(self, name: str, status: os.stat_result, check_owner: bool = True) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(self.path / name, "it is not a regular file")
        if check_owner and not self.trusts(status.st_uid):
            raise Untrusted(self.path / name, f"it belongs to another user (uid {status.st_uid})")

    def regular(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file of a trusted user; None if the name does not exist.

        Raise Untrusted for anything else.
        """
        status = self.stat(name)
        if status is not None:
            self._check(name, status)
        return status

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of this name itself, even of a symbolic link. None if it is missing."""
        try:
            return os.stat(*self._at(name), **self._in(), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make_directory(self, name: str) -> None:
        os.mkdir(*self._at(name), 0o700, **self._in())  # noqa: PTH102 - a Path has no dir_fd

    def change_mode(self, mode: int) -> None:
        """Change the mode of the directory itself."""
        if HAS_DIR_FD:
            os.fchmod(self._fd, mode)
            self.status = os.fstat(self._fd)

    def unlink(self, name: str) -> None:
        """Remove a name if it exists. A symbolic link itself is removed, not its target."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(*self._at(name), **self._in())

    def rename(self, name: str, target: Directory, target_name: str) -> None:
        """Move a file to this name in the other directory, replacing what has it there."""
        if HAS_DIR_FD:
            os.replace(name, target_name, src_dir_fd=self._fd, dst_dir_fd=target._fd)
        else:
            (self.path / name).replace(target.path / target_name)

    def link(self, name: str, target: Directory, target_name: str) -> None:
        """Create a second name (a hard link) in the other directory. The name must be free."""
        if HAS_DIR_FD:
            os.link(
                name, target_name, src_dir_fd=self._fd, dst_dir_fd=target._fd, follow_symlinks=False
            )
        else:
            os.link(self.path / name, target.path / target_name)

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self._fd if HAS_DIR_FD else self.path) as found:
            for entry in found:
                yield entry.name, entry.stat(follow_symlinks=False)

    def touch(self, name: str) -> None:
        os.utime(*self._at(name), **self._in(), follow_symlinks=not HAS_DIR_FD)

    def sync(self) -> None:
        """Flush the directory's names to disk. Windows has no such call, and does it by itself."""
        if HAS_DIR_FD:
            os.fsync(self._fd)

    def _at(self, name: str) -> tuple[str]:
        return (name if HAS_DIR_FD else str(self.path / name),)

    def _in(self) -> dict[str, Any]:
        return {"dir_fd": self._fd} if HAS_DIR_FD else {}


def resolved(path: str) -> Path:
    """Return where a path leads, following only symbolic links of trusted users.

    In a directory that everybody may write, such as /tmp, any user can create a link first. The
    kernel refuses to follow other users' links there, but reading a link and opening its target
    would not be refused.
    """
    if not HAS_DIR_FD:
        return Path(os.path.realpath(path))
    here, waiting, links = Path("/"), list(reversed(Path(path).parts[1:])), 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            here = here.parent
            continue
        there = here / part
        try:
            status = there.lstat()
        except FileNotFoundError:
            here = there
            continue
        if not stat.S_ISLNK(status.st_mode):
            here = there
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if status.st_uid not in (os.geteuid(), 0, here.stat().st_uid):
            raise Untrusted(there, f"it is a symbolic link of another user (uid {status.st_uid})")
        target = there.readlink()
        if target.is_absolute():
            here = Path("/")
        waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return here
