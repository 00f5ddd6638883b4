"""Define which runs `runs` and `bulk` select, as keyword options."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict, overload


class RunFilters(TypedDict, total=False):
    """Conditions that a run must meet. `Outlast.runs` describes them."""

    status: str | Iterable[str]
    workflow: str | None
    queue: str | None
    prefix: str | None
    parent: str | None
    key: str | None
    waiting_for: str | None
    items: bool | None
    undoing: bool | None
    older_than: timedelta | float | None
    newer_than: timedelta | float | None


def check_filters(filters: RunFilters) -> None:
    """Raise TypeError for a name that is no filter."""
    unknown = filters.keys() - RunFilters.__annotations__.keys()
    if unknown:
        known = ", ".join(RunFilters.__annotations__)
        raise TypeError(f"{min(unknown)!r} is not a filter of runs. Use {known}.")


def statuses_of(filters: RunFilters) -> tuple[str, ...]:
    status = filters.get("status", ())
    return (status,) if isinstance(status, str) else tuple(status)


@overload
def age_seconds(age: timedelta | float) -> float: ...
@overload
def age_seconds(age: timedelta | float | None) -> float | None: ...
def age_seconds(age: timedelta | float | None) -> float | None:
    """Return an age in seconds."""
    return age.total_seconds() if isinstance(age, timedelta) else age
