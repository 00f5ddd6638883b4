"""Find the text that explains why a run stands still."""

from __future__ import annotations

from outlast.codec.reasons import DIVERGED, NO_JOURNAL, STUCK, UNKNOWN

PARKED = {
    UNKNOWN: "unknown",
    STUCK: "stuck",
    DIVERGED: "Diverged",
    NO_JOURNAL: "unreadable",
}
"""The entry's name, keyed by the prefix of the reason."""


def of_run(status: str, reason: str | None) -> str | None:
    """Return the name of the entry that explains a parked run or a dead letter, else None."""
    if status == "parked":
        return next(
            (name for start, name in PARKED.items() if (reason or "").startswith(start)),
            "RunParked",
        )
    return "RunDead" if status == "dead" else None
