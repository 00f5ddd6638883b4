"""Prefixes of the reasons of parked runs.

The code that parks a run begins its reason with one of them. The code that tells people what to do
relies on it.
"""

from __future__ import annotations

UNKNOWN = "unknown: "
"""It is unknown whether an effect happened."""
STUCK = "stuck: "
"""The run cannot be compensated."""
EXHAUSTED = "budget exhausted: "
"""A budget has nothing left for the next use."""
DIVERGED = "the journal recorded "
"""The journal recorded something else than the code asked for."""
NO_JOURNAL = "its journal cannot be read"
"""The journal of the run is damaged."""

EXPLAINED_AS = {
    UNKNOWN: "unknown",
    STUCK: "stuck",
    EXHAUSTED: "exhausted",
    DIVERGED: "Diverged",
    NO_JOURNAL: "unreadable",
}
"""The name of the text of `outlast explain`, keyed by the prefix of the reason."""


def of_run(status: str, reason: str | None) -> str | None:
    """Return the name of the text that explains a parked run or a dead letter, else None."""
    if status == "parked":
        return next(
            (name for start, name in EXPLAINED_AS.items() if (reason or "").startswith(start)),
            "RunParked",
        )
    return "RunDead" if status == "dead" else None
