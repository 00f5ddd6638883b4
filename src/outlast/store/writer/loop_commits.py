"""Write a command on the event loop itself.

If the disk is fast and no other writer is in the way, this is quicker than the writer's thread: two
thread switches cost as much as an fsync.
"""

from __future__ import annotations

import logging
import time
from contextvars import Context
from typing import Any

from outlast.errors import StoreError
from outlast.store.commands import Command
from outlast.store.commit_metrics import CommitMetrics, count_failure
from outlast.store.protocol import CommitUnknown, Store
from outlast.store.writer.store_health import StoreHealth
from outlast.store.writer.write_queue import CommitPace

log = logging.getLogger("outlast.writer")

SECONDS_MAX = 0.001
"""How many seconds commits may take for one to be made on the loop itself."""
LATER: Any = object()
"""The command was not written. The writer's thread, which can wait, writes it."""


class LoopCommits:
    """Commit single commands on the loop, where that is quick."""

    __slots__ = ("_context", "_health", "_metrics", "_pace", "_try_commit")

    def __init__(
        self, store: Store, pace: CommitPace, health: StoreHealth, metrics: CommitMetrics
    ) -> None:
        self._try_commit = getattr(store, "try_commit", None)
        self._pace = pace
        self._health = health
        self._metrics = metrics
        self._context = Context()
        """Keeps a commit from being part of a run or its trace."""

    def write(self, command: Command) -> Any:
        """Return the outcome, or LATER if nothing was written or that is not known."""
        if self._try_commit is None or self._pace.seconds >= SECONDS_MAX:
            return LATER
        started = time.perf_counter()
        try:
            outcomes = self._context.run(self._try_commit, [command])
        except StoreError as error:
            count_failure(self._metrics.on_loop, error)
            log.debug("Leaving a command to the writer's thread, which can wait: %s", error)
            self._health.outcome_unknown |= isinstance(error, CommitUnknown)
            return LATER
        if outcomes is None:
            return LATER
        seconds = time.perf_counter() - started
        self._pace.keep(seconds, 1)
        metrics = self._metrics
        metrics.batches += 1
        metrics.commands += 1
        if metrics.on_loop is not None:
            metrics.on_loop.add(outcomes, seconds)
        return outcomes[0]
