"""Answer the routes.

Only POST changes anything, and every answer says `Cache-Control: no-store`.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outlast.http.metrics import registry_of
from outlast.http.shutdown_auth import ShutdownAuthorizer, Unreadable, peer_of, reason_in
from outlast.http.status import NOT_OPEN, StatusProvider

log = logging.getLogger("outlast.http")

_NO_STORE = {"cache-control": "no-store"}
REFUSED = (
    "send the secret (Authorization: Bearer ...); where none is set, ask from this machine, "
    "with localhost or the address of this server as the host"
)
LOG_SECONDS = 10.0
"""Refusals within this time share one log line: a client that guesses could fill the disk."""


def application(
    find_provider: Callable[[], StatusProvider],
    *,
    secret: str = "",
    health_stall: float = 0.0,
    host: str = "",
) -> Starlette:
    answers = _Answers(find_provider, ShutdownAuthorizer(secret, host), health_stall)
    app = Starlette(
        routes=[
            Route("/health", answers.health, methods=["GET"]),
            Route("/ready", answers.ready, methods=["GET"]),
            Route("/metrics", answers.metrics, methods=["GET"]),
            Route("/drain", answers.drain, methods=["GET"]),
            Route("/shutdown", answers.shutdown, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refused},
    )
    app.router.redirect_slashes = False
    return app


Endpoint = Callable[["_Answers", Request], Awaitable[Response]]


def _answer(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse(body, status, headers={**(headers or {}), **_NO_STORE})


async def _refused(_request: Request, error: Exception) -> Response:
    """Answer an unknown route or a wrong method."""
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, {"error": error.detail}, error.headers)


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Log the errors of an endpoint, and answer 500 without details."""

    @functools.wraps(endpoint)
    async def guarded(self: _Answers, request: Request) -> Response:
        try:
            return await endpoint(self, request)
        except Exception:
            log.exception("Failed to answer %s %s.", request.method, request.url.path)
            return _answer(500, {"error": "internal error: see the log of the process"})

    return guarded


class _Answers:
    def __init__(
        self,
        find_provider: Callable[[], StatusProvider],
        gate: ShutdownAuthorizer,
        health_stall: float,
    ) -> None:
        self._find_provider = find_provider
        self._gate = gate
        self._health_stall = health_stall
        self._registry = registry_of(lambda: find_provider().samples())
        self._refused = 0
        self._log_at = -math.inf

    @_guarded
    async def health(self, _request: Request) -> Response:
        stalled = self._find_provider().stalled() if self._health_stall > 0 else 0.0
        if stalled > self._health_stall:
            reason = (
                f"the event loop has been blocked for {stalled:.1f} s, longer than "
                f"health_stall={self._health_stall:g}"
            )
            return _answer(503, {"status": "stalled", "reason": reason})
        return _answer(200, {"status": "alive"})

    @_guarded
    async def ready(self, _request: Request) -> Response:
        reason = self._find_provider().ready()
        if reason is not None:
            return _answer(503, {"status": "not ready", "reason": reason})
        return _answer(200, {"status": "ready"})

    @_guarded
    async def drain(self, request: Request) -> Response:
        if not self._gate.shows(request.scope):
            return self._refuse(request)
        return _answer(200, self._find_provider().drain_view())

    @_guarded
    async def metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # A thread keeps the other routes responsive.
        text = await run_in_threadpool(self._numbers, encode)
        return Response(text, headers={"content-type": content_type, **_NO_STORE})

    def _numbers(self, encode: Callable[[CollectorRegistry], bytes]) -> bytes:
        self._find_provider().refresh()
        return encode(self._registry)

    @_guarded
    async def shutdown(self, request: Request) -> Response:
        if not self._gate.admits(request.scope):
            return self._refuse(request)
        try:
            text = await reason_in(request)
        except Unreadable as error:
            return _answer(error.status, {"error": str(error)})
        provider = self._find_provider()
        if provider is NOT_OPEN:
            return _answer(503, {"status": "not ready", "reason": provider.ready()})
        provider.begin_drain(
            f"POST /shutdown from {peer_of(request.scope)}" + (f": {text}" if text else "")
        )
        return _answer(202, {"status": "draining"})

    def _refuse(self, request: Request) -> Response:
        """Answer 403, and log it at most once per `TELL_SECONDS`."""
        now = time.monotonic()
        if now < self._log_at:
            self._refused += 1
        else:
            before = f", and {self._refused} more since the last such line" if self._refused else ""
            self._refused, self._log_at = 0, now + LOG_SECONDS
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            log.warning(
                "%s %s from %s was refused%s.", request.method, path, peer_of(request.scope), before
            )
        return _answer(403, {"error": REFUSED})
