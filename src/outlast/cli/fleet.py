"""`outlast workers`, `outlast queues`, `outlast limit`: the fleet as its store sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.api.outlast import Outlast
from outlast.cli.hints import command
from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering, document, say
from outlast.cli.stores import acting
from outlast.cli.watch import View, shown
from outlast.codec.identifiers import check_queue_name
from outlast.engine.documents import queues_document, workers_document
from outlast.settings import Settings
from outlast.store.fleet import Fleet, FleetQueues
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow

if TYPE_CHECKING:
    from rich.text import Text

LIMIT_MAX = 1_000_000_000


def workers(
    *,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the processes that use the store, and what they hold."""
    with answering(as_json):
        shown(
            store,
            View(
                Fleet.with_stalls,
                partial(_worker_lines, wide=wide),
                workers_document,
                "no process has this store open.",
            ),
            watch=watch,
            as_json=as_json,
        )


def queues(
    *,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the queues: depth, age, throughput, unclaimed runs."""
    with answering(as_json):
        shown(
            store,
            View(
                FleetQueues.of,
                partial(_queue_lines, store=store, wide=wide),
                queues_document,
                "no queues.",
            ),
            watch=watch,
            as_json=as_json,
        )


def limit(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    *,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth", min=1, max=LIMIT_MAX, help="Reject submissions when this many are queued."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=0,
            max=LIMIT_MAX,
            help="Execute at most this many at a time, over all workers. 0 pauses the queue.",
        ),
    ] = None,
    no_depth: Annotated[
        bool,
        typer.Option(
            "--no-depth",
            help="Remove the queue's own depth limit; OUTLAST_QUEUE_DEPTH_MAX applies.",
        ),
    ] = False,
    no_concurrency: Annotated[
        bool,
        typer.Option("--no-concurrency", help="Remove the limit: workers fill their slots."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit a queue across all workers, or pause it.

    A limit applies to further claims and submissions. `--concurrency 0` pauses the queue: runs that
    execute continue, and nothing more is claimed. Limits that you do not name stay as they are.
    Without an option, the command shows the limits.
    """
    for name, given, none in (
        ("depth", depth, no_depth),
        ("concurrency", concurrency, no_concurrency),
    ):
        if given is not None and none:
            raise typer.BadParameter(
                f"--{name} and --no-{name} exclude each other.", param_hint=f"--{name}"
            )
    changes: dict[str, int | None] = {}
    if depth is not None or no_depth:
        changes["depth"] = depth
    if concurrency is not None or no_concurrency:
        changes["concurrency"] = concurrency

    async def action(app: Outlast, opened: Store) -> QueueRow | None:
        if changes:
            await app.queue(queue).limit(**changes)
        return next((row for row in opened.queues() if row.name == queue), None)

    with answering(as_json):
        check_queue_name(queue, Settings.load({}).name_length_max)
        row = acting(store, action)
        if as_json:
            limits = (row.depth_max, row.concurrency_max) if row else (None, None)
            document({"queue": queue, "depth": limits[0], "concurrency": limits[1]})
        elif row is None:
            say(f"queue {queue} has no limits and has never been used.")
        else:
            say(f"queue {queue}: {_limits(row)}.")
            if row.concurrency_max == 0:
                resume = command("limit", queue, "--no-concurrency", store=store)
                say(f"Nothing more is claimed from it. To resume: {resume}.")


def _limits(row: QueueRow) -> str:
    depth, concurrency = row.depth_max, row.concurrency_max
    most = "no depth limit of its own" if depth is None else f"at most {depth:,} queued"
    if concurrency is None:
        return f"{most}, no concurrency limit"
    return f"{most}, " + (f"at most {concurrency:,} executing" if concurrency else "paused")


def _worker_lines(fleet: Fleet, *, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import worker_lines

    return worker_lines(fleet, wide=wide)


def _queue_lines(found: FleetQueues, *, store: str | None, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import queue_lines

    return queue_lines(
        found.rows, found.unknown, found.unclaimed, found.now, store=store, wide=wide
    )
