"""What the HTTP routes know of a worker, and nothing more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from outlast.errors import OutlastError


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of `/metrics`. Samples of one name are one metric: the first says its kind and its help."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    """Of a histogram: the sum."""
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, float]] = ()
    """Of a histogram: how many there were up to each bound, ascending; the last bound is +Inf."""


@runtime_checkable
class StatusProvider(Protocol):
    """Every member may be called from any thread, and returns at once, but for `peek`."""

    def ready(self) -> str | None:
        """None: ready. Else the reason why not."""
        ...

    def stalled(self) -> float:
        """Seconds since the event loop's last sign of life."""
        ...

    def begin_drain(self, reason: str) -> None:
        """Begin a drain. Any number of them is one."""
        ...

    def drain_view(self) -> dict[str, Any]:
        """What is still running and why, as JSON can carry it."""
        ...

    def refresh(self) -> None:
        """Before `samples`: have a look at what is not in memory. It may block for a few seconds, so it is called in a thread."""
        ...

    def samples(self) -> Iterable[Sample]:
        """What `/metrics` shows, from memory."""
        ...


class HasStatusProvider(Protocol):
    """An Outlast. Before it is open, and after, it has no face: None, or an OutlastError."""

    @property
    def status_provider(self) -> StatusProvider | None:
        """What the endpoints look at."""
        ...


class NotOpen:
    """The face of an Outlast that is not open: routes are mounted before it is."""

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
        """There is nothing to look at."""

    def samples(self) -> Iterable[Sample]:
        return ()


NOT_OPEN = NotOpen()


def status_provider_of(app: StatusProvider | HasStatusProvider) -> Callable[[], StatusProvider]:
    """How to look this app in the face: at each request anew, because it may be opened later, and again."""
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
