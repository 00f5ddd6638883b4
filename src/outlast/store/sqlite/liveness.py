"""Who is alive on this host: a lock file a worker, held by the kernel's word and touched as a heartbeat.

A worker is dead when nobody holds its lock and it was not touched for two heartbeats. Either alone is no proof: a
lock file may be young and not locked yet, a live process may be slow.
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
"""An id that a worker can have: Outlast's own are of 16 characters."""
HERE, LEFT = b"here\n", b"left\n"
"""What a lock file says. They are equally long, so that a full disk has room for the second where it had for the first."""


def find_live_worker(folder: Path) -> str | None:
    """Return the id of a worker whose lock is held; None if there is none, or it cannot be seen."""
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


class LivenessLocks:
    def __init__(self, folder: Path, heartbeat: float, owners: Owners | None = None) -> None:
        self._folder, self._heartbeat, self._owners = folder, heartbeat, owners
        self._held: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, worker: str) -> None:
        """Make and lock the file of a worker. OSError, as on a full disk: nothing is left behind."""
        path = self._path(worker)
        if worker in self._held or path is None:
            return
        fd = open_private(path, self._owners)
        try:
            while not lock(fd):  # the id is new: only a probe can hold it, and not for long
                time.sleep(0.001)
            _say(fd, HERE)
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
            # A file that stays is one of a worker that is known to have left.
            with suppress(OSError):
                self._file(worker).unlink()
            os.close(fd)

    def is_dead(self, worker: str) -> bool:
        """True only if it surely is: its lock is free and its heartbeat old."""
        if worker in self._held:
            return False
        path = self._path(worker)
        if path is None:
            return False
        try:
            fd = os.open(path, os.O_RDWR | NO_FOLLOW | NO_WAIT)
        except OSError:
            return False  # it is gone, not ours to open, or nothing that a worker makes: then only the lease can tell
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return False
            if not lock(fd, shared=True):
                return False
            # Either way: a clock that was set back must not keep the dead alive.
            return abs(time.time() - os.fstat(fd).st_mtime) > 2 * self._heartbeat
        finally:
            os.close(fd)  # lets go of the lock too

    def silence(self, worker: str) -> float | None:
        """For how many seconds its heart has not beaten; None if nothing tells."""
        path = self._path(worker)
        try:
            return None if path is None else time.time() - path.stat().st_mtime
        except OSError:
            return None

    def has_left(self, worker: str) -> bool:
        """Whether one that is dead had ended in order, but could not say so in the store."""
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
        """Who was not let go of could not be struck off: the store was away. Its lock file says so to whoever sweeps."""
        self._stop.set()
        for fd in self._held.values():
            with suppress(OSError):
                _say(fd, LEFT)
        self.die()

    def die(self) -> None:
        """As the kernel does at a death: locks are free, and nobody touches their files any more."""
        self._stop.set()
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def forget_in_child(self) -> None:
        """After fork: the child must not keep the parent's locks alive."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
        self._thread = None

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat):
            for fd in list(self._held.values()):
                with suppress(OSError):  # let go of in between
                    os.utime(fd)

    def _path(self, worker: str) -> Path | None:
        """None for an id that is no name of a file in this folder, or no text: whoever writes the store writes ids, and no path follows from one."""
        if not isinstance(worker, str) or not _NAME.fullmatch(worker):
            return None
        return self._file(worker)

    def _file(self, worker: str) -> Path:
        return self._folder / f"{PREFIX}{worker}{SUFFIX}"


class LocalLiveness:
    """For a store that only this process can see: who holds is alive, who does not is dead."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self.left = False
        """Whether the process before this one had ended in order, but could not say so in the store."""

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
        """Nothing beats here."""

    def has_left(self, worker: str) -> bool:
        return self.left and worker not in self._held

    def remove(self, worker: str) -> None:
        pass

    def die(self) -> None:
        self._held.clear()

    def close(self) -> None:
        self._held.clear()


def _say(fd: int, words: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, words)
