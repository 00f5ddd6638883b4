"""The sweeper: notices dead workers and has their runs given to others; and puts this worker's own affairs in order.

Every process that claims has one. Several at once do no harm: who is second finds nothing left.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import TYPE_CHECKING

from outlast.app.session import prune_sessions
from outlast.errors import StoreError
from outlast.store.verbs import Measured, Prune, Release, Sweep, Swept, Wait

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.worker")

PRUNE_BATCH = 1_000
COMPLAIN_SECONDS_MAX = 60.0
"""Between two lines in the log of a store that does not answer."""
SESSIONS_SECONDS = 60.0
"""Between two looks for sessions that have expired."""


class Sweeper:
    def __init__(self, house: House) -> None:
        self._house = house
        self._peers = 1
        """How many workers there are, this one too."""
        self._quiet, self._said_at = 0.0, 0.0
        """For how long it says nothing more of a store that does not answer, and since when."""

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
            except StoreError as error:
                self._complain(error)
            except Exception as error:
                log.error("a sweep failed", exc_info=house.veiled(error))
            else:
                self._quiet = 0.0
            await asyncio.sleep(self._pause())

    def _complain(self, error: StoreError) -> None:
        """At once, and then at growing intervals: a store may be away for long."""
        now = self._house.loop.time()
        if not self._quiet or now >= self._said_at + self._quiet:
            log.warning("cannot look for dead workers: %s", error)
            self._quiet, self._said_at = min(max(1.0, self._quiet * 2), COMPLAIN_SECONDS_MAX), now

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
