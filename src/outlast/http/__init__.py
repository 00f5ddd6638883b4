"""Serve a worker's HTTP endpoints, the HTTP API of its store, and the web UI.

The endpoints are `/health`, `/ready`, `/shutdown`, `/metrics` and `/drain`.

    web = FastAPI(lifespan=lifespan(app))       # opens and closes an Outlast with the web server
    web.mount("/ops", routes(app))              # its routes in a server of yours
    Server(app, "0.0.0.0:8080").start()         # the same routes in a thread of their own
    web.mount("/outlast", api(app))             # the HTTP API: submit, inspect and control runs
    web.mount("/ui", ui(app))                   # the web UI

The path of a request:

    listener -> connection.py (bounded in time and number) -> application.py (the routes)
        -> shutdown_auth.py (who may end a worker, and their reason)
        -> status.py (what is known of the worker)

Importing this is cheap. starlette, uvicorn and prometheus-client are imported when a server or its
routes are made. If they are missing, a SettingsError says what to install.
"""

from __future__ import annotations

from outlast.http.api_app import api
from outlast.http.lifespan import lifespan
from outlast.http.rest.roles import Caller, Role
from outlast.http.routes import routes
from outlast.http.server import Server
from outlast.http.status import HasStatusProvider, StatusProvider
from outlast.http.ui_app import ui
from outlast.telemetry.samples import Sample

__all__ = [
    "Caller",
    "HasStatusProvider",
    "Role",
    "Sample",
    "Server",
    "StatusProvider",
    "api",
    "lifespan",
    "routes",
    "ui",
]
