"""The table: markdown that reads well in a terminal, and the same numbers for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import markdown
from bench.markdown import figure
from bench.own.rows import Result

HEAD = ("what", "median", "min to max", "goal", "")


def table(results: Sequence[Result]) -> str:
    return markdown.table(HEAD, [_cells(result) for result in results])


def _cells(result: Result) -> tuple[str, ...]:
    row, spread = result.row, result.spread
    unit = f" {row.unit}" if row.unit else ""
    goal = f"{row.goal.sign} {row.goal.limit:g}{unit}" if row.goal else ""
    verdict = {True: "met", False: "MISSED", None: ""}[result.met]
    span = f"{figure(spread.low)} to {figure(spread.high)}"
    return (row.name, f"{figure(spread.median)}{unit}", span, goal, verdict)


def numbers(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        {
            "what": row.name,
            "unit": row.unit,
            **spread._asdict(),
            "goal": f"{row.goal.sign} {row.goal.limit:g}" if row.goal else None,
            "met": result.met,
        }
        for result in results
        for row, spread in [(result.row, result.spread)]
    ]
