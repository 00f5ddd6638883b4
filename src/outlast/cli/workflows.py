"""`outlast workflows` and `outlast workflow`: list workflows, pause and resume one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from outlast.cli.help import EPILOG, Command, Group
from outlast.cli.hints import command
from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App, caller_options
from outlast.cli.stores import acting, pauses_in
from outlast.cli.text import safe, span
from outlast.cli.watch import View, print_view
from outlast.codec.text import iso
from outlast.store.fleet import Fleet, names_of
from outlast.store.pauses import PausedWorkflow
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from rich.text import Text

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The workflow's name.")]


class KnownWorkflow(NamedTuple):
    """A workflow that live workers know, or that is paused."""

    name: str
    workers: int
    queues: tuple[str, ...]
    """From which these workers claim it."""
    pause: PausedWorkflow | None


class Workflows(NamedTuple):
    rows: list[KnownWorkflow]
    now: float


def workflows(
    *,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the workflows that live workers know, and the paused ones."""
    with answering(as_json):
        print_view(
            store,
            View(
                _read,
                partial(_lines, wide=wide),
                lambda found: {"workflows": [_document(row) for row in found.rows]},
                "no live worker knows a workflow, and none is paused.",
            ),
            watch=watch,
            as_json=as_json,
        )


workflow = typer.Typer(
    name="workflow",
    cls=Group,
    help="Pause or resume a workflow.",
    epilog=EPILOG,
    no_args_is_help=True,
)


@workflow.command(cls=Command, epilog=EPILOG)
def pause(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Stop claiming runs of a workflow. Runs already executing continue."""
    _change(name, store, as_json, paused=True)


@workflow.command(cls=Command, epilog=EPILOG)
def resume(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Claim runs of a workflow again."""
    _change(name, store, as_json, paused=False)


def _change(name: str, store: str | None, as_json: bool, *, paused: bool) -> None:
    async def act(app: App, opened: Store) -> tuple[bool, list[KnownWorkflow]]:
        was_paused = any(one.name == name for one in pauses_in(opened))
        change = app.pause_workflow if paused else app.resume_workflow
        await change(name, **caller_options(app))
        return was_paused, [row for row in _read(opened).rows if row.name == name]

    with answering(as_json):
        was_paused, rows = acting(store, act)
        row = rows[0] if rows else KnownWorkflow(name, 0, (), None)
        if as_json:
            document({"workflow": _document(row)})
            return
        if not row.workers:
            print_message(f"no live worker knows a workflow named {safe(name)}.")
        if paused is False and not was_paused:
            print_message(f"workflow {safe(name)} was not paused; nothing changed.")
        elif row.pause is None:
            print_message(f"workflow {safe(name)} is resumed: its runs are claimed again.")
        else:
            print_message(f"workflow {safe(name)} is paused: no more of its runs are claimed.")
            print_message(f"To resume it: {command('workflow', 'resume', name, store=store)}.")


def _read(store: Store) -> Workflows:
    fleet = Fleet.of(store)
    pauses = {one.name: one for one in pauses_in(store)}
    workers: dict[str, int] = {}
    queues: dict[str, set[str]] = {}
    for worker in fleet.workers:
        claims_from = names_of(worker.queues)
        if fleet.state(worker) != "alive" or not claims_from:
            continue
        for name in names_of(worker.workflows):
            workers[name] = workers.get(name, 0) + 1
            queues.setdefault(name, set()).update(claims_from)
    rows = [
        KnownWorkflow(
            name, workers.get(name, 0), tuple(sorted(queues.get(name, ()))), pauses.get(name)
        )
        for name in sorted({*workers, *pauses})
    ]
    return Workflows(rows, fleet.now)


def _document(row: KnownWorkflow) -> dict[str, Any]:
    pause = row.pause
    return {
        "name": row.name,
        "workers": row.workers,
        "queues": list(row.queues),
        "paused": pause is not None,
        "paused_since": None if pause is None else iso(pause.since.timestamp()),
        "paused_by": None if pause is None else pause.by,
    }


def _lines(found: Workflows, *, wide: bool) -> list[Text]:
    from outlast.cli.grid import Column, table

    columns = (
        Column("WORKFLOW"),
        Column("WORKERS", right=True),
        Column("QUEUES", least=10),
        Column("PAUSED FOR", right=True),
        Column("BY"),
    )
    return table(columns, [_cells(row, found.now) for row in found.rows], wide=wide)


def _cells(row: KnownWorkflow, now: float) -> list[Any]:
    from outlast.cli.grid import Cell

    pause = row.pause
    paused_for = "" if pause is None else span(max(0.0, now - pause.since.timestamp()))
    return [
        Cell(safe(row.name)),
        Cell(str(row.workers)),
        Cell(", ".join(map(safe, row.queues))),
        Cell(paused_for, "yellow"),
        Cell("" if pause is None or pause.by is None else safe(pause.by)),
    ]
