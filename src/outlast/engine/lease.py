"""Renew a worker's lease on its runs from a dedicated thread.

A worker that can write to the store but not read from it would keep runs that it cannot serve. So
the lease is renewed only if the process has read something since the last renewal.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlast.errors import StoreError
from outlast.store.commands import Refused, Renew
from outlast.store.deadline import until

if TYPE_CHECKING:
    from outlast.store.writer.group_commit_writer import GroupCommitWriter

log = logging.getLogger("outlast.lease")

# Not the shared generator: a program may have seeded that.
_jitter = random.Random()  # noqa: S311 - no secret


RETRIES = 4
"""How often a failed renewal is retried before the next one would be due."""


class Lease:
    """Renew the lease of one worker until it is stopped or lost."""

    def __init__(
        self,
        writer: GroupCommitWriter,
        worker: str,
        seconds: float,
        stall_max: float,
        lost: Callable[[], None],
        read: Callable[[str], object],
    ) -> None:
        """Prepare the lease without starting it. `read` reads from the store, with the worker's id.

        `lost` is called in the lease's thread when the store has declared the worker dead.
        """
        self._writer, self._worker, self._seconds, self._lost = writer, worker, seconds, lost
        self._stall_max, self._read = stall_max, read
        self.read_at = 0.0
        """When the process last read from the store, on the monotonic clock."""
        self.trouble: str | None = None
        """Why the last renewal failed. None if it did not."""
        self.loop_seen = time.monotonic()
        """When the event loop last ticked, on the monotonic clock."""
        self._stall_logged = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="outlast-lease", daemon=True)

    def loop_ticked(self) -> bool:
        """Note that the event loop runs. Return False if the lease no longer depends on it."""
        if self.loop_seen < math.inf:
            self.loop_seen = time.monotonic()
        return self.loop_seen < math.inf

    def outlive_loop(self) -> None:
        """Renew the lease until the process is gone, although its event loop ends."""
        self.loop_seen = math.inf

    def has_read(self) -> None:
        """Note that the process has read from the store."""
        self.read_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _stalled(self) -> bool:
        """Return whether the event loop is blocked and so does not execute what the worker holds.

        Log it once for each stall.
        """
        stalled = time.monotonic() - self.loop_seen
        if stalled <= self._stall_max:
            self._stall_logged = False
            return False
        if not self._stall_logged:
            self._stall_logged = True
            log.error(
                "The event loop has been blocked for %.0f s. Worker %s does not renew its "
                "lease until the loop runs again.",
                stalled, self._worker,
            )  # fmt: skip
        return True

    def _renew(self) -> None:
        pause, renewed_at = self._seconds / 3, time.monotonic()
        while not self._stop.wait(pause * _jitter.uniform(0.8, 1.0)):
            pause = self._seconds / 3
            if self._stalled():
                continue
            try:
                if self.read_at < renewed_at:
                    self._try_reading()
                outcome = self._writer.execute_urgent(
                    Renew(self._worker, self._seconds), timeout=pause
                )
            except StoreError as error:
                self._complain(str(error))
                pause /= RETRIES
                continue
            renewed_at = time.monotonic()
            if isinstance(outcome, Refused) and not self._stop.is_set():
                log.error(
                    "Worker %s was declared dead. Other workers continue its runs.", self._worker
                )
                self._lost()
                return
            if self.trouble is not None:
                log.warning("Worker %s renews its lease again.", self._worker)
                self.trouble = None

    def _try_reading(self) -> None:
        """Read from the store once, with a short deadline. Raise StoreError if that fails.

        Call this if the process has read nothing since the last renewal.
        """
        with until(time.monotonic() + self._seconds / 3 / RETRIES):
            self._read(self._worker)
        self.has_read()

    def _complain(self, error: str) -> None:
        """Log the first failure of several in a row."""
        if self.trouble is None and not self._stop.is_set():
            log.warning("Worker %s could not renew its lease: %s", self._worker, error)
        self.trouble = error
