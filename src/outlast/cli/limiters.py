"""`outlast limiters`: list the limiters, what they allow, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.cli.options import JsonOption, StoreOption, WatchOption
from outlast.cli.output import answering
from outlast.cli.stores import limiters_in
from outlast.cli.text import safe, span
from outlast.cli.watch import View, print_view
from outlast.codec.rates import Rate
from outlast.engine.documents import limiter_document
from outlast.engine.limiters import LimiterInfo
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from rich.text import Text


class Limiters(NamedTuple):
    found: list[LimiterInfo]
    damaged: list[str]
    now: float


def limiters(
    *,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the limiters: what each allows, what is used, what waits."""
    with answering(as_json):
        print_view(
            store,
            View(
                _read,
                _lines,
                lambda read: {
                    "limiters": [limiter_document(info) for info in read.found],
                    "damaged": read.damaged,
                },
                "no limiters were used lately.",
                notes=lambda read: [
                    f"limiter {safe(name)} is damaged. Its next use starts it again."
                    for name in read.damaged
                ],
            ),
            watch=watch,
            as_json=as_json,
        )


def _read(store: Store) -> Limiters:
    return Limiters(*limiters_in(store), store.now())


def _lines(read: Limiters) -> list[Text]:
    from outlast.cli.grid import Column, table

    columns = (
        Column("LIMITER"),
        Column("LIMIT"),
        Column("ALLOWS", right=True),
        Column("USED", right=True),
        Column("LEFT", right=True),
        Column("ASKED", right=True),
        Column("WAITING", right=True),
        Column("NEXT IN", right=True),
    )
    rows = [row for info in read.found for row in _rows(info, read.now)]
    return table(columns, rows, wide=False)


def _rows(info: LimiterInfo, now: float) -> list[list[Any]]:
    from outlast.cli.grid import Cell

    rows = []
    for number, (unit, limit) in enumerate(info.limits.items()):
        left = max(0, limit.limit - limit.used)
        first = number == 0
        due = "" if info.next_at is None else span(max(0.0, info.next_at - now))
        rows.append(
            [
                Cell(safe(info.name) if first else ""),
                Cell(safe(unit)),
                Cell(str(Rate(limit.limit, limit.period))),
                Cell(f"{limit.used:,}"),
                Cell(f"{left:,}", "" if left else "yellow"),
                Cell(f"{limit.waiting:,}" if limit.waiting else ""),
                Cell(str(info.waiting) if first and info.waiting else ""),
                Cell(due if first else ""),
            ]
        )
    return rows
