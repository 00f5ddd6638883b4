"""The lease: a worker's right to its runs, renewed from a thread of its own."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from queue import Empty

from outlast.errors import StoreError
from outlast.record.writer import Writer
from outlast.store.verbs import Refused, Renew

log = logging.getLogger("outlast.lease")

_jitter = random.Random()  # noqa: S311 - no secret; of its own, so that a program's seeded one is left alone


class Lease:
    def __init__(
        self, writer: Writer, worker: str, seconds: float, stall_max: float, lost: Callable[[], None]
    ) -> None:
        self._writer, self._worker, self._seconds, self._lost = writer, worker, seconds, lost
        self._stall_max = stall_max
        self.loop_seen = time.monotonic()
        """When the event loop gave its last sign of life."""
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="outlast-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _stalled(self) -> bool:
        """Whether the loop stands still: then it does not execute what it holds. Said once each time."""
        stalled = time.monotonic() - self.loop_seen
        if stalled <= self._stall_max:
            self._told = False
            return False
        if not self._told:
            self._told = True
            log.error(
                "the event loop has stood still for %.0f s: worker %s does not renew its lease until it moves",
                stalled, self._worker,
            )  # fmt: skip
        return True

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 3 * _jitter.uniform(0.8, 1.0)):
            if self._stalled():
                continue
            try:
                outcome = self._writer.call(Renew(self._worker, self._seconds), timeout=self._seconds)
            except (StoreError, Empty) as error:
                log.warning(
                    "worker %s could not renew its lease: %s", self._worker, str(error) or "no answer"
                )
                continue
            if isinstance(outcome, Refused) and not self._stop.is_set():
                log.error("worker %s was taken for dead: its runs go on elsewhere", self._worker)
                self._lost()
                return
