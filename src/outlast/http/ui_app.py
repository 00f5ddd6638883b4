"""Provide the web UI as a Starlette app, to mount in any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outlast.errors import SettingsError
from outlast.http.api_app import Authenticate, api_at, server_extra

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from outlast.http.rest.calls import ServedApp


def ui(
    app: ServedApp,
    *,
    tokens: str | Iterable[str] | None = None,
    authenticate: Authenticate | None = None,
    masked_roles: str | Iterable[str] | None = None,
) -> Starlette:
    """Return the web UI of an Outlast as a Starlette app.

    Serve it as it is, or mount it at any path of your FastAPI or Starlette app:
    `web.mount("/ui", ui(app))`. The Outlast must be open on the event loop that serves: use
    `lifespan=lifespan(app)`.

    Visitors sign in with one of `tokens`, items like "name:role:token". With `authenticate`, the
    program identifies them for every request instead, as in `api`. Roles and `masked_roles` mean
    the same as there. `tokens` and `masked_roles` default to the settings `api_tokens` and
    `api_masked_roles`. Raise SettingsError unless there is exactly one way to know visitors.
    """
    settings: Any = app.settings
    if tokens is None and authenticate is None:
        tokens = settings.api_tokens
    if not tokens and authenticate is None:
        raise SettingsError(
            "the web UI needs one way to know its visitors, and nothing says who may use it. Set "
            "OUTLAST_API_TOKENS=name:role:token,… or pass authenticate=. On your own machine, "
            "`outlast ui` makes a token for you."
        )
    with server_extra(), _templates():
        from outlast.http.rest.tokens import Tokens
        from outlast.http.web.application import web_application
        from outlast.http.web.inner_api import caller_in_scope
        from outlast.http.web.visitors import Visitors
    inner = api_at(app, "", authenticate=caller_in_scope, masked_roles=masked_roles)
    return web_application(inner, Visitors(Tokens.parse(tokens or ""), authenticate))


@contextmanager
def _templates() -> Iterator[None]:
    """Turn a missing Jinja2 into a SettingsError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"jinja2", "markupsafe"}:
            raise SettingsError("the web UI needs: pip install 'outlast[server]'") from error
        raise
