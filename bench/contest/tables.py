"""Words and tables of Markdown, as the sections of the contest use them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest.plot import figure
from bench.spread import Spread

NONE = "-"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(words) + " |" for words in lines)


def spread_words(spread: Spread | None) -> str:
    """The median; where the rounds differ, their range behind it."""
    if spread is None:
        return NONE
    middle, low, high = figure(spread.median), figure(spread.low), figure(spread.high)
    return middle if low == high else f"{middle} ({low} to {high})"


def last_line(failures: Sequence[str]) -> str:
    """What a failure said at last, fit for a cell."""
    words = [line.strip() for line in failures[-1].splitlines() if line.strip()] if failures else []
    if not words:
        return "no words"
    text = words[0] if len(words) == 1 else f"{words[0][:80]} … {words[-1]}"
    return text.replace("|", "/")[:240]
