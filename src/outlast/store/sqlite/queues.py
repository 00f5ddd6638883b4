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
        "key_concurrency_max",
        "key_period",
        "key_starts_max",
        "listed",
        "more_queued",
        "more_running",
        "paused",
        "queued",
        "running",
    )

    def __init__(
        self,
        queued: int = 0,
        running: int = 0,
        depth_max: int | None = None,
        concurrency_max: int | None = None,
        key_concurrency_max: int | None = None,
        key_starts_max: int | None = None,
        key_period: float | None = None,
        paused: int = 0,
    ) -> None:
        self.queued = queued
        self.running = running
        self.depth_max = depth_max
        self.concurrency_max = concurrency_max
        self.key_concurrency_max = key_concurrency_max
        self.key_starts_max = key_starts_max
        self.key_period = key_period
        self.paused = bool(paused)
        self.more_queued = 0
        self.more_running = 0
        self.listed = True

    @property
    def frees_slots(self) -> bool:
        """Return whether a run that stops executing may let another one be claimed."""
        return self.concurrency_max is not None or self.key_concurrency_max is not None

    def free_slots(self) -> float:
        """Return how many more of the queue's runs may be claimed."""
        if self.paused:
            return 0
        return (
            math.inf
            if self.concurrency_max is None
            else self.concurrency_max - self.running - self.more_running
        )


def set_limits(transaction: Transaction, command: commands.SetQueueLimits) -> None:
    counts = transaction.queue_counts(command.queue)
    if not command.keep_depth:
        counts.depth_max = command.depth_max
    if not command.keep_concurrency:
        counts.concurrency_max = command.concurrency_max
    if not command.keep_key_concurrency:
        counts.key_concurrency_max = command.key_concurrency_max
    if not command.keep_key_rate:
        counts.key_starts_max = command.key_starts_max
        counts.key_period = command.key_period
    if command.paused is not None:
        counts.paused = command.paused
    counts.listed = True
    values = {
        "queue": command.queue,
        "depth_max": counts.depth_max,
        "concurrency_max": counts.concurrency_max,
        "key_concurrency_max": counts.key_concurrency_max,
        "key_starts_max": counts.key_starts_max,
        "key_period": counts.key_period,
        "paused": counts.paused,
    }
    transaction.db.execute(sql.LIMIT, values)
    if not (command.keep_key_concurrency and command.keep_key_rate):
        transaction.db.execute(sql.KEYS_CHANGED, {"queue": command.queue})
