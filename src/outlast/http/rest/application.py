"""Build the HTTP API of an Outlast as a FastAPI app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from outlast.http.rest import (
    about,
    actions,
    attention,
    bulk,
    fleet,
    journals,
    queues,
    runs,
    schedules,
    session_changes,
    sessions,
    spending,
    streams,
    submissions,
    workflow_pauses,
)
from outlast.http.rest.access import Authenticate, Gate
from outlast.http.rest.answers import ProblemDocument
from outlast.http.rest.calls import Api, ServedApp
from outlast.http.rest.encoded_paths import EncodedPaths
from outlast.http.rest.roles import Role
from outlast.http.rest.routing import of_http
from outlast.http.rest.tokens import Tokens
from outlast.version import __version__

MODULES = (
    submissions,
    runs,
    attention,
    journals,
    actions,
    bulk,
    streams,
    queues,
    fleet,
    schedules,
    spending,
    workflow_pauses,
    sessions,
    session_changes,
    about,
)
DESCRIPTION = """Durable runs over HTTP.

Errors are problem documents (RFC 9457). Ids in a path are percent-encoded, and may have any
printable character. Repeat a request that changes something with the same id, or with the same
header Idempotency-Key: it is done once.
"""


def application(
    app: ServedApp,
    *,
    tokens: str | Iterable[str],
    authenticate: Authenticate | None,
    insecure_loopback: bool,
    masked_roles: Iterable[Role],
    cors_origins: Iterable[str],
    host: str = "",
) -> FastAPI:
    """Return the API. The `Outlast` behind it may be opened later, and reopened."""
    gate = Gate(Tokens.parse(tokens), authenticate, insecure_loopback=insecure_loopback, host=host)
    web = FastAPI(
        title="Outlast",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _problem},
    )
    web.state.outlast_api = Api(app, gate, frozenset(masked_roles))
    for module in MODULES:
        module.routes.add_to(web)
    _describe(web, is_open=insecure_loopback)
    web.add_middleware(EncodedPaths)
    origins = list(cors_origins)
    if origins:
        web.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["authorization", "content-type", "idempotency-key", "last-event-id"],
            expose_headers=["location", "retry-after"],
        )
    return web


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return of_http(error).response()


def _describe(web: FastAPI, *, is_open: bool) -> None:
    """Complete the OpenAPI document: the problem, and how to authenticate."""
    build = web.openapi

    def openapi() -> dict[str, Any]:
        if web.openapi_schema is None:
            document = build()
            components = document.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
            if not is_open:
                components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                document["security"] = [{"token": []}]
            web.openapi_schema = document
        return web.openapi_schema

    web.openapi = openapi  # type: ignore[method-assign]
