"""Answer about limiters."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from outlast.engine.documents import limiters_document
from outlast.http.rest.answers import LimitersAnswer
from outlast.http.rest.requests import Nothing
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call, Routes

routes = Routes("spending")

NoQuery = Annotated[Nothing, Query()]


@routes.add("GET", "/v1/limiters", Access.READ, LimitersAnswer)
async def list_limiters(call: Call, query: NoQuery) -> Response:
    """List the limiters: what they allow, what was used, and what waits."""
    return await call.answer(limiters_document)
