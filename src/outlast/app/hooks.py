"""Hooks: whom to tell when a run has come to need a person."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias

from outlast.app.info import RunInfo

if TYPE_CHECKING:
    from outlast.app.house import House

log = logging.getLogger("outlast")
Hook: TypeAlias = Callable[[RunInfo], Awaitable[None] | None]


class Hooks:
    def __init__(self, house: House, hooks: Mapping[str, Hook]) -> None:
        self._house, self._hooks = house, hooks
        """By what has become of the run: parked, or dead."""

    def tell(self, what: str, id: str) -> None:
        """A run is parked, or a dead letter: say so, and call the hook."""
        house = self._house
        log.error("run %s is %s", id, "parked" if what == "parked" else "a dead letter", extra={"run": id})
        hook = self._hooks.get(what)
        if hook is not None:
            house.keep(house.loop.create_task(self._tell(hook, id)))

    async def _tell(self, hook: Hook, id: str) -> None:
        house = self._house
        row = await house.read(house.store.run, id)
        if row is not None:
            answer = hook(RunInfo.of(row))
            if isawaitable(answer):
                await answer
