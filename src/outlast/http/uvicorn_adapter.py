"""Configure uvicorn to run inside another program's process."""

from __future__ import annotations

from typing import Any

import uvicorn
from starlette.applications import Starlette

from outlast.http.connection import CONNECTIONS_MAX, HEADERS_BYTES_MAX, ClientFaults, Connection

KEEP_ALIVE_SECONDS = 2


class _Config(uvicorn.Config):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.client_faults = ClientFaults()

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
