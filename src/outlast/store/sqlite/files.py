"""Notice when another program removes, replaces or truncates the files of an open database.

A connection keeps the files that it has opened. If another program removes `-wal` or `-shm`, SQLite
continues to write to files that no longer have a name. The next process to open the database
creates new ones and does not see what was committed to the old ones, and both write to one
database. So a commit is acknowledged only if the files are in place after it.

SQLite itself never removes these files while a connection is open: only the last connection to
close does. It truncates `-wal` only after a checkpoint.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.file_trust import Owners, open_plain
from outlast.store.private_files import lock, open_private
from outlast.store.sqlite.liveness import find_live_worker

HEADER_BYTES = 32


def companions(path: Path) -> tuple[str, str]:
    """Return the paths of `-wal` and `-shm`. SQLite creates them beside the target of a link."""
    real = os.path.realpath(path)
    return f"{real}-wal", f"{real}-shm"


def check_log_is_there(path: Path, place: str) -> None:
    """Raise StoreUnavailable if `-wal` or `-shm` is missing while a live worker uses the database.

    Opening it now would create new ones and lose what the worker has committed to the old ones.
    """
    if not _lacks_log(path):
        return
    worker = _live_worker(path)
    # Check again: the worker may have opened the database just now.
    if worker is not None and _lacks_log(path):
        raise _removed_under(worker, place)


@contextmanager
def log_kept(path: Path, place: str) -> Iterator[None]:
    """Raise StoreUnavailable if the log is missing or gets lost while this block opens the store.

    SQLite creates a missing log, even for a connection that only reads. If another program removes
    the log after the check, the new log would keep a live worker from saving what is only in the
    old one. So the new one is removed again. Nothing may be written in this block.
    """
    check_log_is_there(path, place)
    before = log_identities(path)
    try:
        yield
    finally:
        _remove_new_log(path, place, before)


def _remove_new_log(path: Path, place: str, before: dict[str, tuple[int, int]]) -> None:
    now = log_identities(path)
    new = [name for name, identity in before.items() if now.get(name, identity) != identity]
    worker = _live_worker(path) if new else None
    if worker is None:
        return
    log = companions(path)[0]
    for name in new:
        with suppress(OSError):
            if name != log or not Path(name).stat().st_size:
                Path(name).unlink()
    raise _removed_under(worker, place)


def log_identities(path: Path) -> dict[str, tuple[int, int]]:
    """Return the device and inode of `-wal` and `-shm`, by path. A missing file is left out."""
    found = {}
    for name in companions(path):
        with suppress(FileNotFoundError, NotADirectoryError):
            status = Path(name).stat()
            found[name] = status.st_dev, status.st_ino
    return found


def _live_worker(path: Path) -> str | None:
    return find_live_worker(path.with_name(path.name + ".d"))


def _removed_under(worker: str, place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{place}: its -wal or -shm was removed while worker {worker} was using it. "
        "Opening it now would lose what that worker has recorded. "
        "Wait until its process has ended, or send it SIGTERM (not SIGKILL)."
    )


class SharedFiles:
    """Publish to other processes which `-wal` and `-shm` the open connections use.

    If another program replaces `-wal` by a copy, SQLite lets the next process use the copy together
    with the index of the one in use. That process then commits behind frames that the copy lacks,
    and loses all of it when the index is rebuilt. So a separate file holds the identities of both,
    and every process keeps a shared lock on it while it has the database open. Use this class
    inside the write lock.
    """

    def __init__(self, folder: Path, path: Path, place: str, owners: Owners | None) -> None:
        self._path = path
        self._place = place
        self._fd: int | None = open_private(folder / "files", owners)
        self._is_first = lock(self._fd)
        if not self._is_first:
            lock(self._fd, shared=True)

    def check(self) -> None:
        """Raise StoreUnavailable if other processes use other files than those in place.

        A process that closes the database releases its lock before SQLite removes the files. So if
        no other process holds the lock, the last one to close has removed them.
        """
        if self._is_first or self._fd is None:
            return
        os.lseek(self._fd, 0, os.SEEK_SET)
        used = os.read(self._fd, 200)
        if not used or used == self._in_place():
            return
        self._is_first = lock(self._fd)
        if not self._is_first:
            raise StoreUnavailable(
                f"{self._place}: its -wal or -shm was removed or replaced while other processes "
                "were using "
                "it. Opening it now would lose what is recorded. Wait until they have ended, or "
                "send them "
                "SIGTERM (not SIGKILL)."
            )

    def publish(self) -> None:
        """Record the files that are open now, unless another process has.

        Call it after the first read.
        """
        if self._fd is None or not self._is_first:
            return
        os.ftruncate(self._fd, 0)
        # On a full disk the identities are not published.
        with suppress(OSError):
            os.pwrite(self._fd, self._in_place(), 0)
        lock(self._fd, shared=True)

    def _in_place(self) -> bytes:
        return json.dumps(list(log_identities(self._path).values())).encode()

    def close(self) -> None:
        """Release the lock. A forked child shares it with its parent, which keeps it."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class OpenFiles:
    """Hold the identities of the files that a connection has opened.

    Create it after the connection's first read.
    """

    def __init__(self, path: Path, place: str, db: sqlite3.Connection, shared: SharedFiles) -> None:
        self.shared = shared
        self.inode = path.stat().st_ino
        self._place = place
        self._db = db
        self._paths = (str(path), *companions(path))
        # SQLite takes no locks on the log, so closing this descriptor drops none.
        self._log = open_plain(self._paths[1], os.O_RDONLY)
        self._identities = tuple(
            (path, found.st_dev, found.st_ino)
            for path in self._paths
            for found in [Path(path).stat()]
        )
        self._size = os.fstat(self._log).st_size
        self._last_frame = 0
        self._frame_bytes: int = 24 + db.execute("PRAGMA page_size").fetchone()[0]
        self._is_truncated = False

    def close(self) -> None:
        os.close(self._log)

    def close_with(
        self, writer: sqlite3.Connection, reader: sqlite3.Connection, *, lost: bool
    ) -> None:
        """Close both connections. SQLite then copies the log into the database and removes it.

        Only a connection that may write does so, and only if it is the last one of all processes.
        Where the copy would do harm, the read-only connection closes last. A process that opens
        the database from now on shares the files with these connections, or creates new ones after
        the last connection has removed them. If the files were `lost`, no process opens the
        database until both are closed.
        """
        first, last = (reader, writer) if self.may_checkpoint() else (writer, reader)
        if not lost:
            self.shared.close()
        self.close()
        first.close()
        last.close()
        self.shared.close()

    def check(self) -> int:
        """Return the size of the log. Raise StoreBroken if a file was removed or replaced."""
        size = 0
        for path, device, inode in self._identities:
            try:
                found = os.stat(path)  # noqa: PTH116 - twice as quick, at every commit
            except (FileNotFoundError, NotADirectoryError):
                raise self._broken(path, "removed or replaced") from None
            if found.st_ino != inode or found.st_dev != device:
                raise self._broken(path, "removed or replaced")
            if path is self._paths[1]:
                size = found.st_size
        return size

    def before_commit(self) -> None:
        """Check the files before a transaction begins.

        If it raises StoreBroken, nothing was written.
        """
        size = self.check()
        if size < self._size:
            self._check_shorter_log()
        self._last_frame = size - (size - HEADER_BYTES) % self._frame_bytes - self._frame_bytes

    def after_commit(self) -> None:
        """Check the files before a commit is acknowledged.

        If it raises StoreBroken, the commit may not be durable.
        """
        self._size = self.check()
        # A log that was truncated meanwhile has a hole before the new frames. A frame never begins
        # with zeros.
        if self._last_frame > 0 and self._read(4, self._last_frame) == bytes(4):
            raise self._truncated()

    def _check_shorter_log(self) -> None:
        """Raise StoreBroken if another program, and not SQLite, has truncated the log.

        A checkpoint shows that: it fails if frames are missing that are not in the database. What
        it has copied by then is also in the remaining frames, so it does no harm.
        """
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_IOERR_SHORT_READ:
                raise
            raise self._truncated() from None

    def may_checkpoint(self) -> bool:
        """Return False if SQLite must not copy the log into the database on the last close.

        If another process has opened the database since the log was removed, it has created a log
        of its own. The old log must not overwrite what came from the new one. A log that is only
        missing may be copied.
        """
        for path, device, inode in self._identities:
            try:
                found = Path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return False
            if (found.st_dev, found.st_ino) != (device, inode):
                return False
        return not self._is_truncated and self._read(4, 0) != bytes(4)

    def _read(self, count: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._log, count, offset)
        os.lseek(self._log, offset, os.SEEK_SET)
        return os.read(self._log, count)

    def _truncated(self) -> StoreBroken:
        self._is_truncated = True
        return self._broken(self._paths[1], "truncated")

    def _broken(self, path: str, how: str) -> StoreBroken:
        what = "the file" if path == self._paths[0] else Path(path).name
        return StoreBroken(
            f"{self._place}: {what} was {how} while in use. Nothing more is written to it. "
            "Restart the program.",
            gone=True,
        )


def _lacks_log(path: Path) -> bool:
    return path.exists() and not all(map(os.path.exists, companions(path)))
