"""Show queues and their items, set limits, and put items into queues."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from outlast.codec import plain_json
from outlast.codec.documents import value_of
from outlast.codec.identifiers import check_queue_name, new_ids
from outlast.engine.documents import limits_document, queues_document, run_document
from outlast.engine.item_submission import item_id, item_name, put_items
from outlast.engine.queue_limits import limits_command
from outlast.errors import SettingsError
from outlast.http.rest.answers import (
    ItemsPage,
    LimitsAnswer,
    PutAnswer,
    QueueAnswer,
    QueuesAnswer,
)
from outlast.http.rest.calls import answer
from outlast.http.rest.requests import (
    ItemFilter,
    NewItems,
    Nothing,
    QueueLimits,
    Segment,
    ids_of,
    key_of,
)
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.http.rest.submissions import check_ids_are_own, check_row_is_own
from outlast.store.fleet import FleetQueues
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.store.tolerant_rows import each_document

routes = Routes("queues")
log = logging.getLogger("outlast.http")

NoQuery = Annotated[Nothing, Query()]


@routes.add("GET", "/v1/queues", Access.READ, QueuesAnswer)
async def list_queues(call: Call, query: NoQuery) -> Response:
    """List the queues: depth, age, throughput, limits."""
    return await call.answer(lambda store: queues_document(FleetQueues.of(store)))


@routes.add("GET", "/v1/queues/{name}", Access.READ, QueueAnswer)
async def show_queue(name: Segment, call: Call, query: NoQuery) -> Response:
    """Return how many runs and items of a queue are ready, and its limits."""
    check_queue_name(name, call.engine.settings.name_length_max)

    def document(store: Store) -> Any:
        return {**_limits(store, name), "size": store.depth(name)}

    return await call.answer(document)


@routes.add("PUT", "/v1/queues/{name}/limits", Access.OPERATE, LimitsAnswer)
async def limit_queue(
    name: Segment,
    call: Call,
    body: QueueLimits,
    query: NoQuery,
) -> Response:
    """Set the limits of a queue. A limit that is left out does not change."""
    engine = call.engine
    check_queue_name(name, engine.settings.name_length_max)
    given = {name: getattr(body, name) for name in body.model_fields_set}
    try:
        command = limits_command(name, **given)
    except SettingsError as error:
        raise HTTPException(422, str(error)) from None
    await engine.writer.execute(command)
    log.info(
        "The limits of a queue were set over HTTP.",
        extra={"event": "limits_set", "by": call.by, "queue": name},
    )
    return await call.answer(lambda store: _limits(store, name))


def _limits(store: Store, name: str) -> dict[str, Any]:
    row = next((one for one in store.queues() if one.name == name), None)
    return {"queue": name, **limits_document(row)}


@routes.add("GET", "/v1/queues/{name}/items", Access.READ_RUNS, ItemsPage)
async def list_items(name: Segment, call: Call, query: Annotated[ItemFilter, Query()]) -> Response:
    """List the items of a queue, newest first. A submitter sees its own."""
    check_queue_name(name, call.engine.settings.name_length_max)

    def page(store: Store) -> Any:
        now = store.now()

        def document(row: RunRow) -> dict[str, Any]:
            own = {"name": item_name(name, row.id), "payload": value_of(row.args)}
            return {**run_document(row, now), **own}

        rows = store.runs(
            RunQuery(
                statuses=tuple(query.status),
                queue=name,
                items=True,
                limit=query.limit + 1,
                before_pk=query.cursor,
                by=call.by if call.is_own_only else None,
            )
        )
        page = rows[: query.limit]
        following = str(page[-1].pk) if len(rows) > query.limit else None
        return call.masked({"items": each_document(page, document, "id"), "next": following})

    return await call.answer(page)


@routes.add(
    "POST",
    "/v1/queues/{name}/items",
    Access.SUBMIT,
    PutAnswer,
    status=201,
    problems=(409, 413),
)
async def put_into_queue(
    name: Segment,
    call: Call,
    body: NewItems,
    query: NoQuery,
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
) -> Response:
    """Put items into a queue in one commit, all or none. Repeating the same ids is harmless."""
    engine = call.engine
    length_max = engine.settings.id_length_max
    check_queue_name(name, engine.settings.name_length_max)
    given = ids_of([one.id for one in body.items], key_of(key))
    await check_ids_are_own(call, [item_id(name, id, length_max) for id in given if id])
    ids = [id or new for id, new in zip(given, new_ids(len(given)), strict=True)]
    outcomes = await put_items(
        engine,
        name,
        [plain_json.encode(one.payload) for one in body.items],
        ids,
        priority=body.priority,
        delay=body.delay,
        wait=body.wait,
        keys=[one.key for one in body.items],
        by=call.by,
    )
    for outcome in outcomes:
        if outcome.row is not None:
            check_row_is_own(call, outcome.row)
    return answer({"queue": name, "ids": ids}, 201)
