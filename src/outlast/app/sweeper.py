"""The sweeper: notices dead workers and has their runs given to others; and puts this worker's own affairs in order.

Every process that claims has one. Several at once do no harm: who is second finds nothing left.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from outlast.errors import StoreError
from outlast.store.verbs import Prune, Release, Sweep, Swept

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast.worker")

PRUNE_BATCH = 1_000


class Sweeper:
    def __init__(self, house: House) -> None:
        self._house = house
        self._strays: set[tuple[int, int]] = set()

    async def work(self) -> None:
        """Until it is cancelled."""
        house = self._house
        tidy_at = house.loop.time() + house.settings.poll
        while not house.closing:
            try:
                await self.sweep()
                if house.loop.time() >= tidy_at:
                    await self._tidy()
                    tidy_at = house.loop.time() + house.settings.poll
            except StoreError as error:
                log.warning("cannot look for dead workers: %s", error)
            except Exception:
                log.exception("a sweep failed")
            await asyncio.sleep(house.settings.heartbeat)

    async def sweep(self) -> bool:
        """Whether any worker was found dead."""
        house = self._house
        if not await house.read(house.store.dead_workers):
            return False
        settings = house.settings
        swept: Swept = await house.writer.ask(Sweep(settings.death_backoff, settings.death_backoff_max))
        if swept.workers:
            log.warning(
                "%d dead workers held %d runs, which go on elsewhere; %d are dead letters now",
                len(swept.workers), len(swept.runs), len(swept.dead),
                extra={"workers": list(swept.workers)},
            )  # fmt: skip
        for id in swept.dead:
            house.tell("dead", id)
        return bool(swept.workers)

    async def _tidy(self) -> None:
        """Give back what the store says is ours and is not: its claim was never answered, or the store did not take its end."""
        house = self._house
        known = tuple(house.workflows)
        if house.claimer is not None and known != house.worker.workflows:
            house.worker.workflows = known
            await house.worker.say_anew()
        held = await house.read(house.store.held, house.worker.id)
        strays = {(run, fence) for run, fence, id in held if not house.room.has(id) and id not in house.hung}
        for run, fence in strays & self._strays:  # seen twice: not just on its way
            await house.writer.ask(Release(run, fence, "nobody had it in hand", interrupted=False))
        self._strays = strays
        if not house.room.acked:
            return
        house.room.acked = False
        before = house.store.now() - house.settings.item_memory
        pruned = PRUNE_BATCH
        while pruned == PRUNE_BATCH:
            pruned = await house.writer.ask(Prune(before, PRUNE_BATCH, items=True))
