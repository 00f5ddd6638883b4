"""The HTTP face of a worker: `/health`, `/ready`, `/shutdown`, `/metrics` and `/drain`.

    web = FastAPI(lifespan=lifespan(app))       # opens and leaves an Outlast with the web server
    web.mount("/ops", routes(app))              # its routes in a server of yours
    Server(app, "0.0.0.0:8080").start()         # the same ones in a thread of their own

The way of a request:

    listener -> connection.py (bounded in time and number) -> application.py (the routes)
        -> shutdown_auth.py (who may end a worker, and what they said) -> face.py (what is known of the worker)

Importing this is cheap. What starlette, uvicorn and prometheus-client do is imported when a server or its routes are made; where they are
missing, that is a SettingsError that says what to install.
"""

from __future__ import annotations

from outlast.http.lifespan import lifespan
from outlast.http.routes import routes
from outlast.http.server import Server
from outlast.http.status_provider import HasStatusProvider, Sample, StatusProvider

__all__ = ["HasStatusProvider", "Sample", "Server", "StatusProvider", "lifespan", "routes"]
