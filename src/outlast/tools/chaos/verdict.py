"""Hold what each check found, with evidence.

The outcome is `ok`, `violated` or `not known`. Unknown never passes silently as ok.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from outlast.codec.percentiles import nearest_rank

Outcome = Literal["ok", "violated", "not known"]

EVIDENCE_MAX = 20
"""Pieces of evidence kept per check. Further ones are only counted."""
EVIDENCE_LENGTH_MAX = 2_000


@dataclass
class Check:
    """One question and its findings."""

    name: str
    asks: str
    """What must be true, in a sentence."""
    looked_at: int = 0
    """How many things could have violated it."""
    violations: int = 0
    evidence: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Why the check, or a part of it, is not known."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Measured numbers."""

    @property
    def outcome(self) -> Outcome:
        if self.violations:
            return "violated"
        return "not known" if self.unknown else "ok"

    def violate(self, text: str) -> None:
        self.violations += 1
        if len(self.evidence) < EVIDENCE_MAX:
            self.evidence.append(text[:EVIDENCE_LENGTH_MAX])

    def is_unknown(self, text: str) -> None:
        if text not in self.unknown:
            self.unknown.append(text)

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "asks": self.asks,
            "outcome": self.outcome,
            "looked_at": self.looked_at,
            "violations": self.violations,
            "evidence": self.evidence,
            "not_known": self.unknown,
            "facts": self.facts,
        }


@dataclass
class Verdict:
    checks: list[Check]
    looked_at: dict[str, int]
    """What the verdict is based on: runs, items, entries, ledger lines and more."""

    @property
    def violated(self) -> bool:
        return any(check.outcome == "violated" for check in self.checks)

    @property
    def outcome(self) -> Outcome:
        if self.violated:
            return "violated"
        return "not known" if any(check.unknown for check in self.checks) else "ok"

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def document(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "looked_at": self.looked_at,
            "checks": [check.document() for check in self.checks],
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return count, p50, p95 and max, to the millisecond. Without values, return only the count."""
    if not values:
        return {"count": 0}
    ascending = sorted(values)
    shares = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        "count": len(ascending),
        **{name: round(nearest_rank(ascending, share), 3) for name, share in shares.items()},
    }
