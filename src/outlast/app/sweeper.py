"""The sweeper: notices dead workers and has their runs given to others; and puts this worker's own affairs in order.

Every process that claims has one. Several at once do no harm: who is second finds nothing left.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import TYPE_CHECKING

from outlast.app.complaints import Complaints
from outlast.app.session import prune_sessions
from outlast.errors import StoreBroken, StoreError
from outlast.store.verbs import Measured, Prune, Release, Sweep, Swept, Wait

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.worker")

PRUNE_BATCH = 1_000
SESSIONS_SECONDS = 60.0
"""Between two looks for sessions that have expired."""


class Sweeper:
    def __init__(self, house: House) -> None:
        self._house = house
        self._peers = 1
        """How many workers there are, this one too."""
        self._complaints = Complaints(house.loop.time)
        self.lost: asyncio.Future[StoreBroken] = house.loop.create_future()
        """Its store is gone, and does not come back to this process."""

    async def work(self) -> None:
        """Until it is cancelled."""
        house = self._house
        tidy_at = sessions_at = house.loop.time() + house.settings.poll
        while not house.closing:
            try:
                await self.sweep()
                if house.loop.time() >= tidy_at:
                    await self.tidy()
                    self._peers = len(await house.read(house.store.workers))
                    await self._forget_acked()
                    await self._tell_durations()
                    tidy_at = house.loop.time() + house.settings.poll
                if house.loop.time() >= sessions_at:
                    await prune_sessions(house, PRUNE_BATCH)
                    sessions_at = house.loop.time() + SESSIONS_SECONDS
            except Exception as error:
                if self._complaints.is_time():
                    self._complain(error)
                if isinstance(error, StoreBroken) and error.gone and not self.lost.done():
                    self.lost.set_result(error)
            else:
                self._complaints.end()
            await asyncio.sleep(self._pause())

    def _complain(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.warning("cannot look for dead workers: %s", error)
        else:
            log.error("a sweep failed", exc_info=self._house.veiled(error))

    def _pause(self) -> float:
        """Together, many workers look as often as two: whoever is first tells all. So a store is not asked the more the larger the fleet."""
        heartbeat, crowd = self._house.settings.heartbeat, self._peers / 2
        if crowd <= 1:
            return heartbeat
        return min(heartbeat * crowd * uniform(0.5, 1.5), self._house.settings.lease / 4)  # noqa: S311 - no secret

    async def sweep(self) -> bool:
        """Whether any worker was found dead."""
        house = self._house
        if not await house.read(house.store.dead_workers):
            return False
        settings = house.settings
        swept: Swept = await house.writer.ask(Sweep(settings.death_backoff, settings.death_backoff_max))
        if swept.workers:
            house.meters.died(len(swept.workers))
            found = (len(swept.workers), len(swept.runs), len(swept.dead))
            facts = {"workers": list(swept.workers)}
            say = log.warning if house.claimer is not None else log.info  # to a lone program it is no news
            say("dead workers: %d; runs taken from them: %d; dead letters: %d", *found, extra=facts)
        for id in swept.dead:
            house.hooks.tell("dead", id)
        return bool(swept.workers)

    async def tidy(self) -> None:
        """Give back what the store says is ours and is not: its claim was never answered, or the store did not take its end."""
        house = self._house
        held = await house.read(house.store.held, house.worker.id)
        if all(fence in house.room.hands for _, fence, _ in held):
            return
        # A claim that was committed before we read is answered before a verb that is put after: then it is in hand.
        await house.writer.ask(Wait(0, 0, ()))
        for run, fence, id in held:
            if fence not in house.room.hands and id not in house.hung:
                await house.writer.ask(Release(run, fence, "nobody had it in hand", interrupted=False))

    async def _tell_durations(self) -> None:
        """How long steps took, for the drains of others."""
        samples = self._house.durations.fresh()
        if samples:
            await self._house.writer.ask(Measured(samples))

    async def _forget_acked(self) -> None:
        house = self._house
        if not house.room.acked:
            return
        house.room.acked = False
        before = house.store.now() - house.settings.item_memory
        pruned = PRUNE_BATCH
        while pruned == PRUNE_BATCH:
            pruned = await house.writer.ask(Prune(before, PRUNE_BATCH, items=True))
