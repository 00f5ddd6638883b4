"""Provide the five routes as a Starlette app, to mount in any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outlast.errors import SettingsError
from outlast.http.status import HasStatusProvider, StatusProvider, status_provider_of

if TYPE_CHECKING:
    from starlette.applications import Starlette


def routes(
    app: StatusProvider | HasStatusProvider,
    *,
    secret: str | None = None,
    health_stall: float | None = None,
) -> Starlette:
    """Return the five routes of an Outlast as a Starlette app.

    They are `/health`, `/ready`, `/shutdown`, `/metrics` and `/drain`. Mount the app in yours:
    `web.mount("/ops", routes(app))`. You may make it before the Outlast is open. `secret` and
    `health_stall` default to the Outlast's settings. The routes answer on your server's event loop,
    so they do not answer while it is blocked. A separate `Server` does.

    With a secret, `POST /shutdown` and `GET /drain` require it, even over loopback: set one behind
    a proxy. Without one, the Host header must be localhost or the address of the server. `POST
    /shutdown` is then allowed only over loopback, and not to a browser or to a client that says it
    forwards (Forwarded, X-Forwarded-..., X-Real-IP, Via).
    """
    return routes_at(app, "", secret, health_stall)


def routes_at(
    app: StatusProvider | HasStatusProvider,
    host: str,
    secret: str | None,
    health_stall: float | None,
) -> Starlette:
    """Return the routes for a server that listens on `host`."""
    settings: Any = getattr(app, "settings", None)
    if secret is None:
        secret = getattr(settings, "http_secret", "")
    if health_stall is None:
        health_stall = getattr(settings, "health_stall", 0.0)
    find_provider = status_provider_of(app)
    with extra():
        from outlast.http.application import application
    return application(find_provider, secret=secret, health_stall=health_stall, host=host)


_EXTRA = {"anyio", "click", "h11", "prometheus_client", "starlette", "uvicorn"}


@contextmanager
def extra() -> Iterator[None]:
    """Turn a missing package of the extra `http` into a SettingsError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRA:
            raise SettingsError("the HTTP server needs: pip install 'outlast[http]'") from error
        raise
