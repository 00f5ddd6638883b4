"""Submit and list runs, and answer how they ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.codec.codecs import describe_invalid
from outlast.engine import actions
from outlast.engine.documents import (
    outcome_document,
    run_document,
)
from outlast.errors import Conflict, OutlastError, UnknownRun, Unrecordable
from outlast.execution.definitions import WorkflowDefinition
from outlast.http.rest.answers import (
    ResultDocument,
    RunsPage,
    SubmittedRun,
)
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.encoded_paths import quoted
from outlast.http.rest.problems import invalid
from outlast.http.rest.requests import (
    Nothing,
    ResultWait,
    RunFilter,
    Segment,
    Submission,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery
from outlast.store.tolerant_rows import each_document

routes = Routes("runs")


@routes.add("POST", "/v1/runs", Access.SUBMIT, SubmittedRun, status=201, problems=(409, 413))
async def submit_run(
    request: Request,
    call: Call,
    body: Submission,
    query: Annotated[Nothing, Query()],  # noqa: ARG001
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Submit a run by the name of its workflow. Repeating the same id is harmless."""
    engine = call.engine
    invocation = _invocation(call, body)
    id = body.id or key_of(idempotency_key)
    ((id, outcome),) = await actions.submit(
        engine,
        [invocation],
        None if id is None else [id],
        queue=body.queue,
        priority=body.priority,
        delay=body.delay,
        wait=body.wait,
        on_conflict=body.on_conflict,
        by=call.by,
    )
    row = outcome.row or await engine.client.read(engine.store.run, id)
    if row is not None and call.is_own_only and row.by != call.by:
        raise Conflict(id, "", "")
    if row is None:
        # It has ended and was pruned since.
        raise UnknownRun(id)
    location = f"{request.scope.get('root_path', '')}/v1/runs/{quoted(id)}"
    document = {"run": run_document(row, engine.store.now()), "new": outcome.new}
    return answer(call.shown(document), 201 if outcome.new else 200, location=location)


def _invocation(call: ApiCall, body: Submission) -> Any:
    """Return the call of a workflow. Raise Problem 422 for arguments that do not fit it."""
    workflows = call.engine.submissions.workflows
    workflow = workflows.get(body.workflow)
    if workflow is None:
        known = ", ".join(sorted(workflows)) or "none"
        raise invalid(
            [(("body", "workflow"), "the server does not know it")],
            f"The server does not know the workflow {body.workflow!r}. It knows: {known}.",
        )
    signature = workflow.signature
    try:
        bound = signature.bind(tuple(body.args), body.kwargs)
    except TypeError as error:
        raise invalid([(("body", "kwargs"), str(error))], f"{error}.", "Unrecordable") from None
    wrong = [
        (("body", "kwargs", name, *path), message)
        for name, value in bound.items()
        for path, message in _wrong_parts(workflow, name, value)
    ]
    if wrong:
        path = ".".join(map(str, wrong[0][0][2:]))
        raise invalid(
            wrong,
            f"The arguments do not fit {workflow.name}: {path}: {wrong[0][1]}",
            "Unrecordable",
        )
    try:
        args, kwargs = signature.decode(json.dumps(bound))
        make: Any = workflow
        return make(*args, **kwargs)
    except Unrecordable as error:
        raise invalid([(("body", "kwargs"), str(error))], str(error), "Unrecordable") from None


def _wrong_parts(
    workflow: WorkflowDefinition, name: str, value: Any
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return which parts of an argument do not fit its annotation, each with the reason."""
    try:
        workflow.signature.decode(json.dumps({name: value}), partly=True)
    except (OutlastError, TypeError, ValueError, RecursionError) as error:
        from pydantic import ValidationError

        cause = error.__cause__
        if isinstance(cause, ValidationError):
            found = cause.errors(include_url=False, include_context=False, include_input=False)
            return [(one["loc"], one["msg"]) for one in found]
        return [((), describe_invalid(error))]
    return []


@routes.add("GET", "/v1/runs", Access.READ_RUNS, RunsPage, problems=(404,))
async def list_runs(call: Call, query: Annotated[RunFilter, Query()]) -> Response:
    """List runs, newest first. A submitter sees its own."""
    before = query.cursor
    if query.before is not None:
        pk = (await call.row(query.before)).pk
        before = pk if before is None else min(pk, before)

    def page(store: Store) -> Any:
        now = store.now()
        rows = store.runs(
            RunQuery(
                statuses=tuple(query.status),
                workflow=query.workflow,
                queue=query.queue,
                prefix=query.prefix,
                parent=query.parent,
                waiting_for=query.waiting_for,
                created_before=None if query.older_than is None else now - query.older_than,
                created_after=None if query.newer_than is None else now - query.newer_than,
                items={"no": False, "only": True, "all": None}[query.items],
                undoing=query.undoing,
                limit=query.limit + 1,
                before_pk=before,
                by=call.by if call.is_own_only else None,
            )
        )
        shown = rows[: query.limit]
        more = len(rows) > query.limit
        return call.shown(
            {
                "runs": each_document(shown, lambda row: run_document(row, now), "id"),
                "next": str(shown[-1].pk) if more else None,
            },
        )

    return await call.answer(page)


@routes.add(
    "GET",
    "/v1/runs/{id}/result",
    Access.READ_RUNS,
    ResultDocument,
    also={202: ResultDocument},
    problems=(404,),
)
async def read_result(id: Segment, call: Call, query: Annotated[ResultWait, Query()]) -> Response:
    """Return how a run ended: 200, or 202 while it has not.

    With `wait`, wait for the end. A parked run, and a drain of the server, end the wait.
    """
    row = await call.row(id)
    if query.wait and row.status not in ENDED and row.status != "parked":
        with call.waiting():
            await _wait(call, id, query.wait)
        row = await call.row(id)
    document = call.shown(outcome_document(row))
    if row.status in ENDED:
        return answer(document)
    return answer(document, 202, retry_after="1")


async def _wait(call: ApiCall, id: str, seconds: float) -> None:
    """Wait until a run has ended or is parked, this process drains, or the time is up."""
    engine = call.engine
    ended = asyncio.ensure_future(engine.runs.wait_until_ended(id))
    try:
        await asyncio.wait(
            (ended, engine.shutdown.announced, engine.shutdown.close_began),
            timeout=seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if ended.done():
            ended.result()
    finally:
        ended.cancel()
        with suppress(asyncio.CancelledError, OutlastError):
            await ended
