"""Submit runs, ask something of them and prune them, through the engine of an open app.

A store refuses an action on a run by returning `Refused`. `accepted` turns that into an exception.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from outlast.codec.codecs import encode_message
from outlast.codec.identifiers import check_id, check_name, check_queue_name, new_ids
from outlast.engine import decisions
from outlast.engine import retry as engine_retry
from outlast.engine.sessions import prune_sessions
from outlast.engine.submission import OnConflict, check_joins, check_on_conflict, joins
from outlast.engine.submission_windows import Policy, SubmittedInWindow, window_name
from outlast.errors import LimitExceeded, SettingsError, UnknownRun, WrongStatus
from outlast.errors.sentences import reason_by
from outlast.store.commands import (
    DEPTH,
    STATUS,
    UNKNOWN,
    Prune,
    Refused,
    Resume,
    Send,
    Submit,
    Submitted,
)
from outlast.store.protocol import Store
from outlast.store.rows import RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.definitions import WorkflowCall

_ALLOWED = {
    "be cancelled": "Only runs that have not ended, and dead letters, can be cancelled.",
    "be resumed": "Only parked runs can be resumed.",
    "be retried": "Only failed, cancelled and dead runs, and runs whose compensation is stuck, can "
    "be retried.",
    "receive messages": "Only runs that have not ended can receive messages.",
}
"""Which runs allow an action, for the error about a run that does not."""


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


async def row_of(engine: Engine, id: str) -> RunRow:
    """Return the row of a run. Raise UnknownRun if it does not exist."""
    checked_id(engine, id)
    row = await engine.client.read(engine.store.run, id)
    if row is None:
        raise UnknownRun(id)
    return row


async def submit(
    engine: Engine,
    calls: Sequence[WorkflowCall],
    ids: Iterable[str] | None,
    *,
    queue: str,
    priority: int,
    delay: float,
    wait: float,
    on_conflict: OnConflict,
    keys: Iterable[str | None] | None = None,
    by: str | None = None,
) -> list[tuple[str, Submitted]]:
    """Queue runs in one commit, all or none. Return their ids and outcomes, in order."""
    check_on_conflict(on_conflict)
    by = checked_by(engine, by)
    names = _names(engine, len(calls), ids)
    check_queue_name(queue, engine.settings.name_length_max)
    commands = [
        engine.submissions.for_call(
            call, id, queue=queue, priority=priority, delay=delay, key=key, by=by
        )
        for call, id, key in zip(calls, names, checked_keys(engine, len(calls), keys), strict=True)
    ]
    with engine.services.spans.starting(
        "submit", commands[0].workflow if commands else "nothing"
    ) as link:
        calls_by_token = {
            command.token: call for command, call in zip(commands, calls, strict=True)
        }
        outcomes = await engine.submissions.enqueue(
            commands,
            wait,
            lambda workflow, args, command: joins(
                workflow, args, calls_by_token[command.token], on_conflict
            ),
        )
        link(_seeds(commands, outcomes))
    for call, outcome in zip(calls, outcomes, strict=True):
        if outcome.row is not None:
            check_joins(outcome.row, call, on_conflict)
    return list(zip(names, outcomes, strict=True))


async def submit_in_window(
    engine: Engine,
    call: WorkflowCall,
    policy: Policy,
    *,
    id: str | None,
    key: str | None,
    queue: str,
    priority: int,
    delay: float,
    wait: float,
    by: str | None = None,
    token: str | None = None,
    owner: str | None = None,
) -> SubmittedInWindow:
    """Queue a run in the current window of its id or key. See `window_name` for the `owner`."""
    by = checked_by(engine, by)
    check_queue_name(queue, engine.settings.name_length_max)
    [checked_key] = checked_keys(engine, 1, [key])
    given = None if id is None else checked_id(engine, id)
    name = window_name(call.workflow.name, given, checked_key, owner)
    command = engine.submissions.for_call(
        call, name, queue=queue, priority=priority, delay=delay, key=checked_key, by=by
    )
    with engine.services.spans.starting("submit", command.workflow) as link:
        submitted = await engine.windows.submit(command, policy, wait=wait, token=token)
        link([submitted.seed])
    return submitted


def _names(engine: Engine, count: int, ids: Iterable[str] | None) -> list[str]:
    if ids is None:
        return new_ids(count)
    names = [checked_id(engine, id) for id in ids]
    if len(names) != count:
        raise ValueError(
            f"pass one id for each call: there are {count} calls and {len(names)} ids."
        )
    return names


def checked_keys(engine: Engine, count: int, keys: Iterable[str | None] | None) -> list[str | None]:
    """Return one key for each of `count` runs. Raise BadName or LimitExceeded for a wrong one."""
    if keys is None:
        return [None] * count
    given = list(keys)
    if len(given) != count:
        raise ValueError(f"{count} runs need as many keys, not {len(given)}.")
    length_max = engine.settings.id_length_max
    return [None if key is None else check_id(key, length_max, "key") for key in given]


def _seeds(commands: Iterable[Submit], outcomes: Iterable[Submitted]) -> Iterator[str]:
    """Yield the seeds of the runs that were submitted or existed already."""
    for command, outcome in zip(commands, outcomes, strict=True):
        yield command.seed if outcome.row is None else outcome.row.seed


async def send(
    engine: Engine,
    id: str,
    name: str,
    value: Any,
    message_id: str | None,
    *,
    by: str | None = None,
) -> None:
    """Send a message to a run, with a random message id if none is given."""
    settings = engine.settings
    by = checked_by(engine, by)
    check_name(name, settings.name_length_max, "message name")
    message = check_id(message_id or secrets.token_hex(16), settings.id_length_max, "message id")
    check_id(id, settings.id_length_max, "run id")
    text = encode_message(value)
    limit = min("message_size_max", "value_size_max", key=lambda one: getattr(settings, one))
    size_max = getattr(settings, limit)
    if len(text) > size_max:
        raise LimitExceeded(limit, size_max, len(text), f"message {name!r}")
    allowed = settings.messages_max
    outcome = await engine.writer.execute(Send(id, name, message, text, allowed, by))
    is_refused = isinstance(outcome, Refused) and outcome.why == STATUS
    if is_refused and message_id is not None and await _was_sent(engine, id, name, message):
        # This is a repeat. The message was received, and the run has ended since.
        return
    if isinstance(outcome, Refused) and outcome.why == DEPTH:
        raise LimitExceeded(
            "messages_max", allowed, int(outcome.detail) + 1, f"messages to run {id!r}"
        )
    accepted(id, outcome, "receive messages")


async def _was_sent(engine: Engine, id: str, name: str, message: str) -> bool:
    """Return whether a run was sent this message before."""

    def find(store: Store) -> bool:
        row = store.run(id)
        sent = [] if row is None else store.messages(row.pk)
        return any((one.name, one.id) == (name, message) for one in sent)

    return await engine.client.read(find, engine.store)


async def cancel(engine: Engine, id: str, why: str, *, by: str | None = None) -> str:
    """Ask a run to end and return its status afterwards. The recorded reason names `by`."""
    checked_id(engine, id)
    why = with_caller(engine, why, by)
    status: str = accepted(id, await engine.runs.cancel(id, why), "be cancelled")
    return status


async def retry(
    engine: Engine, id: str, token: str | None = None, *, by: str | None = None
) -> None:
    """Queue a failed, cancelled or dead run again."""
    token, by = checked_token(engine, token), checked_by(engine, by)
    row, length_max = await row_of(engine, id), engine.settings.id_length_max
    outcome = await engine_retry.retry(engine.client, row, token, length_max, by)
    accepted(id, outcome, "be retried")


async def resume(
    engine: Engine, id: str, token: str | None = None, *, by: str | None = None
) -> None:
    """Queue a parked run again."""
    checked_id(engine, id)
    token, by = checked_token(engine, token), checked_by(engine, by)
    accepted(id, await engine.writer.execute(Resume(id, token, by)), "be resumed")


async def decide(
    engine: Engine,
    id: str,
    effect: str,
    token: str | None = None,
    *,
    by: str | None = None,
    limit: Mapping[str, float | Decimal] | None = None,
    **options: Any,
) -> None:
    """Record a decision on an effect, or set the `limit` of a budget that the run waits for.

    `options` are the options of `engine.decisions.decide`.
    """
    token, by = checked_token(engine, token), checked_by(engine, by)
    row = await row_of(engine, id)
    if limit is not None:
        decisions.check_only_limit(**options)
        await engine.budgets.decide(row, effect, limit, by)
        return
    client, settings = engine.client, engine.settings
    await decisions.decide(client, settings, row, effect, **options, token=token, by=by)


def checked_id(engine: Engine, id: str) -> str:
    """Return the id of a run. Raise BadName or LimitExceeded if no run can have it."""
    return check_id(id, engine.settings.id_length_max, "run id")


def checked_token(engine: Engine, token: str | None) -> str:
    """Return the token of an action: the caller's, or a new one."""
    if token is None:
        return secrets.token_hex(8)
    return check_id(token, engine.settings.id_length_max, "token")


def checked_by(engine: Engine, by: str | None) -> str | None:
    """Return who acts, if that can be recorded."""
    return None if by is None else check_name(by, engine.settings.name_length_max, "by")


def with_caller(engine: Engine, why: str, by: str | None) -> str:
    """Return a reason that ends with who gave it, within `error_text_max` characters."""
    text = why.encode(errors="backslashreplace").decode()
    return reason_by(text, checked_by(engine, by), engine.settings.error_text_max)


async def prune_until(
    engine: Engine, seconds: float, *, dead: bool, until: float, batch: int = 500
) -> tuple[int, bool]:
    """Prune until nothing is left or the loop's time is `until`.

    Return how many runs were deleted, and whether more may be left.
    """
    before = engine.store.now() - seconds
    deleted = 0
    while count := await engine.writer.execute(Prune(before, batch, dead=dead)):
        deleted += count
        if engine.loop.time() >= until:
            return deleted, True
    await prune_sessions(engine.store, engine.writer, batch)
    return deleted, False


async def prune(engine: Engine, seconds: float, batch: int, *, dead: bool) -> int:
    """Delete runs that ended longer ago than this, and expired sessions. Return the runs' count."""
    if batch < 1:
        raise SettingsError(f"batch={batch} must be at least 1.")
    before = engine.store.now() - seconds
    deleted = 0
    # A batch smaller than asked for may be all that there was time for. Only 0 means done.
    while count := await engine.writer.execute(Prune(before, batch, dead=dead)):
        deleted += count
    await prune_sessions(engine.store, engine.writer, batch)
    return deleted
