"""Submit runs and act on them, each action with the key that makes its repeats harmless."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import uuid4

from outlast.api.run_filters import age_seconds
from outlast.api.workflow import Call, Workflow
from outlast.client.calls import NamedCall, call_body, codec_of
from outlast.client.rows import Document, pause_of
from outlast.client.run import Run, run_path
from outlast.client.transport import Transport, segment
from outlast.codec import plain_json
from outlast.codec.identifiers import check_name, new_ids
from outlast.codec.signature import NOT_GIVEN
from outlast.engine.bulk import EXAMPLES_MAX, BulkReport
from outlast.errors import SettingsError
from outlast.store.pauses import PausedWorkflow

R = TypeVar("R")
NAME_LENGTH_MAX = 10_000


def key_of(token: str | None) -> str:
    """Return the token of an action: the caller's, or a new one."""
    return secrets.token_hex(8) if token is None else token


def key_fields(count: int, keys: Iterable[str | None] | None) -> list[dict[str, str]]:
    """Return the body field with the key of each of `count` runs, empty for a run without a key."""
    given = [None] * count if keys is None else list(keys)
    if len(given) != count:
        raise ValueError(f"{count} runs need as many keys, not {len(given)}.")
    return [{} if key is None else {"key": key} for key in given]


async def submit(
    transport: Transport,
    calls: Sequence[Call[R] | NamedCall[R]],
    ids: Iterable[str] | None,
    *,
    wait: float,
    keys: Iterable[str | None] | None,
    **options: Any,
) -> list[Run[R]]:
    """Queue runs in one commit, all or none, and return them in order."""
    names = new_ids(len(calls)) if ids is None else list(ids)
    if len(names) != len(calls):
        raise ValueError(
            f"pass one id for each call: there are {len(calls)} calls and {len(names)} ids."
        )
    if not calls:
        return []
    several = [
        {**call_body(call), "id": id, **key}
        for call, id, key in zip(calls, names, key_fields(len(calls), keys), strict=True)
    ]

    async def request(part: float) -> None:
        how = {**options, "wait": part}
        if len(several) == 1:
            await transport.act("POST", "/v1/runs", {**several[0], **how}, wait=part)
        else:
            await transport.act("POST", "/v1/submissions", {"runs": several, **how}, wait=part)

    await transport.wait_for_slot(wait, request)
    return [Run(transport, id, codec_of(call)) for call, id in zip(calls, names, strict=True)]


async def submit_in_window(
    transport: Transport,
    call: Call[R] | NamedCall[R],
    *,
    id: str | None,
    key: str | None,
    wait: float,
    **options: Any,
) -> Run[R]:
    """Queue a run in the current window of its id or key, and return the run."""
    given = {"id": id, "key": key, **options}
    body = {**call_body(call), **{name: one for name, one in given.items() if one is not None}}
    token = secrets.token_hex(16)

    async def request(part: float) -> str:
        answer = await transport.act(
            "POST", "/v1/runs", {**body, "wait": part}, key=token, wait=part
        )
        return str(answer["run"]["id"])

    return Run(transport, await transport.wait_for_slot(wait, request), codec_of(call))


async def send(
    transport: Transport, id: str, name: str, value: Any, message_id: str | None
) -> None:
    """Send a message to a run, with a random message id if none is given."""
    plain_json.check(value)
    body = {"name": name, "value": value, "id": message_id or uuid4().hex}
    await transport.act("POST", run_path(id, "messages"), body)


async def decide(
    transport: Transport,
    id: str,
    effect: str,
    token: str | None,
    *,
    happened: Any,
    did_not: bool,
    compensate: bool,
    result: Any,
    intent: int | None,
    limit: Mapping[str, float | Decimal] | None,
) -> None:
    """Record a decision on an effect, or set the limit of a budget."""
    ways = (happened is not NOT_GIVEN) + bool(did_not) + bool(compensate) + (limit is not None)
    if ways != 1:
        raise SettingsError(
            "pass one of: happened=RESULT, did_not=True, compensate=True, or limit= for a budget."
        )
    body: dict[str, Any] = {"effect": effect, "intent": intent}
    if limit is not None:
        body["limit"] = numbers(limit)
    elif compensate:
        plain_json.check(result)
        body |= {"compensate": True, "result": result}
    elif did_not:
        body["did_not"] = True
    else:
        plain_json.check(happened)
        body["happened"] = happened
    await transport.act("POST", run_path(id, "decide"), body, key=key_of(token))


def numbers(limits: Mapping[str, float | Decimal]) -> dict[str, float]:
    """Return limits as JSON can carry them."""
    return {
        name: float(amount) if isinstance(amount, Decimal) else amount
        for name, amount in limits.items()
    }


async def prune(transport: Transport, older_than: timedelta | float, *, dead: bool) -> int:
    """Delete runs that ended longer ago than this. Return how many."""
    body = {"older_than": age_seconds(older_than), "dead": dead}
    deleted = 0
    while True:
        answer = await transport.act("POST", "/v1/prune", body)
        deleted += int(answer["deleted"])
        if not answer["more"]:
            return deleted


async def set_workflow_paused(
    transport: Transport, workflow: Workflow[..., Any] | str, *, paused: bool
) -> None:
    """Pause or resume a workflow."""
    name = workflow if isinstance(workflow, str) else workflow.name
    check_name(name, NAME_LENGTH_MAX, "workflow name")
    action = "pause" if paused else "resume"
    await transport.act("POST", f"/v1/workflows/{segment(name)}/{action}")


async def paused_workflows(transport: Transport) -> list[PausedWorkflow]:
    """Return the paused workflows, ordered by name."""
    found = await transport.get("/v1/paused-workflows")
    return [pause_of(one) for one in found["workflows"]]


async def bulk(
    transport: Transport,
    action: str,
    conditions: Document,
    *,
    limit: int | None,
    why: str,
    dry_run: bool,
    token: str | None,
) -> BulkReport:
    """Act on all runs that match, in as many requests as it takes."""
    key, cursor = key_of(token), None
    matched = done = skipped = 0
    examples: list[str] = []
    problems: list[tuple[str, str]] = []
    while True:
        body = {
            **conditions,
            "action": action,
            "limit": None if limit is None else limit - matched,
            "why": why,
            "dry_run": dry_run,
            "cursor": cursor,
        }
        answer = await transport.act(
            "POST", "/v1/bulk", body, key=key, repeats=limit is None or dry_run
        )
        matched += answer["matched"]
        done += answer["done"]
        skipped += answer["skipped"]
        examples += answer["examples"]
        problems += [(one["id"], one["message"]) for one in answer["problems"]]
        cursor = answer["next"]
        if cursor is None or matched == limit:
            return BulkReport(
                action,
                dry_run,
                matched,
                done,
                skipped,
                tuple(examples[:EXAMPLES_MAX]),
                tuple(problems[:EXAMPLES_MAX]),
                cursor,
            )
