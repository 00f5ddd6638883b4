"""Define the status of a worker for the HTTP routes, and read it from an engine.

Every member of a provider may be called from any thread. Only `refresh` may block.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from outlast.errors import OutlastError
from outlast.shutdown.phases import AppPhase
from outlast.telemetry.names import STATUSES
from outlast.telemetry.samples import Sample

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.http.store_stats import StoreStatsPoller
    from outlast.shutdown.coordinator import ShutdownCoordinator


@runtime_checkable
class StatusProvider(Protocol):
    """The status of a worker.

    Every member may be called from any thread, and returns at once, except `refresh`.
    """

    def ready(self) -> str | None:
        """Return None if the worker is ready, otherwise the reason why not."""
        ...

    def stalled(self) -> float:
        """Return the seconds since the event loop's last sign of life."""
        ...

    def begin_drain(self, reason: str) -> None:
        """Begin a drain. Further calls have no effect."""
        ...

    def drain_view(self) -> dict[str, Any]:
        """Return what is still running and why, as JSON values."""
        ...

    def refresh(self) -> None:
        """Update what is not in memory, before `samples`.

        It may block for a few seconds, so it is called in a thread.
        """
        ...

    def samples(self) -> Iterable[Sample]:
        """Return what `/metrics` shows, from memory."""
        ...


class HasStatusProvider(Protocol):
    """An Outlast. While it is not open, `status_provider` is None or raises OutlastError."""

    @property
    def status_provider(self) -> StatusProvider | None:
        """Return what the endpoints read."""
        ...


class DrainableApp(Protocol):
    """An Outlast that a web server opens and closes."""

    @property
    def status_provider(self) -> StatusProvider:
        """Return what begins the drain."""
        ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *raised: object) -> bool | None: ...


class AppStatus:
    """The status of an Outlast that is open, read from its engine."""

    def __init__(self, engine: Engine, shutdown: ShutdownCoordinator) -> None:
        self.engine = engine
        self._shutdown = shutdown
        self.unhealthy: str | None = None
        """Why this process is not ready, if its program set a reason."""

    @cached_property
    def store_stats(self) -> StoreStatsPoller:
        """Return the poller of the store's statistics. It is made on first use."""
        from outlast.http.store_stats import StoreStatsPoller

        queues_max = self.engine.settings.metrics_series_max // len(STATUSES)
        return StoreStatsPoller(self.engine, queues_max)

    def ready(self) -> str | None:
        """Return why this process is not ready, or None if it is."""
        state = self._shutdown.state
        if state.begun:
            return f"draining: {state.reason or 'it is being closed'}"
        if self.unhealthy is not None:
            return f"unhealthy: {self.unhealthy}"
        if self._shutdown.app_phase is AppPhase.OPENING:
            return "starting"
        trouble = self.engine.worker.trouble()
        return None if trouble is None else f"the lease cannot be renewed: {trouble}"

    def stalled(self) -> float:
        return self.engine.worker.stalled()

    def begin_drain(self, reason: str) -> None:
        self._shutdown.begin(reason)

    def drain_view(self) -> dict[str, Any]:
        state = self._shutdown.state
        left = state.seconds_left
        return {
            "draining": state.draining,
            "reason": state.reason or None,
            "seconds_left": None if math.isinf(left) else round(left, 3),
            "layer": self._shutdown.drain_phase.layer,
            "under_way": [asdict(one) for one in self._shutdown.remaining()],
        }

    def refresh(self) -> None:
        if self.engine.settings.metrics and self._shutdown.app_phase is AppPhase.OPEN:
            self.store_stats.refresh()

    def samples(self) -> Iterable[Sample]:
        """Return the metrics to export. There are none if `metrics` is 0."""
        if not self.engine.settings.metrics:
            return ()
        from outlast.http.export import samples

        ready = self.ready() is None
        return samples(self.engine, self.store_stats, self._shutdown.reporter, ready=ready)


class NotOpen:
    """The status of an Outlast that is not open: routes are mounted before it is."""

    def ready(self) -> str | None:
        return "starting"

    def stalled(self) -> float:
        return 0.0

    def begin_drain(self, reason: str) -> None:
        raise OutlastError(f"{reason}: nothing to drain, because this Outlast is not open.")

    def drain_view(self) -> dict[str, Any]:
        nothing = {"reason": None, "seconds_left": None, "layer": None}
        return {"draining": False, **nothing, "under_way": []}

    def refresh(self) -> None:
        """Do nothing: there is nothing to update."""

    def samples(self) -> Iterable[Sample]:
        return ()


NOT_OPEN = NotOpen()


def status_provider_of(app: StatusProvider | HasStatusProvider) -> Callable[[], StatusProvider]:
    """Return a function that finds the app's current status provider.

    Call it for each request, because the app may be opened later, and reopened. Raise TypeError for
    anything that is not an Outlast.
    """
    if inspect.getattr_static(app, "status_provider", None) is None and isinstance(
        app, StatusProvider
    ):
        provider = app
        return lambda: provider
    if inspect.getattr_static(app, "status_provider", app) is app:
        raise TypeError(f"the HTTP routes take an Outlast, not {app!r}.")

    def find() -> StatusProvider:
        try:
            return app.status_provider or NOT_OPEN  # type: ignore[union-attr]
        except OutlastError:
            return NOT_OPEN

    return find
