"""Define `Item`, a claimed item of a queue."""

from __future__ import annotations

from typing import Any

from outlast.codec import plain_json
from outlast.engine.item_claim import ItemClaim
from outlast.engine.submission import check_seconds
from outlast.store.commands import Ack


class Item(ItemClaim):
    """A claimed item.

    This worker holds it until it is acked or nacked, or the worker is declared dead.
    """

    @property
    def id(self) -> str:
        """Return the id that `put` returned."""
        return self._name

    @property
    def queue(self) -> str:
        """Return the name of the queue that it was put into."""
        return self._row.queue

    @property
    def payload(self) -> Any:
        """Return the payload as plain JSON."""
        return plain_json.decode(self._row.args)

    @property
    def attempts(self) -> int:
        """Return the number of this attempt, from 1. Interruptions do not count."""
        return self._attempt

    @property
    def fence(self) -> int:
        """Return the number of this claim. It only grows.

        Pass it to other systems so that they can reject a handler with a lower fence.
        """
        return self._row.fence

    async def ack(self) -> None:
        """Report the item as done. Raise LeaseLost if another worker has taken it over."""
        await self._settle(Ack(self._row.pk, self._row.fence, self._row.queue))

    async def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Report the item as failed.

        It is tried again after `delay` seconds (by default longer after each failure), or becomes a
        dead letter after `max_attempts`. Raise WrongStatus if it was acked or nacked already, and
        LeaseLost if another worker has taken it over.
        """
        if delay is not None:
            check_seconds("delay", delay)
        await self._settle(self._failure(delay, reason))

    def __repr__(self) -> str:
        return f"<item {self.id!r} of {self.queue!r}, attempt {self.attempts}>"
