"""`outlast runs` and `outlast show`: read-only views of runs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from outlast.cli.exit_codes import OF_STATUS
from outlast.cli.options import (
    IdArgument,
    JsonOption,
    NewerThan,
    OlderThan,
    StoreOption,
    WatchOption,
    WideOption,
    checked_id,
    one_of,
    storable,
)
from outlast.cli.output import answering, where_explained
from outlast.cli.stores import fleet_in
from outlast.cli.text import counted, safe
from outlast.cli.watch import View, print_view
from outlast.engine.documents import history_document, run_document
from outlast.engine.inspection import explained
from outlast.errors import UnknownRun
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery, RunRow
from outlast.store.tolerant_rows import DAMAGE, each_displayed, each_document, legible

if TYPE_CHECKING:
    from rich.text import Text

    from outlast.engine.executing_steps import ExecutingStep
    from outlast.engine.journal_view import History


class StatusName(StrEnum):
    QUEUED = "queued"
    DELAYED = "delayed"
    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"
    UNDOING = "undoing"


class RunsFound(NamedTuple):
    """The runs found by one read of `outlast runs`."""

    rows: list[RunRow]
    more: bool
    """Whether the limit left some out."""
    now: float
    dead: set[str]
    """The dead workers."""


class RunFound(NamedTuple):
    """The run found by one read of `outlast show`."""

    history: History
    now: float
    fleet: Fleet | None
    """None for a JSON document, which does not contain the workers."""
    executing: Sequence[ExecutingStep]
    """The steps that have been executing for more than a second."""


def runs(
    *,
    status: Annotated[
        list[StatusName] | None,
        typer.Option(
            "--status",
            parser=one_of(StatusName),
            autocompletion=lambda: [*StatusName],
            metavar="STATUS",
            help=f"Only runs with this status; may be repeated: {', '.join(StatusName)}. "
            "A delayed run is queued and not due yet.",
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Only runs of this workflow.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Only runs in this queue.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", parser=storable, metavar="TEXT", help="Only runs whose id starts with this."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            parser=storable,
            metavar="TEXT",
            help="Only runs that were submitted with this key.",
        ),
    ] = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    waiting_for: Annotated[
        str | None,
        typer.Option("--waiting-for", metavar="NAME", help="Only runs that wait for this message."),
    ] = None,
    undoing: Annotated[
        bool,
        typer.Option(
            "--undoing", help="Only runs that are being compensated. Parked ones are stuck."
        ),
    ] = False,
    items: Annotated[
        bool,
        typer.Option("--items", help="List plain work items instead. `--status dead` lists both."),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000_000, help="Show at most this many.")
    ] = 100,
    ids: Annotated[
        bool,
        typer.Option("--ids", help="Print only the ids, for `outlast resume` and `retry`."),
    ] = False,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    if ids and as_json:
        raise typer.BadParameter(
            "--json prints the ids too: pass only one of them.", param_hint="--ids"
        )
    if StatusName.UNDOING in (status or ()):
        if len(set(status or ())) > 1:
            raise typer.BadParameter(
                "`undoing` cannot be combined with another status. Use --undoing to list only the "
                "runs of a status that are being compensated.",
                param_hint="--status",
            )
        status = None
        undoing = True

    def find(opened: Store) -> RunsFound:
        now = opened.now()
        query = RunQuery(
            statuses=tuple(one.value for one in status or ()),
            workflow=workflow,
            queue=queue,
            prefix=prefix,
            key=key,
            waiting_for=waiting_for,
            created_before=None if older_than is None else now - older_than,
            created_after=None if newer_than is None else now - newer_than,
            items=True if items else None if StatusName.DEAD in (status or ()) else False,
            undoing=True if undoing else None,
            limit=limit + 1,
        )
        rows = opened.runs(query)
        return RunsFound(rows[:limit], len(rows) > limit, now, _dead_workers(opened))

    filters = (status, workflow, queue, prefix, key, older_than, newer_than, waiting_for)
    is_filtered = undoing or any(one is not None for one in filters)
    what = "items" if items else "runs"
    nothing = f"no {what} match." if is_filtered else f"no {what}."
    lines = _id_lines if ids else partial(_run_lines, wide=wide)
    with answering(as_json):
        notes = _limit_notes if ids else _run_notes
        view = View(find, lines, _runs_document, nothing, notes)
        print_view(store, view, watch=watch, as_json=as_json)


def _id_lines(found: RunsFound) -> list[Text]:
    from rich.text import Text

    return [Text(safe(str(row.id))) for row in found.rows]


def _run_lines(found: RunsFound, *, wide: bool) -> list[Text]:
    from outlast.cli.table import run_lines

    return run_lines(found.rows, found.now, found.dead, wide=wide)


def _runs_document(found: RunsFound) -> dict[str, Any]:
    return {
        "runs": each_document(found.rows, lambda row: run_document(row, found.now), "id"),
        "more": found.more,
    }


def _limit_notes(found: RunsFound) -> list[str]:
    print_view = counted(len(found.rows), "run")
    return [f"Showing {print_view}; use --limit for more."] if found.more else []


def _run_notes(found: RunsFound) -> list[str]:
    # Explain only Outlast's own errors. The program's own exceptions need no explanation.
    pages = each_displayed(found.rows, explained, lambda *_: None)
    names = dict.fromkeys(name for name in pages if name not in (None, "RunFailed"))
    return _limit_notes(found) + [where_explained(str(name)) for name in names]


def _dead_workers(store: Store) -> set[str]:
    """Return the dead workers, or none if a worker's row is damaged.

    Damage to a worker must not stop runs from being shown.
    """
    try:
        return set(store.dead_workers())
    except DAMAGE:
        return set()


def show(
    id: IdArgument,
    full: Annotated[
        bool,
        typer.Option(
            "--full", "--wide", help="Show everything uncut, and the traceback of a failure."
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Refresh every second until the run has ended, and exit as `outlast run` does; "
            "with --json one document per line.",
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the history, effects, waits and cost of a run or an item."""
    name = f"run {id!r}"

    def find(opened: Store) -> RunFound:
        from outlast.engine.executing_steps import executing_steps
        from outlast.engine.journal_view import History
        from outlast.engine.timeline import still_executing

        with legible(name):
            row = opened.run(checked_id(id))
            if row is None:
                raise UnknownRun(id)
            fleet = None if as_json else fleet_in(opened)
            # Read the steps first: one that ends in between is in the journal and left out.
            executing = executing_steps(opened, row)
            history = History.of(opened, row)
            return RunFound(history, opened.now(), fleet, still_executing(history, executing))

    def lines(found: RunFound) -> list[Text]:
        from outlast.cli.timeline import timeline_lines

        assert found.fleet is not None
        with legible(name):
            return list(
                timeline_lines(found.history, found.fleet, found.executing, store=store, full=full)
            )

    def as_document(found: RunFound) -> dict[str, Any]:
        from outlast.engine.executing_steps import executing_document

        with legible(name):
            executing = [executing_document(one) for one in found.executing]
            return {**history_document(found.history, found.now), "executing": executing}

    def is_final(found: RunFound) -> bool:
        return found.history.row.status in ENDED

    with answering(as_json):
        view = View(find, lines, as_document, "", is_final=is_final, first_lines=1)
        found = print_view(store, view, watch=watch, as_json=as_json)
        if watch:
            raise typer.Exit(OF_STATUS[found.history.row.status])
