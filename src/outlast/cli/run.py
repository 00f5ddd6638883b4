"""`outlast run`: execute a workflow from a file, in this process."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, NoReturn

import typer

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.run_once import or_exit
from outlast.api.workflow import Call, Workflow
from outlast.cli.exit_codes import INTERRUPTED, OF_STATUS, OK, TRY_AGAIN
from outlast.cli.hints import command, short_reason, waits_for_a_person
from outlast.cli.options import (
    ArgsArgument,
    JsonOption,
    KwargsOption,
    RunIdOption,
    StoreOnlyOption,
    TargetArgument,
)
from outlast.cli.output import answering, document, print_message, where_explained
from outlast.cli.stores import is_missing, store_of
from outlast.cli.target import call_of, load, recorded_call
from outlast.cli.text import moment, recorded_error, short, span
from outlast.codec.documents import value_of
from outlast.codec.identifiers import check_id, new_ids
from outlast.engine.documents import outcome_document, waits_of
from outlast.engine.inspection import explained
from outlast.errors import Conflict, OutlastError, StoreUnavailable, UnknownRun
from outlast.errors.sentences import stopped
from outlast.settings import Settings
from outlast.shutdown.process import ProcessRole
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, NEVER, RunRow


@dataclass
class Order:
    """Hold what the command line asks for."""

    target: str
    args: tuple[str, ...]
    kwargs: str | None
    id: str
    store: str | None
    is_recorded: bool = False

    def again(self) -> str:
        """Return the command that continues this run once its arguments are in the store."""
        return command("run", self.target, "--id", self.id, store=self.store)

    def to_continue(self) -> str:
        """Return how to continue, in words: only the user has arguments not yet recorded."""
        if self.is_recorded or not (self.args or self.kwargs):
            return self.again()
        return f"the same command again, with --id {shlex.quote(self.id)}."


def run(
    target: TargetArgument,
    args: ArgsArgument = None,
    *,
    id: RunIdOption = None,
    kwargs: KwargsOption = None,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Execute a workflow here, or continue the run with that --id.

    The result is printed as JSON on stdout; what the program itself prints goes to stderr. A run
    that has ended gives its recorded result. With the id of an existing run and no arguments, the
    recorded arguments are used.
    """
    with answering(as_json):
        settings = Settings.load({"store": store})
        chosen = new_ids(1)[0] if id is None else check_id(id, settings.id_length_max, "run id")
        order = Order(target, tuple(args or ()), kwargs, chosen, store)
        opened = store_of(store)
        with redirect_stdout(sys.stderr):
            workflow = load(target)
            if args or kwargs is not None or id is None or is_missing(opened):
                # A wrong command line must not create a store.
                call_of(workflow, order.args, kwargs)
            if id is None:
                print_message(f"run {chosen}. If it is interrupted: {order.again()}")
            row = _execute(workflow, order, opened)
        if isinstance(row, int):
            _interrupted(row, order, as_json)
        _report(row, order, as_json)


def _interrupted(code: int, order: Order, as_json: bool) -> NoReturn:
    how = "interrupted" if code == INTERRUPTED else "terminated"
    print_message(f"{how}. To continue: {order.to_continue()}")
    if as_json:
        document(
            {
                "id": order.id,
                "status": "interrupted",
                "exit": code,
                "again": order.again().strip("`"),
            }
        )
    raise typer.Exit(code)


def _execute(workflow: Workflow[..., Any], order: Order, store: Store) -> RunRow | int:
    """Return the row of the ended run, or exit code 75 or 130 if the run was interrupted."""
    try:
        return asyncio.run(_execution(workflow, order, store))
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        if end.code not in (INTERRUPTED, TRY_AGAIN):
            raise
        return int(end.code)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{error} To continue: {order.to_continue()}") from None


async def _execution(workflow: Workflow[..., Any], order: Order, store: Store) -> RunRow:
    app = Outlast(store)
    internals(app).set_process(ProcessRole.COMMAND)
    async with app:
        return await or_exit(app, _until_ended(app, store, workflow, order))


async def _until_ended(
    app: Outlast, store: Store, workflow: Workflow[..., Any], order: Order
) -> RunRow:
    before = store.run(order.id)
    await app.start(_call(workflow, order, before), id=order.id)
    order.is_recorded = True
    if (
        before is not None
        and before.worker is not None
        and before.worker not in store.dead_workers()
    ):
        print_message(f"run {order.id} is executing in another process. Waiting for it to end.")
    elif before is not None and (why := _not_due(before, store.now())) is not None:
        print_message(
            f"run {order.id} {why}. Waiting for it. Press Ctrl-C to stop waiting; "
            f"{command('show', order.id, store=order.store)} shows its state."
        )
    failure: BaseException = UnknownRun(order.id)
    try:
        await app.result(order.id)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The workflow itself raised CancelledError.
        failure = error
    except Exception as error:
        failure = error
    # A failed run raises its workflow's exception, which may be of any type. Only the status tells
    # how the run ended.
    row = store.run(order.id)
    if row is not None and (row.status in ENDED or row.status == "parked"):
        return row
    if row is not None and not isinstance(failure, OutlastError):
        raise StoreUnavailable(f"run {order.id} was interrupted ({row.reason or failure}).")
    raise failure


def _not_due(row: RunRow, now: float) -> str | None:
    """Return what an unheld run waits for, or None if it can be executed at once."""
    if row.worker is not None or row.due <= now or row.status not in ("queued", "waiting"):
        return None
    if row.due < NEVER:
        what = "is delayed" if row.status == "queued" else "is waiting"
        return f"{what} until {moment(row.due)}, for another {span(row.due - now)}"
    names = ", ".join(waits_of(row))
    return f"is waiting for a message ({names})" if names else "is waiting for another run"


def _call(workflow: Workflow[..., Any], order: Order, before: RunRow | None) -> Call[Any]:
    if before is None or order.args or order.kwargs is not None:
        return call_of(workflow, order.args, order.kwargs)
    if before.workflow != workflow.name:
        raise Conflict(order.id, f"{before.workflow}({before.args})"[:500], workflow.name)
    try:
        return recorded_call(workflow, before.args)
    except (OutlastError, TypeError) as error:
        print_message(f"the recorded arguments no longer fit {workflow.name}: {error}")
        return call_of(workflow, order.args, order.kwargs)


def _report(row: RunRow, order: Order, as_json: bool) -> None:
    code = OF_STATUS[row.status]
    if as_json:
        document(outcome_document(row))
    elif code == OK:
        document(value_of(row.value), indent=None)
    if code != OK:
        print_message(_how_it_ended(row, order.store))
        if (name := explained(row)) is not None:
            print_message(where_explained(name))
        raise typer.Exit(code)


def _how_it_ended(row: RunRow, store: str | None) -> str:
    def hint(name: str) -> str:
        return command(name, row.id, store=store)

    if waits_for_a_person(row):
        return (
            f"run {row.id} is parked: {stopped(short(short_reason(row), 2_000))} What to "
            f"decide, and how: {hint('show')}."
        )
    reason = f": {short(row.reason, 2_000).rstrip('. ')}" if row.reason else ""
    again = "then the same command again"
    if row.status == "parked":
        return (
            f"run {row.id} is parked{reason}. See {hint('show')}. To continue: {hint('resume')}, "
            f"{again}."
        )
    if row.status == "cancelled":
        return f"run {row.id} was cancelled{reason}. To run it anyway: {hint('retry')}, {again}."
    if row.status == "dead":
        return (
            f"run {row.id} is a dead letter{reason}. See {hint('show')}. After fixing the cause: "
            f"{hint('retry')}, {again}."
        )
    error = recorded_error(row.error, 2_000) if row.error else "no reason was recorded"
    return (
        f"run {row.id} failed: {stopped(error)} See {hint('show')}. After fixing the cause: "
        f"{hint('retry')}, {again}."
    )
