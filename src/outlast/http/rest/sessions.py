"""Show sessions and checkpoints. Reading does not extend their expiry."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from outlast.codec.documents import value_of
from outlast.codec.identifiers import check_field
from outlast.engine.documents import session_document
from outlast.engine.session_parts import address, read_all, read_field, read_slice
from outlast.http.rest.answers import (
    FieldAnswer,
    ItemsAnswer,
    SessionAnswer,
    SessionFields,
    SessionsPage,
    SessionValues,
)
from outlast.http.rest.calls import ApiCall
from outlast.http.rest.masking import MASKED
from outlast.http.rest.problems import invalid
from outlast.http.rest.requests import Nothing, Segment
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call
from outlast.http.rest.session_requests import FieldFilter, ListSlice, SessionFilter, SessionView
from outlast.http.rest.session_spaces import Space, SpaceRoutes, found
from outlast.store.protocol import Store
from outlast.store.session_rows import FieldQuery, SessionQuery, SessionRow
from outlast.store.tolerant_rows import each_document, legible

routes = SpaceRoutes("sessions")


@routes.add_to_spaces("GET", "", Access.READ, SessionsPage, problems=(404,))
async def list_sessions(
    call: Call, space: Space, query: Annotated[SessionFilter, Query()]
) -> Response:
    """List sessions or checkpoints with the names of their fields, without the values."""

    def page(store: Store) -> Any:
        asked = SessionQuery(space, query.prefix, limit=query.limit + 1)
        if query.order == "id":
            asked = asked._replace(by_id=True, after=query.after)
        elif query.after is not None:
            asked = asked._replace(before=_position(store, space, query.after))
        rows = store.sessions(asked)
        page = rows[: query.limit]
        following = _next(page[-1], query.order) if len(rows) > query.limit else None
        return {"sessions": each_document(page, session_document, "id"), "next": following}

    return await call.answer(page)


def _next(row: SessionRow, order: str) -> str:
    """Return the cursor after a row. By change it has the time, because changes move rows."""
    return row.id if order == "id" else json.dumps([row.updated, row.id])


def _position(store: Store, space: str, after: str) -> tuple[float, str]:
    """Return the time and the id to start after, which a cursor has. An id is looked up."""
    try:
        updated, id = json.loads(after)
        if type(updated) is float and math.isfinite(updated) and type(id) is str:
            return updated, id
    except (TypeError, ValueError):
        pass  # It is an id.
    row = found(store.session(after, space, names=()), space, after)
    return row.updated, row.id


@routes.add_to_spaces("GET", "/{id}", Access.READ, SessionAnswer, problems=(404,))
async def show_session(
    id: Segment, call: Call, space: Space, query: Annotated[SessionView, Query()]
) -> Response:
    """Show a session: its fields, and the last items of its lists."""

    def document(store: Store) -> Any:
        row = found(store.session(id, space), space, id)
        with legible(f"{space} {id!r}"):
            last = {
                name: [value_of(text) for text in store.items(id, name, -query.last, space=space)]
                if query.last
                else []
                for name in row.lists
            }
            values = {name: value_of(text) for name, text in row.fields.items()}
            document_of_row = {**session_document(row), "values": values, "last": last}
            return {"session": call.masked(document_of_row)}

    return await call.answer(document)


@routes.add_to_spaces("GET", "/{id}/values", Access.READ, SessionValues)
async def read_session_values(
    id: Segment,
    call: Call,
    space: Space,
    query: Annotated[Nothing, Query()],
) -> Response:
    """Return everything in a session, by name. It is empty if there is no such session."""
    at = address(space, id, None, call.engine.settings)

    def document(store: Store) -> Any:
        with legible(str(at)):
            _, texts = read_all(store, at)
            return call.masked({"values": {name: value_of(texts[name]) for name in sorted(texts)}})

    return await call.answer(document)


@routes.add_to_spaces("GET", "/{id}/fields", Access.READ, SessionFields)
async def read_session_fields(
    id: Segment, call: Call, space: Space, query: Annotated[FieldFilter, Query()]
) -> Response:
    """Return the fields that have a value, in the order of their names. Lists are left out."""
    at = address(space, id, None, call.engine.settings)
    others = query.model_fields_set - {"names"}
    if query.names and others:
        raise invalid(
            [(("query", name), "it cannot be given with names") for name in sorted(others)],
            "`names` takes no other parameter.",
        )
    names = tuple(_field(call, name) for name in query.names)
    asked = FieldQuery(at.id, query.prefix, query.limit, query.after, query.reverse, space)

    def document(store: Store) -> Any:
        row = store.session(at.id, space, names=names) if names else store.fields(asked)
        with legible(str(at)):
            texts = {} if row is None else row.fields
            return {"fields": {name: _value(call, text) for name, text in texts.items()}}

    return await call.answer(document)


@routes.add_to_spaces("GET", "/{id}/fields/{name}", Access.READ, FieldAnswer)
async def read_session_field(
    id: Segment,
    name: Segment,
    call: Call,
    space: Space,
    query: Annotated[Nothing, Query()],
) -> Response:
    """Return a field, and whether it has a value. A list is returned whole."""
    at, field = address(space, id, None, call.engine.settings), _field(call, name)

    def document(store: Store) -> Any:
        with legible(str(at)):
            _, text = read_field(store, at, field)
            there = text is not None
            return {"found": there, "value": _value(call, text) if there else None}

    return await call.answer(document)


@routes.add_to_spaces("GET", "/{id}/lists/{name}", Access.READ, ItemsAnswer)
async def read_session_list(
    id: Segment,
    name: Segment,
    call: Call,
    space: Space,
    query: Annotated[ListSlice, Query()],
) -> Response:
    """Return items of a list. There are none if there is no such list."""
    at, field = address(space, id, None, call.engine.settings), _field(call, name)
    start, stop = query.start, query.stop
    if query.last is not None:
        if query.model_fields_set - {"last"}:
            raise invalid(
                [(("query", "last"), "it cannot be given with start or stop")],
                "`last` takes no other parameter.",
            )
        start, stop = (-query.last, None) if query.last else (0, 0)

    def document(store: Store) -> Any:
        with legible(str(at)):
            _, text = read_slice(store, at, field, start, stop)
            items = value_of(text)
            return {"items": [MASKED] * len(items) if call.is_masked else items}

    return await call.answer(document)


def _field(call: ApiCall, name: str) -> str:
    return check_field(name, call.engine.settings.name_length_max)


def _value(call: ApiCall, text: str | None) -> Any:
    return MASKED if call.is_masked else value_of(text)
