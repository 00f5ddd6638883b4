"""`outlast drains`: show the outcome of the last drains."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering
from outlast.cli.text import safe, span
from outlast.cli.watch import View, print_view
from outlast.errors import OutlastError
from outlast.shutdown.report import DrainReport, drain_document
from outlast.store.commands import DRAINS_MAX
from outlast.store.protocol import Store
from outlast.store.rows import DrainRow
from outlast.store.tolerant_rows import each_document, legible

if TYPE_CHECKING:
    from rich.text import Text

LISTED_MAX = 20
COUNTS = ("completed", "released", "waiting", "checkpointed", "not_started")
LABELS = {"not_started": "not started"}
"""What people read instead of a field's name."""


class NoDrain(OutlastError):
    """No drain of this worker is recorded."""


class Drains(NamedTuple):
    rows: list[DrainRow]
    here: frozenset[str]
    """Workers that are registered and do not seem dead."""

    def state(self, row: DrainRow) -> str:
        if row.ended is not None:
            return "cut short" if DrainReport.of(row).cut_short else "drained"
        return "draining" if row.worker in self.here else "no report"


def drains(
    worker: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKER",
            help="Show the drain of this worker in full; the beginning of its id is enough.",
        ),
    ] = None,
    *,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, max=DRAINS_MAX, help="Show at most this many, the newest."),
    ] = 20,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the last drains, newest first.

    Show their duration, the outcome of their runs and the time to recovery.
    """
    with answering(as_json):
        if worker is None:
            view = View(
                lambda opened: _read_drains(opened, limit),
                partial(_lines, wide=wide),
                _document,
                "no worker has drained here yet.",
            )
        else:
            name = worker
            view = View(lambda opened: _read_worker(opened, name), _full_lines, _full_document, "")
        print_view(store, view, watch=watch, as_json=as_json)


def drain_of(store: Store, worker: str) -> DrainRow | None:
    """Return the drain of a worker, by its full id."""
    return next((row for row in store.drains(DRAINS_MAX) if row.worker == worker), None)


def outcome(row: DrainRow) -> str:
    """Return the outcome of a drain as a sentence."""
    report = DrainReport.of(row)
    counts = {name: getattr(report, name) for name in COUNTS} | {"left": len(report.left)}
    parts = ", ".join(
        f"{count} {LABELS.get(name, name)}" for name, count in counts.items() if count
    )
    if report.cut_short:
        return f"worker {row.worker} ended before it could report: {parts or 'nothing was left'}."
    if row.ended is None:
        return (
            f"worker {row.worker} left no drain report; it drained because of "
            f"{row.reason or 'a request'}."
        )
    took = "" if report.seconds is None else f" in {span(report.seconds)}"
    return f"worker {row.worker} drained{took}: {parts or 'nothing was in flight'}."


def _read_drains(store: Store, limit: int) -> Drains:
    dead = frozenset(store.dead_workers())
    return Drains(store.drains(limit), frozenset(row.id for row in store.workers()) - dead)


def _read_worker(store: Store, worker: str) -> Drains:
    every = _read_drains(store, DRAINS_MAX)
    found = [row for row in every.rows if row.worker == worker] or [
        row for row in every.rows if worker and str(row.worker).startswith(worker)
    ]
    if not found:
        raise NoDrain(
            f"no drain of worker {worker!r} is recorded. The store keeps the last {DRAINS_MAX:,}."
        )
    if len(found) > 1:
        names = ", ".join(safe(row.worker) for row in found[:LISTED_MAX]) + (
            ", …" if len(found) > LISTED_MAX else ""
        )
        raise typer.BadParameter(
            f"{len(found)} workers begin with {safe(worker)!r}: {names}. Give more of the id.",
            param_hint="WORKER",
        )
    return every._replace(rows=found)


def _document(found: Drains) -> dict[str, Any]:
    return {"drains": each_document(found.rows, drain_document, "worker")}


def _full_document(found: Drains) -> dict[str, Any]:
    with legible(f"the drain of worker {found.rows[0].worker}"):
        return {"drain": drain_document(found.rows[0])}


def _lines(found: Drains, *, wide: bool) -> list[Text]:
    from outlast.cli.drain_tables import drain_lines

    return drain_lines(found.rows, found.state, wide=wide)


def _full_lines(found: Drains) -> list[Text]:
    from outlast.cli.drain_tables import full_lines

    with legible(f"the drain of worker {found.rows[0].worker}"):
        return full_lines(DrainReport.of(found.rows[0]), found.state(found.rows[0]))
