"""Describe the caller, and what the server can do."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.codec.text import iso
from outlast.execution.definitions import WorkflowDefinition
from outlast.http.rest.answers import Document, MeAnswer, WorkflowsAnswer
from outlast.http.rest.calls import answer
from outlast.http.rest.requests import Nothing
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes

routes = Routes("about")

NoQuery = Annotated[Nothing, Query()]


@routes.add("GET", "/v1/me", Access.ANYONE, MeAnswer)
async def show_caller(call: Call, query: NoQuery) -> Response:
    """Return the name and the role of the caller, and the store's time."""
    now = iso(call.engine.store.now())
    return answer({"name": call.caller.name, "role": call.caller.role, "now": now})


@routes.add("GET", "/v1/workflows", Access.ANYONE, WorkflowsAnswer)
async def list_workflows(call: Call, query: NoQuery) -> Response:
    """List the workflows that can be submitted, each with a JSON schema of its arguments."""
    workflows = call.engine.submissions.workflows
    return answer({"workflows": [_described(workflows[name]) for name in sorted(workflows)]})


@routes.add("GET", "/v1/openapi.json", Access.ANYONE, Document)
async def show_openapi(request: Request, call: Call, query: NoQuery) -> Response:
    """Return the OpenAPI document."""
    document = {**request.app.openapi()}
    if root := request.scope.get("root_path"):
        document["servers"] = [{"url": root}]
    return answer(document)


def _described(workflow: WorkflowDefinition) -> dict[str, Any]:
    summary = (inspect.getdoc(workflow.fn) or "").partition("\n\n")[0]
    return {
        "name": workflow.name,
        "summary": " ".join(summary.split()),
        "arguments": _schema(workflow),
        "timeout": workflow.timeout,
    }


def _schema(workflow: WorkflowDefinition) -> dict[str, Any] | None:
    """Return a JSON schema of the arguments by name. None if an annotation has none."""
    from pydantic import TypeAdapter

    try:
        hints = workflow.signature.resolve()
        properties, required = {}, []
        for parameter in inspect.signature(workflow.fn).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            adapter: TypeAdapter[Any] = TypeAdapter(hints.get(parameter.name, Any))
            properties[parameter.name] = adapter.json_schema()
            if parameter.default is parameter.empty:
                required.append(parameter.name)
    except Exception:
        # An annotation may be anything. The server still checks the arguments.
        return None
    return {"type": "object", "properties": properties, "required": required}
