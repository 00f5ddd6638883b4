"""Claim items for callers, one at a time or with a consumer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.background import Background
from outlast.engine.claimer import Claimer
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.consumer import Consumer
from outlast.engine.isolation import Isolation
from outlast.engine.item_claim import ItemClaim
from outlast.engine.item_outcomes import ItemOutcomes
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.errors import Draining, StoreError
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.commands import ITEM, Claim
from outlast.store.rows import Claimable, RunRow

Item = TypeVar("Item", bound=ItemClaim)

PEEK_SECONDS = 0.25
"""Seconds between polls while an item is there but cannot be claimed yet."""


class ItemQueues:
    """Claim the items of queues for this process."""

    def __init__(
        self,
        outcomes: ItemOutcomes,
        client: StoreClient,
        acquirer: WorkAcquirer,
        isolation: Isolation,
        claimers: ClaimerSet,
        *,
        notifier: ChangeNotifier,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
        on_claiming: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._outcomes = outcomes
        self._client = client
        self._acquirer = acquirer
        self._isolation = isolation
        self._claimers = claimers
        self._notifier = notifier
        self._background = background
        self._shutdown = shutdown
        self._settings = settings
        self._on_claiming = on_claiming
        """Called with the queues from which this process begins to claim continually."""

    async def consume(
        self,
        queue: str,
        handler: Callable[[Any], Awaitable[Any] | Any],
        item_type: type[ItemClaim],
        concurrency: int,
    ) -> None:
        """Call the handler for every item until this is cancelled or the engine closes."""
        build_claimer = partial(
            Claimer,
            concurrency=concurrency,
            acquirer=self._acquirer,
            isolation=self._isolation,
            client=self._client,
            settings=self._settings,
        )
        consumer = Consumer(
            queue,
            handler,
            item_type,
            build_claimer=build_claimer,
            claimers=self._claimers,
            acquirer=self._acquirer,
            outcomes=self._outcomes,
            background=self._background,
            shutdown=self._shutdown,
            log_values=self._settings.log_values,
        )
        self._on_claiming((queue,))
        await consumer.work()

    async def claim(self, queue: str, item_type: type[Item], wait: float) -> Item | None:
        """Claim the next item and return it, or None if there is none within `wait` seconds.

        Raise Draining if this process is shutting down.
        """
        self._on_claiming(())
        now = self._background.loop.time
        until = now() + wait
        while not self._shutdown.begun:
            seen = self._notifier.count
            try:
                row = await self._claim_one(queue)
                if row is not None:
                    item = await self._start(row, item_type)
                    if item is not None:
                        return item
                    continue
                left = until - now()
                if left <= 0:
                    return None
                claimable = await self._client.read(self._client.store.peek, (queue,), (ITEM,))
            except StoreError:
                if self._shutdown.begun:
                    break
                raise
            pause = min(left, self._pause(claimable))
            if pause > 0:
                await self._notifier.wait(pause, seen)
        raise Draining(f"this process is shutting down and claims nothing from queue {queue!r}.")

    async def _start(self, row: RunRow, item_type: type[Item]) -> Item | None:
        """Hand a claimed item to the program, or release it if this process lost it or drains."""
        alive = self._acquirer.owns(row)
        if alive and self._outcomes.in_flight.start(row.fence, by_hand=True):
            return item_type(self._outcomes, row, by_hand=True)
        self._acquirer.release(row, "its worker was considered dead or drains")
        if not alive:
            # Wait until the worker is registered again.
            await asyncio.sleep(PEEK_SECONDS)
        return None

    def _pause(self, claimable: Claimable) -> float:
        pauses = [self._settings.poll]
        if claimable.next_due is not None:
            pauses.append(max(0.0, claimable.next_due - self._client.store.now()))
        # An item came in between, or must wait until it can be claimed.
        if claimable.ready or claimable.suspect:
            pauses.append(0.0 if claimable.overdue else PEEK_SECONDS)
        return min(pauses)

    async def _claim_one(self, queue: str) -> RunRow | None:
        for suspects in (False, True):
            if self._isolation.suspends_claims or (suspects and not self._isolation.is_empty()):
                return None
            worker, token = self._acquirer.worker_id, secrets.token_hex(8)
            command = Claim(worker, token, (), (queue,), (ITEM,), suspects=suspects)
            rows = await self._acquirer.claim(command, alone=suspects)
            if rows:
                return rows[0]
        return None
