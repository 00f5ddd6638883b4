"""Lay out `outlast runs` for people: one unwrapped line per run, so ids can be copied."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text

from outlast.cli.grid import Cell, Column, table
from outlast.cli.hints import becomes, short_reason
from outlast.cli.text import one_line, recorded_error, safe, span
from outlast.engine.documents import waits_of
from outlast.store.rows import DELAYED, NEVER, RunRow
from outlast.store.tolerant_rows import each_displayed

STYLES = {
    "running": "cyan",
    "waiting": "blue",
    "parked": "yellow",
    "done": "green",
    "failed": "red",
    "dead": "red",
    "cancelled": "magenta",
    "undoing": "magenta",
}
COLUMNS = (
    Column("ID"),
    Column("STATUS"),
    Column("WORKFLOW"),
    Column("QUEUE", wide=True),
    Column("AGE"),
    Column("DETAIL", least=10),
)
ITEM_TEXT = "(item)"


def run_lines(
    rows: Sequence[RunRow], now: float, dead: Collection[str], *, wide: bool
) -> list[Text]:
    cells = each_displayed(rows, lambda row: _cells(row, now, dead), _unreadable)
    return table(COLUMNS, cells, wide=wide)


def _cells(row: RunRow, now: float, dead: Collection[str]) -> list[Cell]:
    status = status_text(row, now)
    return [
        Cell(safe(row.id)),
        Cell(safe(status), STYLES.get(status, "")),
        Cell(safe(row.workflow) or ITEM_TEXT),
        Cell(safe(row.queue)),
        Cell(span(max(0.0, now - row.created))),
        Cell(detail(row, now, dead)),
    ]


def _unreadable(row: RunRow, why: str) -> list[Cell]:
    return [Cell(safe(str(row.id))), *(Cell("?") for _ in COLUMNS[2:]), Cell(why)]


def status_text(row: RunRow, now: float) -> str:
    """Return the status to show: "undoing", "delayed" or the row's own.

    "undoing" applies while compensation proceeds by itself, "delayed" while a queued run is not
    due.
    """
    is_moving = row.status in ("queued", "running", "waiting")
    if row.undoing is not None and is_moving:
        return "undoing"
    return DELAYED if row.is_delayed(now) else row.status


def detail(row: RunRow, now: float, dead: Collection[str]) -> str:
    """Return what a person wants to know about a run at a glance."""
    if row.ended is None and row.cancel is not None:
        why = f"cancellation requested: {one_line(row.cancel)}"
        return f"{short_reason(row)}; {why}" if row.status == "parked" else why
    if row.status == "running" and row.worker in dead:
        return "its process died"
    if status_text(row, now) == "undoing":
        return f"will end as {becomes(row)}"
    waits = waits_of(row)
    if waits and row.status == "waiting" and row.due <= now:
        # What the run waited for has arrived, or its time-out has passed.
        return "ready to continue"
    if waits:
        return f"waits for {safe(', '.join(waits))}"
    if row.status == "waiting" and now < row.due < NEVER:
        return f"due in {span(row.due - now)}"
    if row.error is not None:
        return recorded_error(row.error, None)
    if row.reason is not None and row.status != "running":
        reason = f"undoing, {short_reason(row)}" if row.undoing is not None else short_reason(row)
        return f"{reason}; due in {span(row.due - now)}" if row.is_delayed(now) else reason
    if row.status in ("queued", "waiting") and now < row.due < NEVER:
        return f"due in {span(row.due - now)}"
    return ""
