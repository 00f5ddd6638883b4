"""Which text explains why a run stands still."""

from __future__ import annotations

PARKED = {
    "unknown: ": "unknown",
    "stuck: ": "stuck",
    "the journal recorded ": "Diverged",
    "its journal cannot be read": "unreadable",
}
"""By what the reason begins with."""


def of_run(status: str, reason: str | None) -> str | None:
    """Of one that is parked or a dead letter; None for others."""
    if status == "parked":
        return next((name for start, name in PARKED.items() if (reason or "").startswith(start)), "RunParked")
    return "RunDead" if status == "dead" else None
