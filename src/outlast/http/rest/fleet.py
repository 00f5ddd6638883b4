"""List workers and drains, ask workers to drain, and prune the store."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from outlast.engine import actions
from outlast.engine.documents import workers_document
from outlast.http.rest.answers import (
    DrainAnswer,
    DrainsAnswer,
    PruneAnswer,
    WorkersAnswer,
)
from outlast.http.rest.calls import answer
from outlast.http.rest.problems import Problem
from outlast.http.rest.requests import (
    DrainRequest,
    DrainsPage,
    Nothing,
    PruneRequest,
    Segment,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.shutdown.report import drain_document
from outlast.store.commands import Refused, RequestDrain
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow
from outlast.store.tolerant_rows import each_document, legible

routes = Routes("fleet")
log = logging.getLogger("outlast.http")

NoQuery = Annotated[Nothing, Query()]
PRUNE_SECONDS = 20.0
"""How long one request may prune."""


@routes.add("GET", "/v1/workers", Access.READ, WorkersAnswer)
async def list_workers(call: Call, query: NoQuery) -> Response:
    """List the processes that use the store, and what they hold."""
    return await call.answer(lambda store: workers_document(Fleet.with_stalls(store)))


@routes.add("POST", "/v1/workers/{id}/drain", Access.OPERATE, DrainAnswer, problems=(404,))
async def drain_worker(
    id: Segment,
    call: Call,
    query: NoQuery,
    body: DrainRequest | None = None,
) -> Response:
    """Ask a worker to drain. It releases its runs and exits. Repeating it is harmless."""
    engine = call.engine

    def find() -> WorkerRow | None:
        return next((one for one in engine.store.workers() if one.id == id), None)

    row = await engine.client.read(find)
    why = actions.with_caller(engine, (body or DrainRequest()).why, call.by)
    if row is not None and row.draining:
        return answer({"worker": id, "state": "draining"})
    if row is None or isinstance(await engine.writer.execute(RequestDrain(id, why)), Refused):
        raise Problem(
            404,
            f"No worker {id!r} has the store open.",
            next="GET /v1/workers lists them, and GET /v1/drains those that have drained.",
            kind="UnknownWorker",
        )
    return answer({"worker": id, "state": "asked"})


@routes.add("GET", "/v1/drains", Access.READ, DrainsAnswer)
async def list_drains(call: Call, query: Annotated[DrainsPage, Query()]) -> Response:
    """List the latest drains of all workers, newest first."""

    def drains(store: Store) -> Any:
        return {"drains": each_document(store.drains(query.limit), drain_document, "worker")}

    with legible("the drains"):
        return await call.answer(drains)


@routes.add("POST", "/v1/prune", Access.OPERATE, PruneAnswer)
async def prune_store(
    call: Call,
    body: PruneRequest,
    query: NoQuery,
) -> Response:
    """Delete runs that ended long ago, and expired sessions."""
    engine = call.engine
    until = asyncio.get_running_loop().time() + PRUNE_SECONDS
    deleted, more = await actions.prune_until(engine, body.older_than, dead=body.dead, until=until)
    log.info("%d runs were pruned over HTTP.", deleted, extra={"event": "pruned", "by": call.by})
    return answer({"deleted": deleted, "more": more})
