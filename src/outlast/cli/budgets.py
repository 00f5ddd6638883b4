"""`outlast budgets`: list the budgets, what is spent of them, and which runs wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.options import JsonOption, StoreOnlyOption, WatchOption
from outlast.cli.output import answering
from outlast.cli.text import safe
from outlast.cli.watch import View, print_view
from outlast.engine.budgets import PAGE, BudgetInfo, BudgetPage, read_budgets
from outlast.engine.documents import budgets_document
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from rich.text import Text


def budgets(
    *,
    prefix: Annotated[
        str,
        typer.Option(help="Only those whose ids begin so, such as key: or run:report-1/."),
    ] = "",
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Begin behind this id: the next page.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many to list.")] = PAGE,
    watch: WatchOption = False,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the budgets: what is spent, what is left."""
    with answering(as_json):
        print_view(
            store,
            View(
                lambda opened: _read(opened, after, limit, prefix),
                _lines,
                budgets_document,
                "no budgets were used lately.",
                notes=_notes,
            ),
            watch=watch,
            as_json=as_json,
        )


def _read(store: Store, after: str | None, limit: int, prefix: str) -> BudgetPage:
    return read_budgets(store, after, limit, prefix)


def _notes(page: BudgetPage) -> list[str]:
    damaged = [
        f"budget {safe(id)} is damaged. It counts as used up, and its next use asks a person."
        for id in page.damaged
    ]
    more = [] if page.next is None else [f"there are more: --after {safe(page.next)} lists them."]
    return [*damaged, *more]


def _lines(page: BudgetPage) -> list[Text]:
    from outlast.cli.grid import Column, table

    columns = (
        Column("BUDGET"),
        Column("LIMIT"),
        Column("ALLOWS", right=True),
        Column("SPENT", right=True),
        Column("RESERVED", right=True),
        Column("LEFT", right=True),
        Column("WAITING"),
    )
    return table(columns, [row for info in page.budgets for row in _rows(info)], wide=False)


def _rows(info: BudgetInfo) -> list[list[Any]]:
    from outlast.cli.grid import Cell

    waiting = ", ".join(map(safe, info.waiting))
    return [
        [
            Cell(safe(info.id) if number == 0 else ""),
            Cell(safe(name)),
            Cell(f"{limit:,}"),
            Cell(f"{info.spent[name]:,}"),
            Cell(f"{info.reserved[name]:,}" if info.reserved[name] else ""),
            Cell(f"{info.left[name]:,}", "" if info.left[name] else "yellow"),
            Cell(waiting if number == 0 else ""),
        ]
        for number, (name, limit) in enumerate(info.limits.items())
    ]
