"""`outlast decide`: record a person's decision on what a parked run waits for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from outlast.cli.hints import becomes, command, short_reason, taken_up
from outlast.cli.options import IdArgument, JsonOption, StoreOption, checked_id
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App, caller_options
from outlast.cli.stores import acting, fleet_in
from outlast.cli.text import one_line, parse_json
from outlast.engine.documents import run_document
from outlast.errors import OutlastError, UnknownRun, WrongStatus
from outlast.errors.sentences import stopped
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import RunRow


def decide(
    id: IdArgument,
    effect: Annotated[
        str,
        typer.Argument(
            metavar="EFFECT",
            help="Its key, as `outlast show` prints it, or its name if only one waits. For a "
            "budget: budget:NAME.",
        ),
    ],
    *,
    happened: Annotated[
        str | None,
        typer.Option(
            "--happened",
            metavar="RESULT",
            help="It happened, with this result: JSON, as the effect returns it.",
        ),
    ] = None,
    did_not: Annotated[
        bool, typer.Option("--did-not", help="It did not happen: do it again.")
    ] = False,
    compensate: Annotated[
        bool,
        typer.Option(
            "--compensate", help="Compensate it as if it had happened, and the run with it."
        ),
    ] = False,
    result: Annotated[
        str | None,
        typer.Option(
            "--result",
            metavar="JSON",
            help="With --compensate: the result to compensate. By default null.",
        ),
    ] = None,
    intent: Annotated[
        int | None,
        typer.Option(
            "--intent",
            metavar="N",
            help="The number of the intent, as `outlast show` prints it. Required if the "
            "effect was tried again since the last decision.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=AMOUNT",
            help="For a budget: its new limit. All runs that wait for the budget continue. "
            "May be given several times.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide the unknown outcome of an effect, or raise a budget. The run then continues.

    Give one of --happened, --did-not, --compensate and --limit.
    """
    decision = _decision(happened, did_not, compensate, result, limit)

    async def action(app: App, opened: Store) -> tuple[RunRow, Fleet]:
        try:
            await app.decide(id, effect, intent=intent, **caller_options(app), **decision)
        except OutlastError as refused:
            # The effect has no compensation, or is being compensated already.
            if compensate and type(refused) is OutlastError:
                raise WrongStatus(str(refused)) from None
            raise
        row = opened.run(id)
        if row is None:
            raise UnknownRun(id)
        return row, fleet_in(opened)

    with answering(as_json):
        checked_id(id)
        row, fleet = acting(store, action)
        if as_json:
            document({"run": run_document(row), "effect": effect})
            return
        then = ""
        if row.undoing is not None:
            end = stopped(becomes(row))
            then = f" Its effects are being compensated, and it will end as {end}"
        if limit and row.status != "queued":
            why = f": {short_reason(row)}" if row.status == "parked" else ""
            print_message(f"the budget is raised. Run {id} is {row.status}{why}.")
            return
        print_message(f"run {id} is queued again.{then} {taken_up(row, fleet, store)}")


def _decision(
    happened: str | None,
    did_not: bool,
    compensate: bool,
    result: str | None,
    limit: list[str] | None,
) -> dict[str, Any]:
    """Return the arguments of `app.decide`. Raise a usage error unless exactly one way is given."""
    ways = "one of --happened RESULT, --did-not, --compensate and --limit NAME=AMOUNT"
    if (happened is not None) + did_not + compensate + bool(limit) != 1:
        raise typer.BadParameter(
            f"pass {ways}. {command('show', 'ID', store=None)} lists the effects to decide.",
            param_hint="the decision",
        )
    if result is not None and not compensate:
        raise typer.BadParameter(
            "it requires --compensate. If the effect happened, pass its result as "
            "--happened RESULT.",
            param_hint="--result",
        )
    if limit:
        return {"limit": dict(_amount(one) for one in limit)}
    if happened is not None:
        return {"happened": _parsed(happened, "--happened")}
    if compensate:
        return {
            "compensate": True,
            "result": None if result is None else _parsed(result, "--result"),
        }
    return {"did_not": True}


def _amount(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError:
        hint = f"{one_line(text)} is not a limit: write NAME=AMOUNT, such as usd=10."
        raise typer.BadParameter(hint, param_hint="--limit") from None


def _parsed(text: str, option: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        hint = f"{one_line(str(error))}. Quote a string twice: '\"ref-17\"'. For no result: null."
        raise typer.BadParameter(f"it is not JSON: {hint}", param_hint=option) from None
