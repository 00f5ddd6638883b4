"""Lay out columns for people: one unwrapped line per row, so names can be copied and grepped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from outlast.cli.text import safe


class Column(NamedTuple):
    name: str
    right: bool = False
    """Whether to align the column right, as for numbers."""


class Cell(NamedTuple):
    text: str
    """Text that is already escaped."""
    style: str = ""


def unreadable(columns: Sequence[Column], name: str, why: str) -> list[Cell]:
    """Return a row that shows only its name and why the rest is unreadable."""
    return [Cell(safe(name)), Cell(why, "red"), *(Cell("-") for _ in columns[2:])]


def grid(columns: Sequence[Column], rows: Collection[Sequence[Cell]]) -> list[Text]:
    """Return a head and one line per row, or nothing if there are no rows."""
    if not rows:
        return []
    head = [Cell(column.name, "bold") for column in columns]
    widths = [
        max(cell_len(row[number].text) for row in (head, *rows)) for number in range(len(columns))
    ]
    return [_line(columns, row, widths) for row in (head, *rows)]


def _line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> Text:
    line = Text()
    for column, cell, width in zip(columns, row, widths, strict=True):
        gap = " " * (width - cell_len(cell.text))
        if line:
            line.append("  ")
        line.append(gap if column.right else "")
        line.append(cell.text, cell.style or None)
        line.append("" if column.right else gap)
    line.rstrip()
    return line


def fitted(line: Text, width: int) -> Text:
    """Return the line, cut to the width of the screen."""
    if cell_len(line.plain) <= width:
        return line
    cut = line.copy()
    cut.plain = set_cell_size(line.plain, max(1, width) - 1) + "…"
    return cut
