"""The post: what others want of the runs that execute here, and the messages they send to them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from outlast.errors import StoreError
from outlast.store.verbs import Wait

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.replay.life import Life

log = logging.getLogger("outlast")


class Post:
    def __init__(self, house: House) -> None:
        self._house = house
        self._waits: dict[str, tuple[str, ...]] = {}
        """What the store says a run waits for."""
        self._looking: set[str] = set()

    def forget(self, id: str) -> None:
        self._waits.pop(id, None)

    async def look_for_requests(self) -> None:
        """What others want of the runs that execute here: that they end, or that they take a message."""
        house = self._house
        try:
            for id, why in await house.read(house.store.cancels, house.worker.id):
                life = house.lives.get(id)
                if life is not None:
                    life.check_requests(why)
        except StoreError as error:
            log.warning("could not look for requests: %s", error)
        for life in list(house.lives.values()):
            if life.mail.waiting:
                self.look_for(life)

    def look_for(self, life: Life) -> None:
        house = self._house
        if life.id not in self._looking:
            self._looking.add(life.id)
            house.keep(asyncio.Task(self._mail(life), loop=house.loop))

    async def _mail(self, life: Life) -> None:
        house = self._house
        await asyncio.sleep(0)
        self._looking.discard(life.id)
        try:
            messages = await house.read(house.store.messages, life.pk, life.mail.last)
        except StoreError as error:
            log.warning("could not look for messages: %s", error)
            return
        if life.over is not None or life.replaying:
            return
        life.mail.arrived(messages)
        if life.mail.waiting:
            self._waits.setdefault(life.id, ())
            self.say_waiting(life)

    def say_waiting(self, life: Life) -> None:
        """Keep what the store says a run waits for up to date, once it has said anything."""
        house = self._house
        waiting = life.mail.waiting
        if life.over is None and self._waits.get(life.id, waiting) != waiting:
            self._waits[life.id] = waiting
            house.writer.put(Wait(life.pk, life.fence, waiting), lambda *_: None)
