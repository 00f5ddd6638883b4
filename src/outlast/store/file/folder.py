"""Check and lock the folder of a file store."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from outlast.errors import StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.file import disk
from outlast.store.file.log import NAME as LOG_NAME
from outlast.store.file.log import OLD as OLD_LOG_NAME
from outlast.store.file_trust import check_own, warn_if_world_writable
from outlast.store.paths import making
from outlast.store.private_files import lock, open_private

FORMAT = 1
_FORMAT_FILE, _LOCK_FILE = "format", "lock"
_UNFINISHED = {_LOCK_FILE, LOG_NAME, _FORMAT_FILE + disk.NEW}
"""Files in a folder whose creation was interrupted."""
_HERE, _LEFT = b" ", b"!"
"""The first byte of the lock file: while a process holds it, and after a process left without being
able to write that to the log.
"""
_NOT_OURS = {"lost+found"}
"""Files that a fresh volume contains."""


class Folder:
    """The folder of a file store. Call `enter` before anything else, and `leave` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_name = str(path / _LOCK_FILE)
        self._fd = -1
        self.left = False
        """Whether the previous process ended in order but could not write that to the log."""

    def enter(self) -> None:
        """Create the folder if it is missing, and take its lock.

        Raise StoreBroken (nothing was written), StoreTooNew or StoreUnavailable.
        """
        self._check()
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        for folder in reversed(missing):
            with making(self.path):
                disk.make_folder(folder)
            disk.sync_path(folder.parent)
        check_own(self.path)
        self._lock()
        warn_if_world_writable(self.path)
        if not (self.path / _FORMAT_FILE).exists():
            self._check()
            disk.end_with(self.path / LOG_NAME, 0, b"")
            document = {"outlast": "file store", "format": FORMAT}
            disk.replace(self.path / _FORMAT_FILE, json.dumps(document).encode() + b"\n")
        elif not (self.path / LOG_NAME).exists() and not (self.path / OLD_LOG_NAME).exists():
            raise StoreBroken(
                f"{self.path}: {LOG_NAME} is missing. Nothing was changed. Restore the folder "
                "from a copy."
            )

    def format(self) -> int:
        """Return the format of the folder, 0 if it is empty or missing. Raise StoreBroken or
        StoreTooNew.
        """
        self._check()
        return FORMAT if (self.path / _FORMAT_FILE).exists() else 0

    def is_there(self) -> bool:
        """Return False if the folder or its lock file was removed or replaced."""
        return disk.is_same(self._fd, self._lock_name)

    def note_left(self) -> None:
        """Mark the lock file as left.

        It overwrites an existing byte, so it works on a full disk.
        """
        with suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, _LEFT)

    def leave(self) -> None:
        """Release the lock. The kernel releases it if the process dies."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _check(self) -> None:
        """Raise unless the folder is a store that this release knows, or may become one."""
        try:
            found = set(os.listdir(self.path)) - _NOT_OURS  # noqa: PTH208
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise StoreBroken(
                f"{self.path}: it is a file. The address of a file store is a folder."
            ) from None
        if _FORMAT_FILE in found:
            self._check_format()
        elif found - _UNFINISHED or (LOG_NAME in found and (self.path / LOG_NAME).stat().st_size):
            raise StoreBroken(
                f"{self.path}: this folder was not created by Outlast: it contains files, but no "
                f"`{_FORMAT_FILE}`. Nothing was written. "
                "Use a separate folder."
            )

    def _check_format(self) -> None:
        text = disk.read(self.path / _FORMAT_FILE).decode(errors="replace")
        try:
            document = json.loads(text)
            known = document["outlast"] == "file store"
            version = int(document["format"])
        except (ValueError, TypeError, KeyError):
            known, version = False, 0
        if not known:
            raise StoreBroken(
                f"{self.path / _FORMAT_FILE}: it does not identify this folder as a store of "
                "Outlast. Nothing was written."
            )
        if version > FORMAT:
            raise StoreTooNew(
                f"{self.path}: its format is {version}, this Outlast supports up to {FORMAT}. It "
                "was "
                "written by a newer Outlast: upgrade this "
                "one. Nothing was changed."
            )

    def _lock(self) -> None:
        fd = open_private(self.path / _LOCK_FILE)
        if lock(fd):
            self._fd = fd
            self.left = os.read(fd, 1) == _LEFT
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            # The text follows a blank: on Windows no process can read the locked byte.
            disk.write(fd, _HERE + f"{os.getpid()} {socket.gethostname()}\n".encode())
            return
        os.close(fd)
        raise StoreUnavailable(
            f"{self.path}: {self._holder()} has it open. A file store is for one process at a "
            "time: end that one first, or use a store "
            "that several may share (sqlite:, postgresql: or redis:)."
        )

    def _holder(self) -> str:
        pid, host = "", ""
        with suppress(OSError, ValueError), (self.path / _LOCK_FILE).open("rb") as file:
            file.seek(1)
            pid, host = file.read(300).decode(errors="replace").split()
        if not pid:
            return "another process"
        return (
            "this process itself"
            if pid == str(os.getpid()) and host == socket.gethostname()
            else f"process {pid} on {host}"
        )
