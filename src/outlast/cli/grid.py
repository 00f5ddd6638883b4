"""Lay out tables for people: one unwrapped line per row, so names can be copied and grepped.

`rich.table.Table` wraps or cuts cells at the width of the screen, and takes 30 times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from outlast.cli.output import console
from outlast.cli.text import safe, short


class Column(NamedTuple):
    name: str
    right: bool = False
    """Whether to align the column right, as for numbers."""
    wide: bool = False
    """Whether to show the column only with `--wide`."""
    least: int | None = None
    """To how many characters the column may be cut so that the table fits. None: it is never cut,
    because people copy it.
    """


class Cell(NamedTuple):
    text: str
    """Text that is already escaped."""
    style: str = ""


def unreadable(columns: Sequence[Column], name: str, why: str) -> list[Cell]:
    """Return a row that shows only its name and why the rest is unreadable."""
    return [Cell(safe(name)), Cell(why, "red"), *(Cell("-") for _ in columns[2:])]


GAP = "  "
WIDTH = 80
"""The width of a table that does not go to a terminal."""


def table(
    columns: Sequence[Column], rows: Collection[Sequence[Cell]], *, wide: bool, indent: int = 0
) -> list[Text]:
    """Return a grid that fits the screen where it can, or with `wide` all columns uncut.

    The caller indents its lines by `indent` columns.
    """
    if wide or not rows:
        return grid(columns, rows)
    narrow = [number for number, column in enumerate(columns) if not column.wide]
    few = [columns[number] for number in narrow]
    cells = [[row[number] for number in narrow] for row in rows]
    out = console()
    width_max = (out.width if out.is_terminal else WIDTH) - indent - len(GAP) * (len(few) - 1)
    for number, width in enumerate(_cut(few, _widths(few, cells), width_max)):
        if few[number].least is not None:
            for row in cells:
                row[number] = Cell(short(row[number].text, width), row[number].style)
    return grid(few, cells)


def _cut(columns: Sequence[Column], widths: list[int], width_max: int) -> list[int]:
    """Return widths that fit into `room`, if the columns can be cut that far.

    The widest column is cut first, the last one of several.
    """
    least = [
        width if column.least is None else min(width, max(column.least, len(column.name)))
        for column, width in zip(columns, widths, strict=True)
    ]
    # One value may be longer than any screen.
    fit = [max(low, min(width, width_max)) for low, width in zip(least, widths, strict=True)]
    while sum(fit) > width_max:
        cuttable = [number for number, width in enumerate(fit) if width > least[number]]
        if not cuttable:
            break
        fit[max(cuttable, key=lambda number: (fit[number], number))] -= 1
    return fit


def _widths(columns: Sequence[Column], rows: Collection[Sequence[Cell]]) -> list[int]:
    return [
        max(cell_len(column.name), *(cell_len(row[number].text) for row in rows))
        for number, column in enumerate(columns)
    ]


def grid(columns: Sequence[Column], rows: Collection[Sequence[Cell]]) -> list[Text]:
    """Return a head and one line per row, or nothing if there are no rows."""
    if not rows:
        return []
    head = [Cell(column.name, "bold") for column in columns]
    widths = _widths(columns, rows)
    return [_line(columns, row, widths) for row in (head, *rows)]


def _line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> Text:
    cells = [Text(cell.text, cell.style) for cell in row]
    for column, cell, width in zip(columns, cells, widths, strict=True):
        cell.align("right" if column.right else "left", width)
    line = Text(GAP).join(cells)
    line.rstrip()
    return line


def fitted(line: Text, width: int) -> Text:
    """Return the line, cut to the width of the screen."""
    cut = line.copy()
    cut.truncate(max(1, width), overflow="ellipsis")
    return cut
