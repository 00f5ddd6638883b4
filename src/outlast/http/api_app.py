"""Provide the HTTP API as a FastAPI app, to mount in any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from outlast.errors import SettingsError
from outlast.http.rest.roles import Caller, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from starlette.requests import Request

    from outlast.http.rest.calls import ServedApp

Authenticate: TypeAlias = "Callable[[Request], Caller | Awaitable[Caller | None] | None]"
_EXTRA = {"anyio", "click", "fastapi", "h11", "prometheus_client", "starlette", "uvicorn"}


def api(
    app: ServedApp,
    *,
    tokens: str | Iterable[str] | None = None,
    authenticate: Authenticate | None = None,
    insecure_loopback: bool = False,
    masked_roles: str | Iterable[str] | None = None,
    cors_origins: str | Iterable[str] | None = None,
) -> FastAPI:
    """Return the HTTP API of an Outlast as a FastAPI app.

    Serve it as it is, or mount it in your FastAPI or Starlette app:
    `web.mount("/outlast", api(app))`. You may make it before the Outlast is open. The Outlast must
    be open on the event loop that serves: use `lifespan=lifespan(app)`.

    Callers are known by `tokens`, items like "name:role:token", or by `authenticate`, a function
    that takes the request and returns a `Caller`, or None for nobody. It may be a coroutine
    function; a plain one is called in a thread. `insecure_loopback` admits every program on this
    machine instead, without a token. Without any of these, this raises SettingsError.

    `masked_roles` see no arguments, results, messages or other values. `cors_origins` are the
    origins whose pages may call the API. `tokens`, `masked_roles` and `cors_origins` default to the
    settings `api_tokens`, `api_masked_roles` and `api_cors_origins`.
    """
    return api_at(
        app,
        "",
        tokens=tokens,
        authenticate=authenticate,
        insecure_loopback=insecure_loopback,
        masked_roles=masked_roles,
        cors_origins=cors_origins,
    )


def api_at(
    app: ServedApp,
    host: str,
    *,
    tokens: str | Iterable[str] | None = None,
    authenticate: Authenticate | None = None,
    insecure_loopback: bool = False,
    masked_roles: str | Iterable[str] | None = None,
    cors_origins: str | Iterable[str] | None = None,
) -> FastAPI:
    """Return the API for a server that listens on `host`."""
    settings: Any = app.settings
    if tokens is None and authenticate is None and not insecure_loopback:
        tokens = settings.api_tokens
    roles = _split(settings.api_masked_roles if masked_roles is None else masked_roles)
    origins = _split(settings.api_cors_origins if cors_origins is None else cors_origins)
    unknown = sorted(set(roles) - set(Role))
    if unknown:
        raise SettingsError(
            f"api_masked_roles: unknown role {', '.join(unknown)}. Use {', '.join(Role)}."
        )
    with server_extra():
        from outlast.http.rest.application import application
    return application(
        app,
        tokens=tokens or "",
        authenticate=authenticate,
        insecure_loopback=insecure_loopback,
        masked_roles=map(Role, roles),
        cors_origins=origins,
        host=host,
    )


def _split(given: str | Iterable[str]) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    return [part.strip() for part in parts if part.strip()]


@contextmanager
def server_extra() -> Iterator[None]:
    """Turn a missing package of the extra `server` into a SettingsError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _EXTRA:
            raise SettingsError("the HTTP API needs: pip install 'outlast[server]'") from error
        raise
