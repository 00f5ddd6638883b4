"""Count the runs of each queue and set its limits, on an open transaction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


class QueueCounts:
    """The counts and limits of one queue in a transaction, which writes them once, at its end."""

    __slots__ = (
        "concurrency_max",
        "depth_max",
        "listed",
        "more_queued",
        "more_running",
        "queued",
        "running",
    )

    def __init__(
        self,
        queued: int = 0,
        running: int = 0,
        depth_max: int | None = None,
        concurrency_max: int | None = None,
    ) -> None:
        self.queued = queued
        self.running = running
        self.depth_max = depth_max
        self.concurrency_max = concurrency_max
        self.more_queued = 0
        self.more_running = 0
        self.listed = True

    def room(self) -> float:
        """Return how many more of the queue's runs may be claimed."""
        return (
            math.inf
            if self.concurrency_max is None
            else self.concurrency_max - self.running - self.more_running
        )


def set_limits(transaction: Transaction, command: commands.SetQueueLimits) -> None:
    transaction.db.execute(sql.LIMIT, command._asdict())
    counts = transaction.queue_counts(command.queue)
    counts.listed = True
    if not command.keep_depth:
        counts.depth_max = command.depth_max
    if not command.keep_concurrency:
        counts.concurrency_max = command.concurrency_max
