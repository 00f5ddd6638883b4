"""Track which workers on this host are alive.

Each worker has one lock file, whose lock the kernel releases when the process dies. Its mtime is
the heartbeat. A worker is dead when its lock is free and it missed two heartbeats. Neither alone is
proof: a new lock file may not be locked yet, and a live process may be slow.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

from outlast.errors import StoreBroken
from outlast.store.file_trust import NO_FOLLOW, NO_WAIT, Owners, open_plain
from outlast.store.private_files import lock, open_private

PREFIX, SUFFIX = "worker-", ".lock"
_NAME = re.compile(r"[^/\\\x00]{1,50}")
"""Valid ids of workers. Outlast's own have 16 characters."""
HERE, LEFT = b"here\n", b"left\n"
"""The content of a lock file. Both have the same length, so a full disk that had room for the first
has room for the second.
"""


def find_live_worker(folder: Path) -> str | None:
    """Return the id of a worker whose lock is held; None if there is none or it cannot be seen."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        try:
            fd = open_plain(path, os.O_RDONLY)
        except (OSError, StoreBroken):
            continue
        try:
            if not lock(fd, shared=True):
                return path.name.removeprefix(PREFIX).removesuffix(SUFFIX)
        finally:
            os.close(fd)
    return None


class Liveness:
    def __init__(self, folder: Path, heartbeat: float, owners: Owners | None = None) -> None:
        self._folder = folder
        self._heartbeat = heartbeat
        self._owners = owners
        self._held: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, worker: str) -> None:
        """Create and lock the file of a worker.

        If this raises OSError, as on a full disk, it leaves nothing behind.
        """
        path = self._path(worker)
        if worker in self._held or path is None:
            return
        fd = open_private(path, self._owners)
        try:
            # The id is new, so only a probe can hold the lock, and only briefly.
            while not lock(fd):
                time.sleep(0.001)
            _write_state(fd, HERE)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            os.close(fd)
            raise
        self._held[worker] = fd
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._beat, name="outlast-heartbeat", daemon=True
            )
            self._thread.start()

    def release(self, worker: str) -> None:
        fd = self._held.pop(worker, None)
        if fd is not None:
            # If the file cannot be removed, it belongs to a worker that is known to have left.
            with suppress(OSError):
                self._file(worker).unlink()
            os.close(fd)

    def is_dead(self, worker: str) -> bool:
        """Return whether the worker is certainly dead: its lock is free, its heartbeat is old."""
        if worker in self._held:
            return False
        path = self._path(worker)
        if path is None:
            return False
        try:
            fd = os.open(path, os.O_RDWR | NO_FOLLOW | NO_WAIT)
        except OSError:
            # The file is gone, not accessible, or not one that a worker creates. Then only the
            # lease can tell.
            return False
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return False
            if not lock(fd, shared=True):
                return False
            # Compare in both directions: a clock that was set back must not keep a dead worker
            # alive.
            return abs(time.time() - os.fstat(fd).st_mtime) > 2 * self._heartbeat
        finally:
            # This releases the lock, too.
            os.close(fd)

    def silence(self, worker: str) -> float | None:
        """Return the seconds since the worker's last heartbeat; None if they are not known."""
        path = self._path(worker)
        try:
            return None if path is None else time.time() - path.stat().st_mtime
        except OSError:
            return None

    def has_left(self, worker: str) -> bool:
        """Return whether a dead worker had ended in order but could not deregister."""
        path = self._path(worker)
        if path is None:
            return False
        try:
            fd = open_plain(path, os.O_RDONLY)
        except (OSError, StoreBroken):
            return False
        try:
            return os.read(fd, len(LEFT) + 1) == LEFT
        finally:
            os.close(fd)

    def remove(self, worker: str) -> None:
        path = self._path(worker)
        if worker not in self._held and path is not None:
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Release all locks, and mark the workers that could not deregister.

        A worker that is still held here could not deregister because the store was unavailable. Its
        lock file tells the next sweep.
        """
        self._stop.set()
        for fd in self._held.values():
            with suppress(OSError):
                _write_state(fd, LEFT)
            os.close(fd)
        self._held.clear()

    def forget_in_child(self) -> None:
        """Close the parent's locks in a forked child, which must not keep them alive.

        Leave `_stop` alone: a thread of the parent may have held its lock.
        """
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
        self._thread = None

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat):
            for fd in list(self._held.values()):
                # The lock may be released in between.
                with suppress(OSError):
                    os.utime(fd)

    def _path(self, worker: str) -> Path | None:
        """Return the lock file of a worker, or None if its id is not a valid file name.

        Anyone who can write the store can write ids, so an id must not lead to another path.
        """
        if not isinstance(worker, str) or not _NAME.fullmatch(worker):
            return None
        return self._file(worker)

    def _file(self, worker: str) -> Path:
        return self._folder / f"{PREFIX}{worker}{SUFFIX}"


class LocalLiveness:
    """Track liveness in a store that only this process can see.

    A worker that holds its lock is alive, any other is dead.
    """

    def __init__(self) -> None:
        self._held: set[str] = set()
        self.left = False
        """Whether the previous process had ended in order but could not deregister its workers."""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def acquire(self, worker: str) -> None:
        self._held.add(worker)

    def release(self, worker: str) -> None:
        self._held.discard(worker)

    def is_dead(self, worker: str) -> bool:
        return worker not in self._held

    def silence(self, worker: str) -> None:
        """Return None: there are no heartbeats here."""

    def has_left(self, worker: str) -> bool:
        return self.left and worker not in self._held

    def remove(self, worker: str) -> None:
        pass

    def forget_in_child(self) -> None:
        self._held.clear()

    def close(self) -> None:
        self._held.clear()


def _write_state(fd: int, state: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, state)
