"""Define the options that several commands share."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from outlast.cli.text import parse_age, safe
from outlast.codec.identifiers import check_id


def _age(text: str) -> float:
    try:
        return parse_age(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _seconds(text: str) -> float:
    """Parse a number of seconds, or an age."""
    try:
        seconds = float(text)
    except ValueError:
        return _age(text)
    if math.isnan(seconds) or seconds < 0:
        raise typer.BadParameter(f"{safe(text)!r} is no length of time: write 30, 30s, 5m or 2h.")
    return seconds


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{safe(text)!r} is not valid text.") from None
    return text


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="The store. By default OUTLAST_STORE, DATABASE_URL, REDIS_URL, …; "
        "else sqlite:///outlast.db.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, for programs.")
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", help="Look again every second, until Ctrl-C; with --json one document a line."
    ),
]
RunIdOption = Annotated[
    str | None,
    typer.Option("--id", help="The run's id, its idempotency key. Made up unless given."),
]
KwargsOption = Annotated[
    str | None, typer.Option("--kwargs", metavar="JSON", help="Arguments by name, a JSON object.")
]
TargetArgument = Annotated[
    str,
    typer.Argument(metavar="FILE:WORKFLOW", help="agent.py:report, or a module: pkg.mod:report."),
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARG", help="JSON each, or plain text. After -- if one begins with a dash."
    ),
]
DelayOption = Annotated[
    float,
    typer.Option(
        "--delay", parser=_seconds, metavar="SECONDS", help="Not before so long: 30, 30s, 5m, 2h."
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        parser=_seconds,
        metavar="SECONDS",
        help="Wait this long for room in a full queue; inf: forever.",
    ),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The run's id.")]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID", help="The run's id, or those of several.")
]
WhyOption = Annotated[
    str,
    typer.Option("--why", parser=_storable, metavar="TEXT", help="The reason, as the run sees it."),
]
DrainWhyOption = Annotated[
    str,
    typer.Option("--why", parser=_storable, metavar="TEXT", help="The reason, as steps see it."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=_seconds,
        metavar="SECONDS",
        help="With --wait: stop waiting after this long.",
    ),
]
OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than", parser=_age, metavar="AGE", help="Created longer ago than 30s, 5m, 2h, 7d."
    ),
]
NewerThan = Annotated[
    float | None,
    typer.Option(
        "--newer-than", parser=_age, metavar="AGE", help="Created less long ago than this."
    ),
]
RolloutBudget = Annotated[
    float | None,
    typer.Option(
        "--rollout-budget",
        parser=_seconds,
        metavar="SECONDS",
        help="With --manifest: warn about a roll-out that may take longer than 1800, 30m, 2h. By "
        "default an hour.",
    ),
]
EndedBefore = Annotated[
    float,
    typer.Option(
        "--older-than", parser=_age, metavar="AGE", help="Ended longer ago than 30s, 5m, 2h, 7d."
    ),
]

ID_LENGTH_MAX = 10_000


def checked_id(id: str) -> str:
    """Return the id if a store can be asked for it, and raise BadName otherwise.

    Only the process that submits a run limits the length of its id, so this limit is generous.
    """
    return check_id(id, ID_LENGTH_MAX, "run id")
