"""Hold the claimers of this process: the worker's own, and one for each `consume` call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outlast.store.rows import RunRow

if TYPE_CHECKING:
    from outlast.engine.claimer import Claimer
    from outlast.engine.consumer import Consumer


class ClaimerSet:
    """Everything in this process that claims from queues."""

    def __init__(self) -> None:
        self.own: Claimer | None = None
        """Claims runs for this worker. None unless this process is a worker."""
        self.consumers: set[Consumer] = set()
        self._stopped = False
        """Whether this process no longer claims anything.

        The store may not know that, so a new claimer would claim and release runs forever.
        """

    def add_own(self, claimer: Claimer) -> None:
        """Register the claimer of this worker."""
        self.own = claimer
        if self._stopped:
            claimer.stop()

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer that is about to claim."""
        self.consumers.add(consumer)
        if self._stopped:
            consumer.stop()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Forget a consumer that has stopped and executes nothing."""
        self.consumers.discard(consumer)

    @property
    def queues(self) -> tuple[str, ...]:
        """Return the queues from which this worker claims runs."""
        return () if self.own is None else self.own.queues

    def wake(self) -> None:
        """Start the next round of every claimer now, because something may have changed."""
        if self.own is not None:
            self.own.wake()
        for consumer in self.consumers:
            consumer.claimer.wake()

    def stop(self) -> None:
        """Stop claiming for good. Handlers in flight continue."""
        self._stopped = True
        if self.own is not None:
            self.own.stop()
        for consumer in list(self.consumers):
            consumer.stop()

    def lose(self, worker: str) -> None:
        """Cancel the handlers of items that a worker id declared dead had claimed."""
        for consumer in self.consumers:
            consumer.lost(worker)

    async def close_consumers(self, seconds: float) -> list[RunRow]:
        """Stop all handlers and return the items that still execute after `seconds` in all."""
        now = asyncio.get_running_loop().time
        until = now() + seconds
        consumers = list(self.consumers)
        for consumer in consumers:
            consumer.stop_all()
        still_executing: list[RunRow] = []
        for consumer in consumers:
            still_executing += await consumer.close(max(0.0, until - now()))
        return still_executing
