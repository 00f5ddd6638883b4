"""Columns for people: one line a row, never broken, so that names can be copied and grepped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from outlast.cli.text import safe


class Column(NamedTuple):
    name: str
    right: bool = False
    """Numbers end in one line below each other."""


class Cell(NamedTuple):
    text: str
    """Safe to show already."""
    style: str = ""


def unreadable(columns: Sequence[Column], name: str, why: str) -> list[Cell]:
    """A row of which only the name can be shown."""
    return [Cell(safe(name)), Cell(why, "red"), *(Cell("-") for _ in columns[2:])]


def grid(columns: Sequence[Column], rows: Collection[Sequence[Cell]]) -> list[Text]:
    """A head and a line for each row; nothing at all if there is no row."""
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
    """The line, cut to the width of a screen."""
    if cell_len(line.plain) <= width:
        return line
    cut = line.copy()
    cut.plain = set_cell_size(line.plain, max(1, width) - 1) + "…"
    return cut
