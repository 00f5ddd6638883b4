"""`routes`: the five routes as a Starlette app, to mount in anyone's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outlast.errors import SettingsError
from outlast.http.face import Face, HasFace, face_of

if TYPE_CHECKING:
    from starlette.applications import Starlette


def routes(app: Face | HasFace, *, secret: str | None = None, health_stall: float | None = None) -> Starlette:
    """`/health`, `/ready`, `/shutdown`, `/metrics` and `/drain` of an Outlast, for `web.mount("/ops", routes(app))`.

    They may be made before it is open. `secret` and `health_stall` are its settings unless given. They answer on your server's
    loop: when that stands still, so do they; a `Server` of their own does not.

    `POST /shutdown` is allowed over loopback, or with the secret. Behind a proxy on the same host every peer is loopback: a request that
    says it was forwarded (Forwarded, X-Forwarded-…, X-Real-IP, Via) is therefore not, and needs the secret. A proxy that says nothing of
    the kind must not pass `/shutdown` on.
    """
    settings: Any = getattr(app, "settings", None)
    if secret is None:
        secret = getattr(settings, "http_secret", "")
    if health_stall is None:
        health_stall = getattr(settings, "health_stall", 0.0)
    look = face_of(app)
    with extra():
        from outlast.http.application import application
    return application(look, secret=secret, health_stall=health_stall)


_EXTRA = {"anyio", "click", "h11", "prometheus_client", "starlette", "uvicorn"}


@contextmanager
def extra() -> Iterator[None]:
    """Around imports of what the extra `http` installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRA:
            raise SettingsError("the HTTP server needs: pip install 'outlast[http]'") from error
        raise
