"""Print `outlast runs` for people: one unwrapped line per run, so ids can be copied."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from outlast.cli.documents import waits_of
from outlast.cli.hints import becomes, short_reason
from outlast.cli.output import console
from outlast.cli.text import one_line, recorded_error, safe, short, span
from outlast.store.rows import DELAYED, NEVER, RunRow
from outlast.store.tolerant_rows import each_shown

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
ITEM_SHOWN = "(item)"
DETAIL_LENGTH = 100
DETAIL_LENGTH_MIN = 30


def print_runs(rows: Sequence[RunRow], now: float, dead: Collection[str]) -> None:
    if not rows:
        return
    lines = each_shown(rows, lambda row: _line(row, now, dead), _unreadable)
    head = ("ID", "STATUS", "WORKFLOW", "AGE", "DETAIL")
    widths = [max(cell_len(line[column]) for line in (head, *lines)) for column in range(4)]
    out = console()
    room = max(DETAIL_LENGTH_MIN, out.width - sum(widths) - 8) if out.is_terminal else DETAIL_LENGTH
    for number, line in enumerate((head, *lines)):
        cells = [set_cell_size(cell, width) for cell, width in zip(line[:4], widths, strict=True)]
        text = Text("  ".join([*cells, short(line[4], room)]).rstrip())
        if number == 0:
            text.stylize("bold")
        elif line[1] in STYLES:
            text.stylize(STYLES[line[1]], len(cells[0]) + 2, len(cells[0]) + 2 + len(line[1]))
        out.print(text)


def _line(row: RunRow, now: float, dead: Collection[str]) -> tuple[str, ...]:
    age = span(max(0.0, now - row.created))
    return (
        safe(row.id),
        safe(status_shown(row, now)),
        safe(row.workflow) or ITEM_SHOWN,
        age,
        detail(row, now, dead),
    )


def _unreadable(row: RunRow, why: str) -> tuple[str, ...]:
    return safe(str(row.id)), "?", "?", "?", why


def status_shown(row: RunRow, now: float) -> str:
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
        why = f"asked to end: {one_line(row.cancel)}"
        return f"{short_reason(row)}; {why}" if row.status == "parked" else why
    if row.status == "running" and row.worker in dead:
        return "its process died"
    if status_shown(row, now) == "undoing":
        return f"to end as {becomes(row)}"
    waits = waits_of(row)
    if waits and row.status == "waiting" and row.due <= now:
        # What the run waited for has arrived, or its time-out has passed.
        return "ready to go on"
    if waits:
        return f"waits for {safe(', '.join(waits))}"
    if row.status == "waiting" and now < row.due < NEVER:
        return f"due in {span(row.due - now)}"
    if row.error is not None:
        return recorded_error(row.error, None)
    if row.reason is not None and row.status != "running":
        return f"undoing, {short_reason(row)}" if row.undoing is not None else short_reason(row)
    if row.status in ("queued", "waiting") and now < row.due < NEVER:
        return f"due in {span(row.due - now)}"
    return ""
