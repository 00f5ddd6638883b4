"""`outlast workers`, `outlast queues`, `outlast limit`: the fleet as its store sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from outlast.cli.hints import command, resume_queue
from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App
from outlast.cli.stores import acting, pauses_in
from outlast.cli.text import safe
from outlast.cli.watch import View, print_view
from outlast.codec.identifiers import check_queue_name
from outlast.engine.documents import (
    limits_document,
    queues_document,
    workers_document,
)
from outlast.engine.queue_limits import check_key_rate
from outlast.errors import SettingsError
from outlast.settings import Settings
from outlast.store.fleet import Fleet, FleetQueues
from outlast.store.pauses import PausedWorkflow
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow

if TYPE_CHECKING:
    from rich.text import Text

LIMIT_MAX = 1_000_000_000


class QueuesAndPauses(NamedTuple):
    queues: FleetQueues
    paused: list[PausedWorkflow]
    """The paused workflows."""


def workers(
    *,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the processes that use the store, and what they hold."""
    with answering(as_json):
        print_view(
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
        print_view(
            store,
            View(
                _queues_and_pauses,
                partial(_queue_lines, store=store, wide=wide),
                lambda found: queues_document(found.queues),
                "no queues.",
                notes=partial(_pause_notes, store=store),
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
            help="Execute at most this many at a time, over all workers. To pause, use --pause.",
        ),
    ] = None,
    per_key_concurrency: Annotated[
        int | None,
        typer.Option(
            "--per-key-concurrency",
            min=1,
            max=LIMIT_MAX,
            help="Execute at most this many runs of the same key at a time.",
        ),
    ] = None,
    per_key_rate: Annotated[
        str | None,
        typer.Option(
            "--per-key-rate", metavar="RATE", help="Start at most this many runs of a key: 100/1m."
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
    no_per_key_concurrency: Annotated[
        bool, typer.Option("--no-per-key-concurrency", help="Remove the limit.")
    ] = False,
    no_per_key_rate: Annotated[
        bool, typer.Option("--no-per-key-rate", help="Remove the limit.")
    ] = False,
    paused: Annotated[
        bool | None,
        typer.Option("--pause/--resume", help="Stop claiming from the queue, or claim again."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit a queue across all workers, or pause it.

    A limit applies to further claims and submissions. `--pause` stops claims: runs already
    executing continue, and the limits stay. Limits that you do not name stay as they are. Without
    an option, the command shows the limits.
    """
    changes: dict[str, Any] = {}
    for name, given, none in (
        ("depth", depth, no_depth),
        ("concurrency", concurrency, no_concurrency),
        ("per-key-concurrency", per_key_concurrency, no_per_key_concurrency),
        ("per-key-rate", per_key_rate, no_per_key_rate),
    ):
        if given is not None or none:
            changes[name.replace("-", "_")] = given
        if given is not None and none:
            raise typer.BadParameter(
                f"--{name} and --no-{name} exclude each other.", param_hint=f"--{name}"
            )
    if per_key_rate is not None:
        try:
            check_key_rate(per_key_rate)
        except SettingsError as error:
            raise typer.BadParameter(str(error), param_hint="--per-key-rate") from None

    async def action(app: App, opened: Store) -> QueueRow | None:
        if changes:
            await app.queue(queue).limit(**changes)
        if paused is not None:
            await (app.queue(queue).pause() if paused else app.queue(queue).resume())
        return next((row for row in opened.queues() if row.name == queue), None)

    with answering(as_json):
        check_queue_name(queue, Settings.load({}).name_length_max)
        row = acting(store, action)
        if as_json:
            document({"queue": queue, **limits_document(row)})
        elif row is None:
            print_message(f"queue {queue} has no limits and has never been used.")
        else:
            print_message(f"queue {queue}: {_limits(row)}.")
            if (resume := resume_queue(row, store)) is not None:
                print_message(f"Nothing more is claimed from it. To resume: {resume}.")


def _limits(row: QueueRow) -> str:
    depth, concurrency = row.depth_max, row.concurrency_max
    most = "no depth limit of its own" if depth is None else f"at most {depth:,} queued"
    parts = [most]
    if concurrency is None:
        parts.append("no concurrency limit")
    else:
        parts.append(f"at most {concurrency:,} executing")
    if row.key_concurrency_max is not None:
        parts.append(f"at most {row.key_concurrency_max:,} executing per key")
    rate = row.key_rate
    if rate is not None:
        parts.append(f"at most {rate} starting per key")
    if row.paused:
        parts.append("paused")
    return ", ".join(parts)


def _worker_lines(fleet: Fleet, *, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import worker_lines

    return worker_lines(fleet, wide=wide)


def _queues_and_pauses(store: Store) -> QueuesAndPauses:
    return QueuesAndPauses(FleetQueues.of(store), pauses_in(store))


def _pause_notes(found: QueuesAndPauses, *, store: str | None) -> list[str]:
    return [
        f"workflow {safe(one.name)} is paused. "
        f"To resume it: {command('workflow', 'resume', one.name, store=store)}."
        for one in found.paused
    ]


def _queue_lines(found: QueuesAndPauses, *, store: str | None, wide: bool) -> list[Text]:
    from outlast.cli.fleet_tables import queue_lines

    return queue_lines(
        found.queues.rows,
        found.queues.unknown,
        found.queues.unclaimed,
        found.queues.now,
        store=store,
        wide=wide,
    )
