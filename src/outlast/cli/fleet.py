"""`outlast workers`, `outlast queues`, `outlast limit`: the fleet as its store sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from outlast.api.outlast import Outlast
from outlast.cli.documents import queue_document, worker_document
from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering, document, say
from outlast.cli.stores import acting
from outlast.cli.text import iso
from outlast.cli.watch import View, shown
from outlast.codec.identifiers import check_queue_name
from outlast.settings import Settings
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow
from outlast.store.tolerant_rows import each_document

if TYPE_CHECKING:
    from rich.text import Text

LIMIT_MAX = 1_000_000_000


class Queues(NamedTuple):
    rows: list[QueueRow]
    unknown: dict[str, tuple[str, ...]]
    """Workflows with ready runs that no living worker of the queue knows, by queue."""
    now: float


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
                _workers_document,
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
                _look_at_queues,
                partial(_queue_lines, wide=wide),
                _queues_document,
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
            "--depth", min=1, max=LIMIT_MAX, help="Refuse a submission when this many are queued."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            max=LIMIT_MAX,
            help="Execute at most this many at a time, over all workers.",
        ),
    ] = None,
    no_depth: Annotated[
        bool,
        typer.Option(
            "--no-depth", help="Remove the queue's own limit; that of the settings applies."
        ),
    ] = False,
    no_concurrency: Annotated[
        bool,
        typer.Option("--no-concurrency", help="Remove the limit: as many as workers have slots."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a queue's own limits for all further claims and submissions.

    Limits without an option stay as they are. Without any option, show the limits.
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

    async def action(app: Outlast, opened: Store) -> tuple[int | None, int | None]:
        if changes:
            await app.queue(queue).limit(**changes)
        row = next((row for row in opened.queues() if row.name == queue), None)
        return (row.depth_max, row.concurrency_max) if row else (None, None)

    with answering(as_json):
        check_queue_name(queue, Settings.load({}).name_length_max)
        depth_max, concurrency_max = acting(store, action)
        if as_json:
            document({"queue": queue, "depth": depth_max, "concurrency": concurrency_max})
        else:
            say(
                f"queue {queue}: depth {_or_none(depth_max)}, concurrency "
                f"{_or_none(concurrency_max)}."
            )


def _or_none(limit: int | None) -> str:
    return "without a limit of its own" if limit is None else f"{limit:,} at most"


def _look_at_queues(store: Store) -> Queues:
    fleet = Fleet.of(store)
    rows = store.queues()
    unknown = {row.name: store.peek((row.name,), fleet.known(row.name)).unknown for row in rows}
    return Queues(rows, {queue: names for queue, names in unknown.items() if names}, fleet.now)


def _workers_document(fleet: Fleet) -> dict[str, object]:
    here = {worker.id for worker in fleet.workers}
    return {
        "workers": each_document(
            fleet.workers, lambda row: worker_document(row, fleet.state(row), fleet.now), "id"
        ),
        "struck_off": list(fleet.struck_off),
        "stalls": [
            {**stall._asdict(), "at": iso(stall.at), "ended": stall.worker not in here}
            for stall in fleet.stalls
        ],
    }


def _queues_document(found: Queues) -> dict[str, object]:
    def one(row: QueueRow) -> dict[str, object]:
        return queue_document(row, found.unknown.get(row.name, ()), found.now)

    return {"queues": each_document(found.rows, one, "name")}


def _worker_lines(fleet: Fleet, *, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import worker_lines

    return worker_lines(fleet, wide=wide)


def _queue_lines(found: Queues, *, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import queue_lines

    return queue_lines(found.rows, found.unknown, found.now, wide=wide)
