"""Make processes that write one file take turns.

SQLite's own write lock is not fair: a process that commits back to back starves the others for
seconds. Here a writer locks the gate, then the turn, then unlocks the gate. The writer that waits
for the turn holds the gate, so a process that has just released the turn queues behind it.

This provides fairness only: `BEGIN IMMEDIATE` keeps writers apart. So a process that is stopped
while it holds a lock delays the others for at most `PATIENCE` seconds. Then they continue without
the lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from outlast.store.file_trust import Owners
from outlast.store.private_files import lock, lock_patiently, open_private, unlock

PATIENCE = 1.0


class FairWriteLock:
    """Serialise writers fairly, as a context manager.

    The kernel releases both locks if the process dies inside.
    """

    def __init__(self, folder: Path, owners: Owners | None = None) -> None:
        self._gate = open_private(folder / "gate", owners)
        self._turn = open_private(folder / "turn", owners)
        self._waiter = LockWaiter()

    def __enter__(self) -> None:
        if lock(self._gate) or self._waiter.wait(self._gate):
            try:
                self._lock()
            finally:
                unlock(self._gate)

    def _lock(self) -> None:
        if not lock(self._turn):
            self._waiter.wait(self._turn)

    @contextmanager
    def urgently(self) -> Iterator[None]:
        """Enter without the gate, ahead of the writers that wait there, but behind the next one.

        This is for rare commits that cannot wait.
        """
        self._lock()
        try:
            yield
        finally:
            self.__exit__()

    def try_enter(self) -> bool:
        """Enter only if no other writer is in the way, and return whether it did.

        After True, the caller must call `__exit__`.
        """
        if not lock(self._gate):
            return False
        try:
            return lock(self._turn)
        finally:
            unlock(self._gate)

    def __exit__(self, *exc: object) -> None:
        unlock(self._turn)

    def close(self) -> None:
        if self._waiter.stop():
            os.close(self._gate)
            os.close(self._turn)


class NoWriteLock:
    """Do nothing, for a store that only this process can see."""

    def __enter__(self) -> None:
        pass

    def urgently(self) -> Self:
        return self

    def try_enter(self) -> bool:
        return True

    def __exit__(self, *exc: object) -> None:
        pass

    def close(self) -> None:
        pass


class LockWaiter:
    """Wait for a lock in a thread of its own, which starts when first needed.

    `flock` has no time-out, and polling would not wake the waiter when its turn comes.
    """

    def __init__(self) -> None:
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stuck: _Turn | None = None

    def wait(self, fd: int) -> bool:
        """Wait for a lock and return True once it is held.

        Return False after PATIENCE, or while an earlier turn is still waiting.
        """
        if self._stuck is not None and not self._stuck.acquired.is_set():
            return False
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="outlast-write-lock", daemon=True
            )
            self._thread.start()
        turn = self._stuck = _Turn(fd)
        self._turns.put(turn)
        if turn.acquired.wait(PATIENCE):
            return True
        with turn.decided:
            turn.given_up = not turn.acquired.is_set()
            return not turn.given_up

    def _serve(self) -> None:
        while (turn := self._turns.get()) is not None:
            lock_patiently(turn.fd)
            with turn.decided:
                if turn.given_up:
                    unlock(turn.fd)
                turn.acquired.set()

    def stop(self) -> bool:
        """End the thread.

        Return False if it still waits for a descriptor, which must then stay open.
        """
        if self._thread is not None:
            self._turns.put(None)
        return self._stuck is None or self._stuck.acquired.is_set()


class _Turn:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.acquired = threading.Event()
        self.decided = threading.Lock()
        self.given_up = False
