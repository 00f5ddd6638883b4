"""Words and tables of Markdown, as the sections of the contest use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.markdown import figure, table
from bench.spread import Spread

NONE = "-"


def spread_words(spread: Spread | None, unit: str = "") -> str:
    """The median; where the rounds differ, their range behind it."""
    if spread is None:
        return NONE
    middle, low, high = figure(spread.median), figure(spread.low), figure(spread.high)
    return f"{middle}{unit}" if low == high else f"{middle}{unit} ({low} to {high})"


def last_line(failures: Sequence[str]) -> str:
    """What a failure said at last, fit for a cell."""
    words = [line.strip() for line in failures[-1].splitlines() if line.strip()] if failures else []
    if not words:
        return "no words"
    text = words[0] if len(words) == 1 else f"{words[0][:80]} … {words[-1]}"
    return text.replace("|", "/")[:240]


class Outcome(NamedTuple):
    """A goal and how it came out."""

    goal: str
    measured: str
    verdict: str


class Goal(NamedTuple):
    """A ratio to reach, and its value in each round. The median decides whether it is met."""

    name: str
    at_least: float
    samples: Sequence[float]
    limit: str = ""
    """What keeps it from being met. Shown only if it is missed."""

    @property
    def verdict(self) -> str:
        if not self.samples:
            return "not measured"
        return "met" if Spread.of(self.samples).median >= self.at_least else "**MISSED**"

    @property
    def missed(self) -> bool:
        return self.verdict not in ("met", "not measured")

    @property
    def outcome(self) -> Outcome:
        measured = spread_words(Spread.of(self.samples) if self.samples else None, "x")
        return Outcome(f"{self.name}: at least {self.at_least:g}x", measured, self.verdict)


def goals_table(goals: Sequence[Goal]) -> str:
    """Return the table, followed by what limits the goals that were missed."""
    rows = [
        (
            goal.name,
            f"≥ {goal.at_least:g}x",
            spread_words(Spread.of(goal.samples) if goal.samples else None, "x"),
            goal.verdict,
        )
        for goal in goals
    ]
    limits = dict.fromkeys(goal.limit for goal in goals if goal.missed and goal.limit)
    return "\n\n".join([table(("goal", "target", "measured", ""), rows).rstrip(), *limits]) + "\n"
