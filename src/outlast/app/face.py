"""What the HTTP server sees of a house. Every member may be called from any thread, and none waits but `look`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from outlast.http.face import Sample

if TYPE_CHECKING:
    from outlast.app.house import House


class HouseFace:
    def __init__(self, house: House) -> None:
        self._house = house

    def ready(self) -> str | None:
        house = self._house
        if house.draining:
            return f"draining: {house.drain.reason or 'it is being closed'}"
        if house.unhealthy is not None:
            return f"unhealthy: {house.unhealthy}"
        if not house.working:
            return "starting"
        trouble = house.worker.trouble()
        return None if trouble is None else f"the lease cannot be renewed: {trouble}"

    def stalled(self) -> float:
        return self._house.worker.stalled()

    def begin_drain(self, reason: str) -> None:
        self._house.drain.begin(reason)

    def drain_view(self) -> dict[str, Any]:
        drain = self._house.drain
        left = drain.left
        return {
            "draining": drain.layer is not None,
            "reason": drain.reason or None,
            "seconds_left": None if math.isinf(left) else round(left, 3),
            "layer": drain.layer,
            "under_way": [asdict(one) for one in drain.view()],
        }

    def look(self) -> None:
        if self._house.settings.metrics:
            self._house.looks.refresh()

    def samples(self) -> Iterable[Sample]:
        """Nothing where `metrics` is 0."""
        from outlast.telemetry.shown import samples

        return samples(self._house, ready=self.ready() is None) if self._house.settings.metrics else ()
