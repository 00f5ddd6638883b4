"""The post: what others want of the runs that execute here, and the messages they send to them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from outlast.app.complaints import Complaints
from outlast.errors import StoreError
from outlast.replay import requests
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
        self._complaints = Complaints(house.loop.time)

    def forget(self, id: str) -> None:
        self._waits.pop(id, None)

    async def look_for_requests(self) -> None:
        """What others want of this worker: that it drains; and of the runs that execute here: that they end, or take a message."""
        house = self._house
        lives, begun = dict(house.lives), False
        try:
            drain, cancels = await house.read(self._requests, house.worker.id)
        except StoreError as error:
            if self._complaints.is_time():
                log.warning("could not read what others ask of this worker: %s", error)
        else:
            self._complaints.end()
            if drain is not None:
                house.drain.begin(drain)
            for id, why in cancels:
                life = house.lives.get(id)
                if life is not None and life is lives.get(id):
                    requests.check(life, why)
                elif life is not None:
                    begun = True
        for life in list(house.lives.values()):
            if life.mail.waiting:
                self.look_for(life)
        if begun:  # a life began meanwhile, and what was read may have been wanted of the one before it
            await self.look_for_requests()

    def _requests(self, worker: str) -> tuple[str | None, list[tuple[str, str]]]:
        """In one thread, at one go: this is done at every ring."""
        house, store = self._house, self._house.store
        drain = store.asked(worker) if house.hears_requests else None
        return drain, store.cancels(worker) if house.lives else []

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
            messages = []  # but it may have some that it came with
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
