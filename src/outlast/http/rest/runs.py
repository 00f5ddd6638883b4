"""List runs and return how they ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from outlast.codec.documents import value_of
from outlast.codec.text import iso
from outlast.engine.documents import (
    outcome_document,
    run_document,
)
from outlast.errors import OutlastError
from outlast.http.rest.answers import (
    ResultDocument,
    RunsPage,
)
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.requests import (
    ResultWait,
    RunFilter,
    Segment,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery
from outlast.store.tolerant_rows import each_document

routes = Routes("runs")


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
                key=query.key,
                waiting_for=query.waiting_for,
                worker=query.worker,
                awaits_message=query.awaits_message,
                created_before=None if query.older_than is None else now - query.older_than,
                created_after=None if query.newer_than is None else now - query.newer_than,
                items={"no": False, "only": True, "all": None}[query.items],
                undoing=query.undoing,
                limit=query.limit + 1,
                before_pk=before,
                by=call.by if call.is_own_only else None,
            )
        )
        page = rows[: query.limit]
        more = len(rows) > query.limit
        return call.masked(
            {
                "runs": each_document(page, lambda row: run_document(row, now), "id"),
                "next": str(page[-1].pk) if more else None,
                "now": iso(now),
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
    found = {**outcome_document(row), "recorded": value_of(row.error)}
    document = call.masked(found)
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
