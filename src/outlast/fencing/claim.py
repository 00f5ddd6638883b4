"""Determine which resource is written, and under which fence."""

from __future__ import annotations

from outlast.api.context import current
from outlast.errors import NotInRun

FENCE_MAX = 2**53 - 1
"""The highest fence: JSON, Lua and BIGINT all represent it exactly."""


def claim_of(resource: str | None, fence: int | None) -> tuple[str, int]:
    """Return the resource and the fence: as given, else those of the current run.

    Raise NotInRun outside a run if one is missing, and ValueError if one is invalid.
    """
    if resource is None or fence is None:
        try:
            here = current()
        except NotInRun:
            raise NotInRun(
                "outside a run a fence helper needs both the resource and fence=."
            ) from None
        resource = here.id if resource is None else resource
        fence = here.fence if fence is None else fence
    if not isinstance(resource, str) or not resource:
        raise ValueError(f"a resource must be a non-empty string, not {resource!r}.")
    if isinstance(fence, bool) or not isinstance(fence, int) or not 0 < fence <= FENCE_MAX:
        raise ValueError(f"a fence is a whole number from 1 to {FENCE_MAX}, not {fence!r}.")
    return resource, fence
