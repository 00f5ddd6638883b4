"""What the HTTP server sees of a house. Every member may be called from any thread, and none waits."""

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
        return None if house.working else "starting"

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

    def samples(self) -> Iterable[Sample]:
        house, report = self._house, self._house.drain.report
        writer, units = house.writer, house.units
        yield Sample("outlast_draining", "gauge", "1 while this process drains.", float(house.draining))
        yield Sample(
            "outlast_ready", "gauge", "1 while this process takes work.", float(self.ready() is None)
        )
        yield Sample("outlast_runs_in_hand", "gauge", "Runs that execute here.", len(house.lives))
        yield Sample(
            "outlast_in_hand", "gauge", "Runs and items that this process holds.", len(house.room.hands)
        )
        yield Sample("outlast_verbs", "counter", "Verbs written to the store.", writer.verbs)
        yield Sample("outlast_batches", "counter", "Transactions they were written in.", writer.batches)
        units_help = "Units that ended here."
        yield Sample("outlast_units", "counter", units_help, units.committed, {"end": "committed"})
        yield Sample("outlast_units", "counter", units_help, units.rolled_back, {"end": "rolled_back"})
        saved = (
            "What runs had recorded as spent when this process took them up after a death or an interruption."
        )
        for unit, amount in house.saved:
            yield Sample("outlast_cost_saved", "counter", saved, float(amount), {"unit": unit})
        drained = "What became of what this process had in hand when its drain began."
        for end in ("completed", "released", "waiting", "checkpointed", "given_back"):
            yield Sample("outlast_drain_runs", "counter", drained, getattr(report, end), {"end": end})
        yield Sample("outlast_drain_runs", "counter", drained, len(report.left), {"end": "left"})
        if report.seconds is not None:
            yield Sample("outlast_drain_seconds", "gauge", "How long the drain took.", report.seconds)
