"""`outlast bulk`: cancel, retry, resume or prune all runs that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from outlast.cli.inspect import StatusName
from outlast.cli.options import (
    JsonOption,
    NewerThan,
    OlderThan,
    StoreOption,
    one_of,
    storable,
)
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App, caller_options
from outlast.cli.stores import acting
from outlast.engine.bulk import BulkAction, BulkReport
from outlast.errors import SettingsError
from outlast.store.protocol import Store

WHY = "cancelled with others"
PAST = {
    BulkAction.CANCEL: "cancelled or asked to cancel",
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
    why: Annotated[
        str | None,
        typer.Option(
            "--why",
            parser=storable,
            metavar="TEXT",
            help="The reason for `cancel`, as the run sees it.",
        ),
    ] = None,
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
    if why is not None and action is not BulkAction.CANCEL:
        raise typer.BadParameter(
            f"`bulk {action}` records no reason: only `bulk cancel` takes --why.",
            param_hint="--why",
        )
    filters = (status, workflow, queue, prefix, key, older_than, newer_than, waiting_for)
    is_filtered = undoing or any(filters)
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
            why=WHY if why is None else why,
            dry_run=not yes,
            token=token,
            **caller_options(app),
        )

    with answering(as_json):
        if not is_filtered:
            raise SettingsError(
                f"`bulk {action}` needs at least one filter, such as --workflow, --prefix, --key "
                "or --status."
            )
        report = acting(store, act)
        if as_json:
            document(_document(report))
        else:
            _print_outcome(action, report)
            if action is BulkAction.RETRY and StatusName.PARKED in (status or ()):
                print_message(
                    "Of parked runs, only those whose compensation is stuck can be retried. For "
                    "the others, use `outlast bulk resume`."
                )


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
    for message, ids in _by_reason(report.problems).items():
        print_message(f"{', '.join(ids)}: {message}")


def _by_reason(problems: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the ids of the skipped runs by the reason, with the first of them in its text."""
    texts: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for id, message in problems:
        text = texts.setdefault(message.replace(id, ""), message)
        found.setdefault(text, []).append(id)
    return found
