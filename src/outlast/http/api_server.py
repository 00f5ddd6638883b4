"""Serve the HTTP API, the five routes and the web UI on the event loop of their Outlast."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from outlast.http.api_app import api_at, server_extra
from outlast.http.listening_socket import listen, url_of
from outlast.http.routes import routes_at
from outlast.http.ui_app import ui
from outlast.settings.http_address import is_for_this_machine, parse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("outlast.http")

LINGER_SECONDS = 2.0
"""How long `/ready` answers 503 before the server stops listening. At most a tenth of the grace."""
STOP_SECONDS = 3.0
"""How long answers in flight may take after that. At most a quarter of the grace."""


class ApiServer:
    """Serve an Outlast at an address between `start` and `stop`.

    `app` must be open on the current event loop when it starts. `tokens` default to the setting
    `api_tokens`. Raise SettingsError if nothing says who may use the API, or if the extra `server`
    is not installed.
    """

    def __init__(
        self,
        app: Any,
        address: str,
        *,
        insecure_loopback: bool = False,
        tokens: str | Iterable[str] | None = None,
        has_ui: bool = False,
    ) -> None:
        host, _ = parse(address)
        self._app = app
        self._address = address
        with server_extra():
            web = api_at(app, host, tokens=tokens, insecure_loopback=insecure_loopback)
            routes = routes_at(app, host, None, None)
        self._web = _ByPath(web, routes, ui(app, tokens=tokens) if has_ui else None)
        if insecure_loopback and not is_for_this_machine(address):
            log.warning(
                "--insecure-loopback is set with the address %s. Only programs on this machine "
                "get answers.",
                address,
            )
        self._listener: socket.socket | None = None
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Return the URL of the server for clients on this machine.

        The server must have been started.
        """
        assert self._listener is not None, "the server was started"
        return url_of(self._listener)

    def start(self) -> None:
        """Start listening. Raise SettingsError if that is not possible."""
        from outlast.http.uvicorn_adapter import api_server_of

        settings = self._app.settings
        self._listener = listen(self._address)
        self._server = api_server_of(
            self._web,
            connections_max=settings.api_connections_max,
            unread_seconds=settings.api_send_timeout,
            stop_seconds=min(STOP_SECONDS, settings.grace / 4),
        )
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))

    async def stop(self) -> None:
        """Let probes see that this process drains, then finish what is in flight and stop.

        Streams have ended by then, each with its cursor.
        """
        if self._serving is None:
            return
        await asyncio.wait(
            (self._serving,), timeout=min(LINGER_SECONDS, self._app.settings.grace / 10)
        )
        self._server.should_exit = True
        await asyncio.wait((self._serving,))
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        if self._listener is not None:
            self._listener.close()


ROUTES = frozenset({"/health", "/ready", "/metrics", "/drain", "/shutdown"})


class _ByPath:
    """Send each path to the API, to the five routes, or to the UI if there is one."""

    def __init__(self, api: ASGIApp, routes: ASGIApp, pages: ASGIApp | None) -> None:
        self._api = api
        self._routes = routes
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if path == "/v1" or path.startswith("/v1/"):
            app = self._api
        elif self._pages is None or path in ROUTES:
            app = self._routes
        else:
            app = self._pages
        await app(scope, receive, send)
