"""Show an engine's status to the HTTP server.

Every member may be called from any thread. Only `refresh` may block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from outlast.http.status_provider import Sample

if TYPE_CHECKING:
    from outlast.engine.engine import Engine


class EngineStatus:
    """Implement the HTTP server's `StatusProvider` for an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ready(self) -> str | None:
        """Return why this process is not ready, or None if it is."""
        engine = self._engine
        if engine.shutdown.begun:
            return f"draining: {engine.shutdown.reason or 'it is being closed'}"
        if engine.unhealthy is not None:
            return f"unhealthy: {engine.unhealthy}"
        if not engine.working:
            return "starting"
        trouble = engine.worker.trouble()
        return None if trouble is None else f"the lease cannot be renewed: {trouble}"

    def stalled(self) -> float:
        return self._engine.worker.stalled()

    def begin_drain(self, reason: str) -> None:
        self._engine.drain.begin(reason)

    def drain_view(self) -> dict[str, Any]:
        drain = self._engine.drain
        shutdown = self._engine.shutdown
        left = shutdown.seconds_left
        return {
            "draining": shutdown.draining,
            "reason": shutdown.reason or None,
            "seconds_left": None if math.isinf(left) else round(left, 3),
            "layer": drain.layer,
            "under_way": [asdict(one) for one in drain.view()],
        }

    def refresh(self) -> None:
        if self._engine.settings.metrics:
            self._engine.store_stats.refresh()

    def samples(self) -> Iterable[Sample]:
        """Return the metrics to export. There are none if `metrics` is 0."""
        from outlast.telemetry.export import samples

        return (
            samples(self._engine, ready=self.ready() is None)
            if self._engine.settings.metrics
            else ()
        )
