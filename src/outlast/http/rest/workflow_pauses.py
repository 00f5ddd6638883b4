"""Pause and resume workflows, and list the paused ones."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from outlast.engine.documents import pause_document
from outlast.engine.workflow_pauses import set_paused
from outlast.http.rest.answers import PausedWorkflowsAnswer, WorkflowPauseAnswer
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.requests import Nothing, Segment
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.pauses import read_pauses

routes = Routes("workflows")
log = logging.getLogger("outlast.http")

NoQuery = Annotated[Nothing, Query()]


@routes.add("GET", "/v1/paused-workflows", Access.READ, PausedWorkflowsAnswer)
async def list_paused_workflows(call: Call, query: NoQuery) -> Response:
    """List the paused workflows: since when, and who paused them."""
    return await call.answer(
        lambda store: {"workflows": [pause_document(one) for one in read_pauses(store)]}
    )


@routes.add("POST", "/v1/workflows/{name}/pause", Access.OPERATE, WorkflowPauseAnswer)
async def pause_workflow(name: Segment, call: Call, query: NoQuery) -> Response:
    """Stop claiming runs of a workflow. Runs already executing continue."""
    return await _set(call, name, paused=True)


@routes.add("POST", "/v1/workflows/{name}/resume", Access.OPERATE, WorkflowPauseAnswer)
async def resume_workflow(name: Segment, call: Call, query: NoQuery) -> Response:
    """Claim runs of a workflow again."""
    return await _set(call, name, paused=False)


async def _set(call: ApiCall, name: str, *, paused: bool) -> Response:
    await set_paused(call.engine, name, paused=paused, by=call.by)
    what = "paused" if paused else "resumed"
    log.info(
        "a workflow was %s over HTTP",
        what,
        extra={"event": f"workflow_{what}", "by": call.by, "workflow": name},
    )
    return answer({"workflow": name, "paused": paused})
