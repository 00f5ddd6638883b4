"""Define what the HTTP routes know of a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from outlast.errors import OutlastError


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of `/metrics`.

    Samples with the same name form one metric: the first defines its kind and help.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    """For a histogram, the sum."""
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, float]] = ()
    """For a histogram, the cumulative count up to each bound, ascending. The last bound is +Inf."""


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


class NotOpen:
    """The status of an Outlast that is not open: routes are mounted before it is."""

    def ready(self) -> str | None:
        return "starting"

    def stalled(self) -> float:
        return 0.0

    def begin_drain(self, reason: str) -> None:
        raise OutlastError(f"{reason}: there is nothing to drain, this Outlast is not open.")

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

    def look() -> StatusProvider:
        try:
            return app.status_provider or NOT_OPEN  # type: ignore[union-attr]
        except OutlastError:
            return NOT_OPEN

    return look
