"""Configure uvicorn to run inside another program's process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from outlast.http.connection import (
    CONNECTIONS_MAX,
    HEADERS_BYTES_MAX,
    ApiConnection,
    ClientFaults,
    Connection,
)

KEEP_ALIVE_SECONDS = 2
IDLE_SECONDS = 30
"""How long a client of the API may keep a connection without a request."""


class _Config(uvicorn.Config):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.client_faults = ClientFaults()
        self.unread_seconds = 0.0
        """How long a client may leave its answer unread. Only `ApiConnection` reads it."""

    def configure_logging(self) -> None:
        """Do nothing: loggers belong to the program.

        uvicorn would remove the handlers of `uvicorn.access`, and the program may run its own
        uvicorn.
        """


def server_of(app: Starlette) -> uvicorn.Server:
    """Return a server that installs no signal handlers: uvicorn does so only in the main thread."""
    return uvicorn.Server(
        _Config(
            app,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            workers=1,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            backlog=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
        )
    )


class OwnLoopServer(uvicorn.Server):
    """A server in the main thread that leaves signals to the Outlast."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def api_server_of(
    app: Any, *, connections_max: int, unread_seconds: float, stop_seconds: float
) -> uvicorn.Server:
    """Return a server for the HTTP API, on the event loop of its Outlast."""
    config = _Config(
        app,
        http=ApiConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        workers=1,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections_max,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, int(stop_seconds)),
        h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
    )
    config.unread_seconds = unread_seconds
    return OwnLoopServer(config)
