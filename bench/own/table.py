"""The table: markdown that reads well in a terminal, and the same numbers for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.own.rows import Result

HEAD = ("what", "median", "min to max", "goal", "")


def table(results: Sequence[Result]) -> str:
    lines = [HEAD, *[_cells(result) for result in results]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))} |"


def _cells(result: Result) -> tuple[str, ...]:
    row, spread = result.row, result.spread
    unit = f" {row.unit}" if row.unit else ""
    goal = f"{row.goal.sign} {row.goal.limit:g}{unit}" if row.goal else ""
    verdict = {True: "met", False: "MISSED", None: ""}[result.met]
    span = f"{_number(spread.low)} to {_number(spread.high)}"
    return (row.name, f"{_number(spread.median)}{unit}", span, goal, verdict)


def _number(value: float) -> str:
    """Three figures that count, and none that do not."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


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
