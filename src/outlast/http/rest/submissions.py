"""Submit runs, one or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.codec.identifiers import new_ids
from outlast.engine import actions
from outlast.engine.documents import run_document
from outlast.engine.submission_windows import Policy, policy_of
from outlast.errors import Conflict, UnknownRun
from outlast.http.rest.answers import SubmittedRun, SubmittedRuns
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.encoded_paths import quoted
from outlast.http.rest.requests import (
    HowToSubmit,
    ManySubmissions,
    Nothing,
    RunToSubmit,
    Submission,
    ids_of,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.http.rest.workflow_calls import workflow_call
from outlast.store.commands import Submitted
from outlast.store.protocol import Store
from outlast.store.rows import RunRow

routes = Routes("runs")

WINDOW_OPTIONS = {"debounce", "debounce_max", "window", "on_repeat"}
Key = Annotated[str | None, Header(alias="Idempotency-Key")]
NoQuery = Annotated[Nothing, Query()]


@routes.add(
    "POST",
    "/v1/runs",
    Access.SUBMIT,
    SubmittedRun,
    status=201,
    also={200: SubmittedRun},
    problems=(404, 409, 413),
)
async def submit_run(
    request: Request,
    call: Call,
    body: Submission,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Submit a run by the name of its workflow. Repeating the same id is harmless."""
    policy = policy_of(
        **body.model_dump(include=WINDOW_OPTIONS),
        id=body.id,
        key=body.key,
        delay=body.delay,
        on_conflict=body.on_conflict,
    )
    if policy is None:
        ids = [body.id or key_of(key)]
        (document,) = await _submitted(call, [workflow_call(call.engine, body)], ids, [body], body)
    else:
        document = await _submitted_in_window(call, body, policy, key_of(key))
    root = request.scope.get("root_path", "")
    location = f"{root}/v1/runs/{quoted(document['run']['id'])}"
    return answer(call.masked(document), 201 if document["new"] else 200, location=location)


@routes.add(
    "POST",
    "/v1/submissions",
    Access.SUBMIT,
    SubmittedRuns,
    status=201,
    also={200: SubmittedRuns},
    problems=(404, 409, 413),
)
async def submit_runs(
    call: Call,
    body: ManySubmissions,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Submit several runs in one commit, all or none. Repeating the same ids is harmless."""
    calls = [workflow_call(call.engine, one, "runs", at) for at, one in enumerate(body.runs)]
    ids = ids_of([one.id for one in body.runs], key_of(key))
    documents = await _submitted(call, calls, ids, body.runs, body)
    status = 201 if any(one["new"] for one in documents) else 200
    return answer(call.masked({"runs": documents}), status)


async def _submitted(
    call: ApiCall,
    calls: Sequence[Any],
    ids: Sequence[str | None],
    runs: Sequence[RunToSubmit],
    how: HowToSubmit,
) -> list[dict[str, Any]]:
    """Submit runs in one commit. Return for each its document, and whether it is new."""
    engine = call.engine
    names = [id or new for id, new in zip(ids, new_ids(len(ids)), strict=True)]
    await check_ids_are_own(call, [id for id in ids if id is not None])
    submitted = await actions.submit(
        engine,
        calls,
        names,
        queue=how.queue,
        priority=how.priority,
        delay=how.delay,
        wait=how.wait,
        on_conflict=how.on_conflict,
        keys=[one.key for one in runs],
        by=call.by,
    )

    return await _documents(call, submitted)


async def _submitted_in_window(
    call: ApiCall, body: Submission, policy: Policy, key: str | None
) -> dict[str, Any]:
    """Submit a run in a window. Return its document, and whether it is new.

    A caller that may see only its own runs replaces and joins no other's.
    """
    submitted = await actions.submit_in_window(
        call.engine,
        workflow_call(call.engine, body),
        policy,
        id=body.id,
        key=body.key,
        queue=body.queue,
        priority=body.priority,
        delay=body.delay,
        wait=body.wait,
        by=call.by,
        token=None if key is None else f"{call.by}\0{key}",
        owner=call.by if call.is_own_only else None,
    )
    (document,) = await _documents(call, [(submitted.id, submitted.outcome)])
    return document


async def _documents(
    call: ApiCall, submitted: Sequence[tuple[str, Submitted]]
) -> list[dict[str, Any]]:
    engine = call.engine

    def rows(store: Store) -> list[RunRow | None]:
        return [one.row or store.run(id) for id, one in submitted]

    found = await engine.client.read(rows, engine.store)
    documents = []
    for (id, outcome), row in zip(submitted, found, strict=True):
        if row is None:
            # It has ended and was pruned since.
            raise UnknownRun(id)
        check_row_is_own(call, row)
        document = run_document(row, engine.store.now())
        documents.append({"run": document, "new": outcome.new})
    return documents


async def check_ids_are_own(call: ApiCall, ids: Sequence[str]) -> None:
    """Raise Conflict, before anything is written, if an id is another submitter's."""
    if not call.is_own_only or not ids:
        return
    store = call.engine.store
    for row in await call.engine.client.read(lambda: [store.run(id) for id in ids]):
        if row is not None:
            check_row_is_own(call, row)


def check_row_is_own(call: ApiCall, row: RunRow) -> None:
    """Raise Conflict if a run that a submission joined is another submitter's."""
    if call.is_own_only and row.by != call.by:
        raise Conflict(row.id, "", "")
