"""`outlast schedules` and `outlast schedule`: list schedules, and act on one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from outlast.cli.help import EPILOG, Command, Group
from outlast.cli.hints import command
from outlast.cli.options import JsonOption, StoreOption, WatchOption, WideOption
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App, caller_options
from outlast.cli.stores import acting, schedules_in
from outlast.cli.text import one_line, safe, span
from outlast.cli.watch import View, print_view
from outlast.engine.documents import schedule_document
from outlast.engine.schedule_rows import ScheduleRow
from outlast.engine.schedule_timing import zone_of
from outlast.errors import SettingsError
from outlast.store.protocol import Store

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


class Schedules(NamedTuple):
    rows: list[ScheduleRow]
    damaged: list[str]
    """What is wrong with each schedule that cannot be read."""
    now: float


def schedules(
    *,
    wide: WideOption = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the schedules: when each fires next, and its last run."""
    with answering(as_json):
        print_view(
            store,
            View(
                _read,
                partial(_lines, wide=wide),
                lambda found: {"schedules": [schedule_document(row) for row in found.rows]},
                "no schedules.",
                notes=lambda found: found.damaged,
            ),
            watch=watch,
            as_json=as_json,
        )


schedule = typer.Typer(
    name="schedule",
    cls=Group,
    help="Pause, resume, trigger, backfill or delete a schedule.",
    epilog=EPILOG,
    no_args_is_help=True,
)


@schedule.command(cls=Command, epilog=EPILOG)
def pause(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Pause a schedule. Times that pass until it is resumed do not fire later."""
    _change(name, lambda app: app.pause_schedule(name, **caller_options(app)), store, as_json)


@schedule.command(cls=Command, epilog=EPILOG)
def resume(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Resume a paused schedule from now on."""
    _change(name, lambda app: app.resume_schedule(name, **caller_options(app)), store, as_json)


@schedule.command(cls=Command, epilog=EPILOG)
def trigger(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Submit a run now, whatever the schedule's times."""
    with answering(as_json):
        id = _do(store, lambda app: app.trigger_schedule(name, **caller_options(app)))
        if as_json:
            document({"run": id})
        else:
            print(safe(id), flush=True)
            print_message(f"To follow the run: {_show(id, store)}.")


@schedule.command(cls=Command, epilog=EPILOG)
def backfill(
    name: NameArgument,
    start: Annotated[
        str, typer.Argument(metavar="START", help="The first time, such as 2026-11-01T00:00.")
    ],
    end: Annotated[str, typer.Argument(metavar="END", help="The time to stop before.")],
    *,
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="The time zone of START and END.")
    ] = "UTC",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit the runs of all times in a range. Existing runs stay as they are."""
    with answering(as_json):
        first, last = _time(start, tz), _time(end, tz)
        ids = _do(
            store, lambda app: app.backfill_schedule(name, first, last, **caller_options(app))
        )
        if as_json:
            document({"runs": ids})
        elif not ids:
            print_message(
                f"schedule {safe(name)} has no times from {safe(start)} until {safe(end)}."
            )
        else:
            runs = "1 run" if len(ids) == 1 else f"{len(ids):,} runs"
            print_message(f"{runs} submitted or already there, {safe(ids[0])} to {safe(ids[-1])}.")


@schedule.command(cls=Command, epilog=EPILOG)
def delete(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Delete a schedule. Its runs stay.

    A schedule in the code of a workflow returns when a worker starts that still has it.
    """
    with answering(as_json):
        _do(store, lambda app: app.delete_schedule(name))
        if as_json:
            document({"deleted": name})
        else:
            print_message(f"deleted schedule {safe(name)}.")


def _change(
    name: str, action: Callable[[App], Awaitable[None]], store: str | None, as_json: bool
) -> None:
    """Change a schedule and report when it fires next."""
    with answering(as_json):

        async def change(app: App, opened: Store) -> ScheduleRow | None:
            await action(app)
            rows, _ = schedules_in(opened)
            return next((row for row in rows if row.name == name), None)

        row = acting(store, change)
        # Another process may have deleted it meanwhile.
        if as_json:
            document({"schedule": None if row is None else schedule_document(row)})
        elif row is not None:
            print_message(_state(row, store))


def _do(store: str | None, action: Callable[[App], Awaitable[T]]) -> T:
    async def act(app: App, _: Store) -> T:
        return await action(app)

    return acting(store, act)


def _state(row: ScheduleRow, store: str | None) -> str:
    due = row.next()
    if due is None:
        again = command("schedule", "resume", row.name, store=store)
        return f"schedule {safe(row.name)} is paused. To resume it: {again}."
    return f"schedule {safe(row.name)} fires next at {_local(row, due)}."


def _show(id: str, store: str | None) -> str:
    return command("show", id, store=store)


def _time(text: str, tz: str) -> datetime:
    """Parse a time. One without an offset is in the zone `tz`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"{one_line(text)!r} is not a time: write 2026-11-01T00:00, or add an offset such "
            "as +01:00."
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=zone_of(tz))


# -- reading and printing


def _read(store: Store) -> Schedules:
    rows, damaged = schedules_in(store)
    return Schedules(rows, [one_line(text) for text in damaged], store.now())


def _lines(found: Schedules, *, wide: bool) -> list[Text]:
    from outlast.cli.grid import Column, table

    columns = (
        Column("SCHEDULE"),
        Column("WORKFLOW"),
        Column("WHEN"),
        Column("ZONE", wide=True),
        Column("NEXT"),
        Column("IN", right=True),
        Column("LAST RUN", least=10),
        Column("QUEUE", wide=True),
        Column("OVERLAP", wide=True),
        Column("WAITING", right=True, wide=True),
        Column("SKIPPED", right=True, wide=True),
    )
    return table(columns, [_cells(row, found.now) for row in found.rows], wide=wide)


def _cells(row: ScheduleRow, now: float) -> list[Any]:
    from outlast.cli.grid import Cell

    definition, state, due = row.definition, row.state, row.next()
    return [
        Cell(safe(row.name)),
        Cell(safe(definition.workflow)),
        Cell(safe(definition.cron or f"every {span(definition.every or 0.0)}")),
        Cell(safe(definition.tz)),
        Cell("paused", "yellow") if due is None else Cell(_local(row, due)),
        Cell("" if due is None else span(max(0.0, due - now))),
        Cell("" if state.last is None else safe(state.last.id)),
        Cell(safe(definition.queue)),
        Cell(definition.overlap.value),
        Cell(str(len(state.waiting))),
        Cell(str(state.skipped)),
    ]


def _local(row: ScheduleRow, at: float) -> str:
    """Return a time in the schedule's zone."""
    try:
        zone = zone_of(row.definition.tz)
    except SettingsError:
        # This machine does not know the zone.
        zone = UTC
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M %Z")
