"""`outlast sessions`: show what programs and runs keep in sessions and checkpoints.

Reading does not extend an expiry.
"""

from __future__ import annotations

from typing import Annotated

import typer

from outlast.cli.options import ID_LENGTH_MAX, JsonOption, StoreOption
from outlast.cli.output import answering, console, document, print_message
from outlast.cli.server import App
from outlast.cli.stores import acting, reading
from outlast.cli.text import counted, moment, recorded, safe, short, span
from outlast.codec.documents import value_of
from outlast.codec.identifiers import check_id
from outlast.engine.documents import session_document
from outlast.errors import UnknownRun
from outlast.store.commands import CHECKPOINT, SESSION
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionQuery, SessionRow
from outlast.store.tolerant_rows import each_displayed, each_document, legible

SHORT = 100
FIELDS_LENGTH = 60
LIMIT = 100
ITEMS = 10
"""How many items of each list are shown by default."""


class UnknownSession(UnknownRun):
    """No session, or no checkpoint, has this id."""

    def __init__(self, id: str, space: str) -> None:
        super().__init__(id)
        self.space = space

    def __str__(self) -> str:
        option = " --checkpoints" if self.space == CHECKPOINT else ""
        return (
            f"no {self.space} has the id {self.id!r}, or it has expired. `outlast "
            f"sessions{option}` lists the existing ones."
        )


def sessions(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="Show this one: its fields, and the last items of its lists."
        ),
    ] = None,
    *,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only those whose ids begin with this.")
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=1_000_000,
            help=f"Show at most this many ({LIMIT}); with an ID, this many items per list "
            f"({ITEMS}).",
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the one with this ID.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Checkpoints of scripts instead of sessions.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sessions, last changed first, or show or delete one."""
    if id is None and delete:
        raise typer.BadParameter("it needs the ID of the session to delete.", param_hint="--delete")
    if id is not None and prefix:
        raise typer.BadParameter("it applies to the list: leave out the ID.", param_hint="--prefix")
    space = CHECKPOINT if checkpoints else SESSION
    with answering(as_json):
        if id is None:
            _list(SessionQuery(space, prefix, limit or LIMIT), store, as_json)
            return
        check_id(id, ID_LENGTH_MAX, f"{space} id")
        if delete:
            _delete(id, space, store, as_json)
        else:
            with legible(f"{space} {id!r}"):
                _show(id, space, limit or ITEMS, store, as_json)


def _list(query: SessionQuery, store: str | None, as_json: bool) -> None:
    with reading(store) as opened, legible("the store"):
        now = opened.now()
        rows = opened.sessions(query._replace(limit=query.limit + 1))
    rows, more = rows[: query.limit], len(rows) > query.limit
    if as_json:
        document({f"{query.space}s": each_document(rows, session_document, "id"), "more": more})
        return
    from outlast.cli.grid import Cell, Column, grid, unreadable

    columns = (
        Column("ID"),
        Column("VERSION", right=True),
        Column("UPDATED", right=True),
        Column("EXPIRES", right=True),
        Column("FIELDS"),
    )

    def cells(row: SessionRow) -> list[Cell]:
        return [
            Cell(safe(row.id)),
            Cell(str(row.version)),
            Cell(f"{span(max(0.0, now - row.updated))} ago"),
            Cell("never" if row.expires is None else f"in {span(max(0.0, row.expires - now))}"),
            Cell(short(safe(", ".join(_names(row))), FIELDS_LENGTH)),
        ]

    lines = each_displayed(rows, cells, lambda row, why: unreadable(columns, str(row.id), why))
    out = console()
    for line in grid(columns, lines):
        out.print(line)
    if not rows:
        print_message(f"no {query.space}s" + (" match." if query.prefix else "."))
    if more:
        print_message(f"Showing {counted(query.limit, query.space)}; use --limit for more.")


def _show(id: str, space: str, count: int, store: str | None, as_json: bool) -> None:
    with reading(store) as opened:
        row = opened.session(id, space)
        if row is None:
            raise UnknownSession(id, space)
        items = {name: opened.items(id, name, -count, space=space) for name in row.lists}
        now = opened.now()
    if as_json:
        values = {name: value_of(text) for name, text in row.fields.items()}
        last = {name: [value_of(text) for text in texts] for name, texts in items.items()}
        document({space: {**session_document(row), "values": values, "last": last}})
        return
    out = console()
    out.print(safe(row.id), style="bold")
    left = (
        "never"
        if row.expires is None
        else f"{moment(row.expires)} (in {span(max(0.0, row.expires - now))})"
    )
    for name, value in (
        ("version", str(row.version)),
        ("updated", f"{moment(row.updated)} ({span(max(0.0, now - row.updated))} ago)"),
        ("expires", left),
        *([] if row.owner is None else [("owner", str(row.owner))]),
    ):
        out.print(f"  {name:<10} {value}")
    if row.fields or items:
        out.print()
    for name, text in row.fields.items():
        out.print(f"  {safe(name)} = {recorded(text, SHORT)}")
    for name, texts in items.items():
        total = row.lists[name]
        note = "" if len(texts) >= total else f", the last {len(texts)}"
        out.print(f"  {safe(name)}: {counted(total, 'item')}{note}")
        for text in texts:
            out.print(f"    {recorded(text, SHORT)}")


def _delete(id: str, space: str, store: str | None, as_json: bool) -> None:
    async def action(app: App, opened: Store) -> SessionRow:
        row = opened.session(id, space)
        if row is None:
            raise UnknownSession(id, space)
        await (app.session(id) if space == SESSION else app.checkpoint(id)).clear()
        return row

    row = acting(store, action)
    if as_json:
        document({"deleted": session_document(row)})
    else:
        print_message(f"deleted {space} {id} (it was at version {row.version}).")


def _names(row: SessionRow) -> list[str]:
    return [*row.fields, *(f"{name}[{count}]" for name, count in row.lists.items())]
