"""`outlast runs` and `outlast show`: read-only views of runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.documents import (
    effect_document,
    entry_document,
    explained,
    message_document,
    run_document,
    whole_run_document,
)
from outlast.cli.options import (
    IdArgument,
    JsonOption,
    NewerThan,
    OlderThan,
    StoreOption,
    checked_id,
    storable,
)
from outlast.cli.output import answering, document, say, where_explained
from outlast.cli.stores import reading
from outlast.engine.info import EffectInfo
from outlast.errors import UnknownRun
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery
from outlast.store.tolerant_rows import DAMAGE, each_document, each_shown, legible

if TYPE_CHECKING:
    from outlast.cli.history import History


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


def runs(
    *,
    status: Annotated[
        list[StatusName] | None,
        typer.Option(
            "--status",
            help="Only these; may be repeated. delayed: those queued that are not due yet.",
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Only of this workflow.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Only in this queue.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", parser=storable, metavar="TEXT", help="Only if the id starts with this."
        ),
    ] = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    waiting_for: Annotated[
        str | None,
        typer.Option(
            "--waiting-for", metavar="NAME", help="Only those that wait for a message of this name."
        ),
    ] = None,
    undoing: Annotated[
        bool,
        typer.Option(
            "--undoing", help="Only those that are being compensated; parked ones are stuck."
        ),
    ] = False,
    items: Annotated[
        bool,
        typer.Option(
            "--items", help="Plain work items instead. Dead letters are listed of both kinds."
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000_000, help="Show at most this many.")
    ] = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    if StatusName.UNDOING in (status or ()):
        if len(set(status or ())) > 1:
            raise typer.BadParameter(
                "`undoing` cannot be combined with another status. Use --undoing to list only the "
                "runs of a status that are being compensated.",
                param_hint="--status",
            )
        status = None
        undoing = True
    with answering(as_json), reading(store) as opened:
        now = opened.now()
        query = RunQuery(
            statuses=tuple(one.value for one in status or ()),
            workflow=workflow,
            queue=queue,
            prefix=prefix,
            waiting_for=waiting_for,
            created_before=None if older_than is None else now - older_than,
            created_after=None if newer_than is None else now - newer_than,
            items=True if items else None if StatusName.DEAD in (status or ()) else False,
            undoing=True if undoing else None,
            limit=limit + 1,
        )
        with legible("the store"):
            rows = opened.runs(query)
        rows, more = rows[:limit], len(rows) > limit
        if as_json:
            document(
                {
                    "runs": each_document(rows, lambda row: run_document(row, now), "id"),
                    "more": more,
                }
            )
            return
        from outlast.cli.table import print_runs

        print_runs(rows, now, _dead_workers(opened))
        if not rows:
            what = "items" if items else "runs"
            like_that = query != RunQuery(limit=limit + 1, items=items)
            say(f"no {what} like that." if like_that else f"no {what}.")
        if more:
            say(f"Showing {limit}; use --limit for more.")
        # Explain only Outlast's own errors. A program's exception that ends a run is no news.
        pages = each_shown(rows, explained, lambda *_: None)
        names = dict.fromkeys(name for name in pages if name not in (None, "RunFailed"))
        for name in names:
            say(where_explained(str(name)))


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
        bool, typer.Option("--full", help="Values uncut, and the traceback of a failure.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the history of a run or an item: its effects, waits and cost."""
    with answering(as_json), reading(store) as opened, legible(f"run {id!r}"):
        row = opened.run(checked_id(id))
        if row is None:
            raise UnknownRun(id)
        from outlast.cli.history import History
        from outlast.cli.timeline import print_timeline

        history = History.of(opened, row)
        if as_json:
            document(_whole_document(history, opened.now()))
        else:
            print_timeline(history, Fleet.of(opened), store=store, full=full)


def _whole_document(history: History, now: float) -> dict[str, Any]:
    effects = None if history.effect_log is None else EffectInfo.of(history.effect_log)
    items = (
        {} if history.done is None else {"items": {"done": history.done, "total": history.total}}
    )
    return {
        "run": whole_run_document(history.row, now),
        **items,
        "cost": {
            "spent": history.account.spent.document(),
            "saved": history.account.saved.document(),
        },
        "effects": None if effects is None else [effect_document(effect) for effect in effects],
        "undecided": [one.place for one in history.undecided],
        "journal": [entry_document(entry, entry.seq in history.void) for entry in history.entries],
        "messages": [message_document(message, history.received) for message in history.messages],
    }
