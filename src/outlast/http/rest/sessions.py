"""Answer about sessions, and delete them."""

from __future__ import annotations

import logging
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Query
from starlette.responses import Response

from outlast.codec.documents import value_of
from outlast.engine.documents import session_document
from outlast.http.rest.answers import DeletedSession, SessionAnswer, SessionsPage
from outlast.http.rest.calls import answer
from outlast.http.rest.problems import Problem
from outlast.http.rest.requests import Nothing, Segment, SessionFilter, SessionView
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes
from outlast.store.commands import SESSION, DeleteSession
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionQuery, SessionRow
from outlast.store.tolerant_rows import each_document, legible

routes = Routes("sessions")
log = logging.getLogger("outlast.http")


@routes.add("GET", "/v1/sessions", Access.READ, SessionsPage)
async def list_sessions(call: Call, query: Annotated[SessionFilter, Query()]) -> Response:
    """List sessions, by id."""

    def page(store: Store) -> Any:
        asked = SessionQuery(
            SESSION, query.prefix, limit=query.limit + 1, by_id=True, after=query.after
        )
        rows = store.sessions(asked)
        shown = rows[: query.limit]
        following = str(shown[-1].id) if len(rows) > query.limit else None
        return {"sessions": each_document(shown, session_document, "id"), "next": following}

    return await call.answer(page)


@routes.add("GET", "/v1/sessions/{id}", Access.READ, SessionAnswer, problems=(404,))
async def show_session(id: Segment, call: Call, query: Annotated[SessionView, Query()]) -> Response:
    """Show a session: its fields, and the last items of its lists."""

    def document(store: Store) -> Any:
        row = _found(store.session(id, SESSION), id)
        with legible(f"session {id!r}"):
            last = {
                name: [value_of(text) for text in store.items(id, name, -query.last)]
                if query.last
                else []
                for name in row.lists
            }
            values = {name: value_of(text) for name, text in row.fields.items()}
            shown = {**session_document(row), "values": values, "last": last}
            return {"session": call.shown(shown)}

    return await call.answer(document)


@routes.add("DELETE", "/v1/sessions/{id}", Access.OPERATE, DeletedSession, problems=(404,))
async def delete_session(
    id: Segment,
    call: Call,
    query: Annotated[Nothing, Query()],  # noqa: ARG001
) -> Response:
    """Delete a session."""
    engine = call.engine
    row = _found(await engine.client.read(engine.store.session, id, SESSION), id)
    await engine.writer.execute(DeleteSession(id, uuid4().hex))
    log.info("a session was deleted over HTTP", extra={"event": "session_deleted", "by": call.by})
    return answer({"deleted": session_document(row)})


def _found(row: SessionRow | None, id: str) -> SessionRow:
    if row is None:
        raise Problem(
            404,
            f"No session has the id {id!r}: it was never written, or it has expired.",
            next="GET /v1/sessions lists the sessions.",
            kind="UnknownSession",
        )
    return row
