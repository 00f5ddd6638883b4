"""Resting: a run that only waits is given back by a worker until there is something to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outlast.errors import Evicted
from outlast.replay.leaving import what_it_waits_for

if TYPE_CHECKING:
    from outlast.app.house import House


class Resting:
    def __init__(self, house: House) -> None:
        self._house = house
        self._timer: asyncio.TimerHandle | None = None

    def _look(self) -> None:
        """A run that only waits, and did when it was last looked at, is given back until there is something to do."""
        house = self._house
        self._timer = None
        assert house.claimer is not None
        soon = house.store.now() + house.settings.linger
        for life in list(house.lives.values()):
            rest = what_it_waits_for(life) if life.row.queue in house.claimer.queues else None
            if rest is None or rest.due <= soon:
                continue
            if life.rested_at == rest.entry + 1:
                life.resting = rest
                life.evict(Evicted("it waits"))
            life.rested_at = rest.entry + 1
        self.watch()

    def watch(self) -> None:
        """As long as a worker has anything in hand."""
        house = self._house
        if house.claimer is not None and self._timer is None and house.lives and not house.closing:
            self._timer = house.loop.call_later(house.settings.linger, self._look)
