"""`outlast cancel`, `retry`, `resume`, `send`, `prune`: commands that change runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import uuid4

import typer

from outlast.api.outlast import Outlast
from outlast.cli.bulk import Acted, Deed, do_to
from outlast.cli.documents import run_document
from outlast.cli.hints import becomes, command, noun, taken_up, waits_for_a_person
from outlast.cli.options import (
    EndedBefore,
    IdArgument,
    IdsArgument,
    JsonOption,
    StoreOption,
    WhyOption,
    checked_id,
)
from outlast.cli.output import answering, document, say
from outlast.cli.stores import acting, patiently, reading
from outlast.cli.text import one_line, parse_json
from outlast.errors import UnknownRun, WrongStatus
from outlast.errors.sentences import stopped
from outlast.store.commands import SESSION_MEMORY, Prune
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.store.tolerant_rows import DAMAGE


def cancel(
    ids: IdsArgument,
    why: WhyOption = "cancelled by its user",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel runs: no new step starts, and their effects are compensated.

    Each run gets the reason, and its `finally` blocks execute. A run that cannot be replayed
    because its code changed ends too: its effects are compensated from its journal. A dead letter,
    an item, and a run that never started or is parked are cancelled at once, or once their
    compensations are done. A run that is already being compensated ends by itself.
    """

    async def act(app: Outlast, opened: Store, id: str) -> RunRow:
        try:
            await app.cancel(id, why)
        except WrongStatus:
            _refuse_undoing(_row(opened, id), store)
            raise
        return _row(opened, id)

    def told(acted: Acted) -> dict[str, Any]:
        return {"run": run_document(acted.row), "held": _is_held(acted)}

    do_to(ids, Deed(act, told, lambda acted: _cancelled(acted, store)), store, as_json)


def retry(ids: IdsArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Queue failed, cancelled or dead runs again, or dead items.

    A run continues from the step that ended it, or from the first compensated effect. If a
    compensation is stuck, it is tried again. A child run is retried by its parent: retrying it
    alone is refused once the parent has ended, is being compensated, or has recorded the child's
    end.
    """

    async def act(app: Outlast, opened: Store, id: str) -> RunRow:
        try:
            await app.retry(id)
        except WrongStatus:
            _refuse_parked(_row(opened, id), store)
            raise
        return _row(opened, id)

    _queue_again(ids, act, store, as_json)


def resume(ids: IdsArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Queue parked runs again, after their cause has been fixed."""

    async def act(app: Outlast, opened: Store, id: str) -> RunRow:
        await app.resume(id)
        return _row(opened, id)

    _queue_again(ids, act, store, as_json)


def send(
    id: IdArgument,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The message's name, as the run receives it.")
    ],
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Its value; null unless given.")
    ] = None,
    *,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--message-id",
            metavar="ID",
            help="The same id again is harmless. Made up unless given.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message to a run. It is durable when this command returns."""
    try:
        parsed = parse_json(value) if value is not None else None
    except (ValueError, RecursionError) as error:
        hint = f"{one_line(str(error))}. A text is quoted twice: '\"yes\"'."
        raise typer.BadParameter(f"it is not JSON: {hint}", param_hint="JSON") from None
    message = uuid4().hex if message_id is None else message_id

    async def action(app: Outlast, _: Store) -> None:
        await app.send(id, name, parsed, message_id=message)

    with answering(as_json):
        checked_id(id)
        acting(store, action)
        if as_json:
            document({"id": id, "name": name, "message_id": message})
        else:
            say(f"sent {name} to run {id} (message {message}).")


def prune(
    older_than: EndedBefore,
    *,
    dead: Annotated[
        bool,
        typer.Option(
            "--dead", help="Dead letters too. What they have done outside is then never undone."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete runs that ended longer ago than this, and expired sessions.

    Journals and messages go with their runs. Dead letters stay: `outlast cancel` compensates them,
    `outlast retry` tries again, and `--dead` deletes them.
    """

    with answering(as_json):
        # An app would register a worker first. A full server has no room for one, and prune is what
        # makes room.
        with reading(store, patient=True) as opened:
            before = opened.now() - older_than
            deleted = _pruned(opened, Prune(before, dead=dead))
            _pruned(opened, Prune(opened.now() - SESSION_MEMORY, sessions=True))
            kept = _dead_letters(opened, before)
        if as_json:
            document({"deleted": deleted, "dead_kept": kept})
        else:
            say(f"deleted {deleted} run{'' if deleted == 1 else 's'}.")
            if kept:
                say(_kept(kept, store, forgetting=dead))


def _cancelled(acted: Acted, store: str | None) -> str:
    row, fleet = acted
    if row.ended is not None:
        return f"{noun(row)} {row.id} is {row.status}."
    if row.undoing is not None:
        then = taken_up(row, fleet, store, to="have it undone")
        return (
            f"run {row.id} has effects: it is being undone, and ends as {stopped(becomes(row))} "
            f"{then}"
        )
    if _is_held(acted):
        return f"{noun(row)} {row.id} was asked to end; the process that executes it ends it."
    then = taken_up(row, fleet, store, to="end it")
    return f"{noun(row)} {row.id} was asked to end. It had started and no process holds it. {then}"


def _is_held(acted: Acted) -> bool:
    return acted.row.worker is not None and acted.row.worker not in acted.fleet.dead


def _queue_again(
    ids: list[str],
    act: Callable[[Outlast, Store, str], Awaitable[RunRow]],
    store: str | None,
    as_json: bool,
) -> None:
    def sentence(acted: Acted) -> str:
        row, fleet = acted
        undoing = (
            f", and is being undone, to end as {becomes(row)}" if row.undoing is not None else ""
        )
        return (
            f"{stopped(f'{noun(row)} {row.id} is queued again{undoing}')} "
            f"{taken_up(row, fleet, store)}"
        )

    do_to(ids, Deed(act, lambda acted: {"run": run_document(acted.row)}, sentence), store, as_json)


def _refuse_undoing(row: RunRow, store: str | None) -> None:
    if row.undoing is None:
        return
    stuck = (
        f" It is stuck: {command('retry', row.id, store=store)}." if row.status == "parked" else ""
    )
    raise WrongStatus(
        f"run {row.id!r} is being undone already, to end as {stopped(becomes(row))} "
        f"{command('show', row.id, store=store)} shows how far it is.{stuck}"
    )


def _refuse_parked(row: RunRow, store: str | None) -> None:
    if row.status != "parked":
        return
    decide = (
        f" What is to be decided: {command('show', row.id, store=store)}."
        if waits_for_a_person(row)
        else ""
    )
    raise WrongStatus(
        f"run {row.id!r} is parked, and has not ended: it is not retried but goes on, by "
        f"{command('resume', row.id, store=store)}.{decide}"
    )


def _pruned(store: Store, command: Prune) -> int:
    """Prune in batches until nothing is left, and return how many rows were deleted."""
    deleted = 0
    count = 1
    while count:
        (count,) = patiently(store, lambda: store.commit([command]))
        deleted += count
    return deleted


def _dead_letters(store: Store, before: float) -> int | None:
    """Return how many dead letters ended before this time, or None if a damaged row hides it."""
    query = RunQuery(statuses=("dead",), limit=1_000)
    count = 0
    try:
        while rows := store.runs(query):
            count += sum(row.ended is not None and row.ended < before for row in rows)
            query = query._replace(before_pk=rows[-1].pk)
    except DAMAGE:
        return None
    return count


def _kept(count: int, store: str | None, *, forgetting: bool) -> str:
    letters = f"{count} dead letter{'' if count == 1 else 's'}"
    there = f"kept {letters} as old as that: {command('runs', '--status', 'dead', store=store)}."
    if forgetting:
        return (
            f"{there} What they did is not undone yet: {command('retry', 'ID', store=store)} "
            "goes on with that."
        )
    cancel = command("cancel", "ID", store=store)
    retry = command("retry", "ID", store=store)
    return f"{there} {cancel} undoes what one did, {retry} tries again, and --dead forgets them."


def _row(store: Store, id: str) -> RunRow:
    row = store.run(id)
    if row is None:
        raise UnknownRun(id)
    return row
