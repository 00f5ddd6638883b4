"""Lay out tables for people: one unwrapped line per row, so names can be copied and grepped.

`rich.table.Table` wraps or cuts cells at the width of the screen, and takes 30 times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.cells import cell_len
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
    cells = [Text(cell.text, cell.style) for cell in row]
    for column, cell, width in zip(columns, cells, widths, strict=True):
        cell.align("right" if column.right else "left", width)
    line = Text("  ").join(cells)
    line.rstrip()
    return line


def fitted(line: Text, width: int) -> Text:
    """Return the line, cut to the width of the screen."""
    cut = line.copy()
    cut.truncate(max(1, width), overflow="ellipsis")
    return cut
