"""Act on all runs that match a filter."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Literal

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from outlast.engine.bulk import BulkAction, act_on_all
from outlast.http.rest.answers import Document
from outlast.http.rest.calls import answer
from outlast.http.rest.requests import (
    Name,
    Nothing,
    Number,
    Reason,
    Seconds,
    StatusName,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.rows import RunQuery

routes = Routes("actions")
log = logging.getLogger("outlast.http")

BULK_SECONDS = 20.0
"""How long one request may act. The answer then contains the cursor to continue from."""


class BulkRequest(BaseModel):
    """Which runs to act on. At least one condition is required."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal["cancel", "retry", "resume", "prune"]
    status: list[StatusName] = Field(default=[], max_length=20)
    workflow: Name | None = None
    queue: Name | None = None
    prefix: Name | None = Field(default=None, description="What the id starts with.")
    parent: Name | None = None
    key: Name | None = Field(default=None, description="Whose limits they count against.")
    waiting_for: Name | None = None
    worker: Name | None = None
    awaits_message: bool | None = None
    items: Literal["no", "only", "all"] = "no"
    undoing: bool | None = None
    older_than: Seconds | None = Field(default=None, description="Created that many seconds ago.")
    newer_than: Seconds | None = None
    limit: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Runs at most.")
    why: Reason = "cancelled with others over HTTP"
    dry_run: bool = Field(default=False, description="Count the runs, and change nothing.")
    cursor: Number | None = Field(default=None, description="`next` of the answer before.")


class BulkAnswer(Document):
    action: str
    dry_run: bool
    matched: int
    done: int
    skipped: int
    examples: list[str]
    problems: list[dict[str, str]]
    next: int | None = Field(description="Pass it as `cursor` to continue. Null: all were visited.")


@routes.add("POST", "/v1/bulk", Access.OPERATE, BulkAnswer)
async def act_on_runs(
    call: Call,
    body: BulkRequest,
    query: Annotated[Nothing, Query()],
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Cancel, retry, resume or prune all runs that match. Repeating it continues."""
    engine = call.engine
    now = engine.store.now()
    report = await act_on_all(
        engine,
        BulkAction(body.action),
        RunQuery(
            statuses=tuple(body.status),
            workflow=body.workflow,
            queue=body.queue,
            prefix=body.prefix,
            parent=body.parent,
            key=body.key,
            waiting_for=body.waiting_for,
            worker=body.worker,
            awaits_message=body.awaits_message,
            created_before=None if body.older_than is None else now - body.older_than,
            created_after=None if body.newer_than is None else now - body.newer_than,
            items={"no": False, "only": True, "all": None}[body.items],
            undoing=body.undoing,
            before_pk=body.cursor,
        ),
        why=body.why,
        dry_run=body.dry_run,
        limit=body.limit,
        token=key_of(idempotency_key),
        by=call.by,
        until=asyncio.get_running_loop().time() + BULK_SECONDS,
    )
    log.info(
        "Bulk %s over HTTP: %d of %d runs.", body.action, report.done, report.matched,
        extra={"event": "bulk", "by": call.by},
    )  # fmt: skip
    problems = [{"id": id, "message": message} for id, message in report.problems]
    return answer(
        {
            "action": report.action,
            "dry_run": report.dry_run,
            "matched": report.matched,
            "done": report.done,
            "skipped": report.skipped,
            "examples": list(report.examples),
            "problems": problems,
            "next": report.next,
        }
    )
