"""Start, submit, message, cancel, retry, decide and prune runs, through an open app's engine.

A store refuses an action on a run by returning `Refused`. `accepted` turns that into an exception.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from outlast.api.queries import row_of, seconds
from outlast.api.run import Run
from outlast.api.workflow import Call, Workflow
from outlast.codec.codecs import encode_message
from outlast.codec.identifiers import check_id, check_name, check_queue_name, new_ids
from outlast.engine import decisions
from outlast.engine import retry as engine_retry
from outlast.engine.engine import Engine
from outlast.engine.sessions import prune_sessions
from outlast.engine.submission import OnConflict, check_joins, check_on_conflict, joins
from outlast.errors import LimitExceeded, SettingsError, UnknownRun, WrongStatus
from outlast.store.commands import DEPTH, UNKNOWN, Prune, Refused, Resume, Send, Submit, Submitted

R = TypeVar("R")

_ALLOWED = {
    "be cancelled": "Only runs that have not ended, and dead letters, can be cancelled.",
    "be resumed": "Only parked runs can be resumed.",
    "be retried": "Only failed, cancelled and dead runs, and runs whose compensation is stuck, can "
    "be retried.",
    "receive messages": "Only runs that have not ended can receive messages.",
}
"""Which runs allow an action, for the message of a run that does not."""


def accepted(id: str, outcome: Any, action: str) -> Any:
    """Return the store's outcome. Raise UnknownRun or WrongStatus if it refused the action."""
    if isinstance(outcome, Refused):
        if outcome.why == UNKNOWN:
            raise UnknownRun(id)
        if outcome.detail == "item":
            raise WrongStatus(f"{id!r} is an item of a queue, not a run: it cannot {action}.")
        status = "being compensated" if outcome.detail == "undoing" else outcome.detail
        raise WrongStatus(f"run {id!r} is {status}: it cannot {action}. {_ALLOWED[action]}")
    return outcome


async def start(engine: Engine, call: Call[R], id: str | None, on_conflict: OnConflict) -> Run[R]:
    """Execute a run in this process, in the background. See `Outlast.start`."""
    id = new_ids(1)[0] if id is None else _checked(engine, id)
    check_on_conflict(on_conflict)
    await engine.runs.start(call, id, on_conflict=on_conflict)
    return Run(engine, id, call.workflow)


def handle_of(engine: Engine, workflow: Workflow[..., R], id: str) -> Run[R]:
    """Return a handle on a run, whether it exists or not."""
    engine.workflows.register(workflow)
    return Run(engine, _checked(engine, id), workflow)


async def submit(
    engine: Engine,
    calls: Sequence[Call[R]],
    ids: Iterable[str] | None,
    *,
    queue: str,
    priority: int,
    delay: float,
    wait: float,
    on_conflict: OnConflict,
) -> list[Run[R]]:
    """Queue runs in one commit, all or none, and return them in order."""
    check_on_conflict(on_conflict)
    names = _names(engine, len(calls), ids)
    check_queue_name(queue, engine.settings.name_length_max)
    commands = [
        engine.submissions.for_call(call, id, queue=queue, priority=priority, delay=delay)
        for call, id in zip(calls, names, strict=True)
    ]
    with engine.services.spans.starting(
        "submit", commands[0].workflow if commands else "nothing"
    ) as link:
        of = {command.token: call for command, call in zip(commands, calls, strict=True)}
        outcomes = await engine.submissions.enqueue(
            commands,
            wait,
            lambda workflow, args, command: joins(workflow, args, of[command.token], on_conflict),
        )
        link(_seeds(commands, outcomes))
    for call, outcome in zip(calls, outcomes, strict=True):
        if outcome.row is not None:
            check_joins(outcome.row, call, on_conflict)
    return [Run(engine, id, call.workflow) for call, id in zip(calls, names, strict=True)]


def _names(engine: Engine, count: int, ids: Iterable[str] | None) -> list[str]:
    if ids is None:
        return new_ids(count)
    names = [_checked(engine, id) for id in ids]
    if len(names) != count:
        raise ValueError(f"{count} calls need as many ids, not {len(names)}.")
    return names


def _seeds(commands: Iterable[Submit], outcomes: Iterable[Submitted]) -> Iterator[str]:
    """Yield the seeds of the runs that were submitted or existed already."""
    for command, outcome in zip(commands, outcomes, strict=True):
        yield command.seed if outcome.row is None else outcome.row.seed


async def send(engine: Engine, id: str, name: str, value: Any, message_id: str | None) -> None:
    """Send a message to a run, with a random message id if none is given."""
    settings = engine.settings
    check_name(name, settings.name_length_max, "message name")
    message = check_id(message_id or uuid4().hex, settings.id_length_max, "message id")
    _checked(engine, id)
    text = encode_message(value)
    limit = min("message_size_max", "value_size_max", key=lambda one: getattr(settings, one))
    size_max = getattr(settings, limit)
    if len(text) > size_max:
        raise LimitExceeded(limit, size_max, len(text), f"message {name!r}")
    allowed = settings.messages_max
    outcome = await engine.writer.execute(Send(id, name, message, text, allowed))
    if isinstance(outcome, Refused) and outcome.why == DEPTH:
        raise LimitExceeded(
            "messages_max", allowed, int(outcome.detail) + 1, f"messages to run {id!r}"
        )
    accepted(id, outcome, "receive messages")


async def cancel(engine: Engine, id: str, why: str) -> str:
    """Ask a run to end and return its status afterwards."""
    _checked(engine, id)
    why = why.encode(errors="backslashreplace").decode()[: engine.settings.error_text_max]
    status: str = accepted(id, await engine.runs.cancel(id, why), "be cancelled")
    return status


async def retry(engine: Engine, id: str, token: str | None) -> None:
    """Queue a failed, cancelled or dead run again, from the step that ended it."""
    token = _checked_token(engine, token)
    row = await row_of(engine, id)
    outcome = await engine_retry.retry(engine.client, row, token, engine.settings.id_length_max)
    accepted(id, outcome, "be retried")


async def resume(engine: Engine, id: str, token: str | None) -> None:
    """Queue a parked run again."""
    _checked(engine, id)
    outcome = await engine.writer.execute(Resume(id, _checked_token(engine, token)))
    accepted(id, outcome, "be resumed")


async def decide(
    engine: Engine, id: str, effect: str, *, token: str | None, **decision: Any
) -> None:
    """Decide an effect whose outcome is unknown. See `decisions.decide`."""
    row, token = await row_of(engine, id), _checked_token(engine, token)
    await decisions.decide(engine.client, engine.settings, row, effect, token=token, **decision)


async def prune(engine: Engine, older_than: timedelta | float, batch: int, *, dead: bool) -> int:
    """Delete runs that ended longer ago than this, and expired sessions. Return the runs' count."""
    if batch < 1:
        raise SettingsError(f"batch={batch} must be at least 1.")
    before = engine.store.now() - seconds(older_than)
    deleted = 0
    # A batch smaller than asked for may be all that there was time for. Only 0 means done.
    while count := await engine.writer.execute(Prune(before, batch, dead=dead)):
        deleted += count
    await prune_sessions(engine.store, engine.writer, batch)
    return deleted


def _checked(engine: Engine, id: str) -> str:
    return check_id(id, engine.settings.id_length_max, "run id")


def _checked_token(engine: Engine, token: str | None) -> str:
    """Return the token of an action: the caller's, or a new one."""
    if token is None:
        return secrets.token_hex(8)
    return check_id(token, engine.settings.id_length_max, "token")
