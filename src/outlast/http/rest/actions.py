"""Serve the actions on one run: message, cancel, retry, resume, decide."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from fastapi import Header, Query
from starlette.responses import Response

from outlast.codec.signature import NOT_GIVEN
from outlast.engine import actions
from outlast.engine.documents import run_document, undoing_document
from outlast.errors import WrongStatus
from outlast.http.rest.answers import MessageAnswer, RunAnswer
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.problems import invalid
from outlast.http.rest.requests import (
    CancelRequest,
    Decision,
    NewMessage,
    Nothing,
    Segment,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.rows import RunRow

routes = Routes("actions")

Key = Annotated[str | None, Header(alias="Idempotency-Key")]
NoQuery = Annotated[Nothing, Query()]


@routes.add(
    "POST",
    "/v1/runs/{id}/messages",
    Access.ACT_ON_OWN,
    MessageAnswer,
    status=201,
    problems=(404, 409, 413),
)
async def send_message(
    id: Segment,
    call: Call,
    body: NewMessage,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Send a message to a run. A message with the same name and id is sent once."""
    await call.row(id)
    message = body.id or key_of(key) or uuid4().hex
    await actions.send(call.engine, id, body.name, body.value, message, by=call.by)
    return answer({"id": id, "name": body.name, "message_id": message}, 201)


@routes.add("POST", "/v1/runs/{id}/cancel", Access.ACT_ON_OWN, RunAnswer, problems=(404, 409))
async def cancel_run(
    id: Segment,
    call: Call,
    query: NoQuery,
    body: CancelRequest | None = None,
) -> Response:
    """Ask a run to end. Repeating it is harmless."""
    await call.row(id)
    try:
        await actions.cancel(call.engine, id, (body or CancelRequest()).why, by=call.by)
    except WrongStatus:
        if not _is_cancelled(await call.row(id)):
            raise
    return await _run_now(call, id)


def _is_cancelled(row: RunRow) -> bool:
    """Return whether a run was or will be ended by a cancellation."""
    return row.status == "cancelled" or (undoing_document(row) or {}).get("status") == "cancelled"


@routes.add("POST", "/v1/runs/{id}/retry", Access.OPERATE, RunAnswer, problems=(404, 409))
async def retry_run(
    id: Segment,
    call: Call,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Queue a failed, cancelled or dead run again."""
    await actions.retry(call.engine, id, key_of(key), by=call.by)
    return await _run_now(call, id)


@routes.add("POST", "/v1/runs/{id}/resume", Access.OPERATE, RunAnswer, problems=(404, 409))
async def resume_run(
    id: Segment,
    call: Call,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Queue a parked run again, after its cause has been fixed."""
    await actions.resume(call.engine, id, key_of(key), by=call.by)
    return await _run_now(call, id)


@routes.add("POST", "/v1/runs/{id}/decide", Access.OPERATE, RunAnswer, problems=(404, 409, 413))
async def decide_effect(
    id: Segment,
    call: Call,
    body: Decision,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Decide an effect whose outcome is unknown, or raise a budget, so that the run continues."""
    given = body.model_fields_set
    ways = ("happened" in given) + body.did_not + body.compensate + (body.limit is not None)
    if ways != 1:
        raise invalid(
            [(("body",), "give one of happened, did_not, compensate and limit")],
            "Give one of `happened`, `did_not`, `compensate` and `limit`.",
        )
    if "result" in given and not body.compensate:
        raise invalid(
            [(("body", "result"), "it requires compensate")],
            "`result` requires `compensate`. If the effect happened, pass its result as "
            "`happened`.",
        )
    await actions.decide(
        call.engine,
        id,
        body.effect,
        key_of(key),
        by=call.by,
        happened=body.happened if "happened" in given else NOT_GIVEN,
        did_not=body.did_not,
        compensate=body.compensate,
        result=body.result,
        intent=body.intent,
        limit=body.limit,
    )
    return await _run_now(call, id)


async def _run_now(call: ApiCall, id: str) -> Response:
    row = await call.row(id)
    document: Any = {"run": run_document(row, call.engine.store.now())}
    return answer(call.masked(document))
