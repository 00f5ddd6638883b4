"""`outlast bulk`: cancel, retry, resume or prune all runs that match a filter."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from outlast.cli.inspect import StatusName
from outlast.cli.options import (
    JsonOption,
    NewerThan,
    OlderThan,
    StoreOption,
    WhyOption,
    one_of,
    storable,
)
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App, caller_options
from outlast.cli.stores import acting
from outlast.engine.bulk import BulkAction, BulkReport
from outlast.store.protocol import Store

PAST = {
    BulkAction.CANCEL: "cancelled, or asked to end",
    BulkAction.RETRY: "queued again",
    BulkAction.RESUME: "queued again",
    BulkAction.PRUNE: "deleted",
}


def bulk(
    action: Annotated[
        BulkAction,
        typer.Argument(
            parser=one_of(BulkAction),
            autocompletion=lambda: [*BulkAction],
            metavar="ACTION",
            help=f"One of {', '.join(BulkAction)}.",
        ),
    ],
    *,
    status: Annotated[
        list[StatusName] | None,
        typer.Option(
            "--status",
            parser=one_of(StatusName),
            autocompletion=lambda: [*StatusName],
            metavar="STATUS",
            help="Only runs with this status; may be repeated.",
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
        bool, typer.Option("--undoing", help="Only runs that are being compensated.")
    ] = False,
    items: Annotated[
        bool, typer.Option("--items", help="Act on plain work items instead.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Act on at most this many, newest first.")
    ] = None,
    why: WhyOption = "cancelled with others",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this, only count what matches.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            help="Repeat with the same token: no run is retried or resumed twice.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel, retry, resume or prune all runs that match.

    The filters are those of `outlast runs`. Without --yes, the command counts the runs and changes
    nothing. A repeat of an interrupted command continues.
    """
    wants_undoing = undoing or StatusName.UNDOING in (status or ())
    statuses = [one.value for one in status or () if one is not StatusName.UNDOING]

    async def act(app: App, _: Store) -> BulkReport:
        return await app.bulk(
            action.value,
            status=statuses,
            workflow=workflow,
            queue=queue,
            prefix=prefix,
            key=key,
            waiting_for=waiting_for,
            items=items,
            undoing=True if wants_undoing else None,
            older_than=older_than,
            newer_than=newer_than,
            limit=limit,
            why=why,
            dry_run=not yes,
            token=token,
            **caller_options(app),
        )

    with answering(as_json):
        report = acting(store, act)
        if as_json:
            document(_document(report))
        else:
            _print_outcome(action, report)


def _document(report: BulkReport) -> dict[str, object]:
    problems = [{"id": id, "message": message} for id, message in report.problems]
    fields = asdict(report) | {"problems": problems, "examples": list(report.examples)}
    del fields["next"]
    return fields


def _print_outcome(action: BulkAction, report: BulkReport) -> None:
    runs = "1 run matches" if report.matched == 1 else f"{report.matched:,} runs match"
    examples = f": {', '.join(report.examples)}" if report.examples else ""
    more = ", …" if report.matched > len(report.examples) > 0 else ""
    if report.dry_run:
        then = f" Pass --yes to {action} {'it' if report.matched == 1 else 'them'}."
        print_message(f"{runs}{examples}{more}.{then if report.matched else ''}")
        return
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    print_message(f"{runs}: {report.done:,} {PAST[action]}{skipped}.")
    for id, message in report.problems:
        print_message(f"{id}: {message}")
