"""Which text explains why a run stands still."""

from __future__ import annotations

from outlast.codec.reasons import DIVERGED, NO_JOURNAL, STUCK, UNKNOWN

PARKED = {
    UNKNOWN: "unknown",
    STUCK: "stuck",
    DIVERGED: "Diverged",
    NO_JOURNAL: "unreadable",
}
"""By what the reason begins with."""


def of_run(status: str, reason: str | None) -> str | None:
    """Of one that is parked or a dead letter; None for others."""
    if status == "parked":
        return next(
            (name for start, name in PARKED.items() if (reason or "").startswith(start)),
            "RunParked",
        )
    return "RunDead" if status == "dead" else None
