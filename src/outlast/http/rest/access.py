"""Identify the caller of a request before reading anything else."""

from __future__ import annotations

import hashlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from outlast.errors import SettingsError
from outlast.http.request_origin import is_local, names_this_server, says_it_was_forwarded
from outlast.http.rest.problems import Problem
from outlast.http.rest.roles import Access, Caller, Role
from outlast.http.rest.throttle import Throttle, peer_key
from outlast.http.rest.tokens import Tokens
from outlast.http.shutdown_auth import peer_of

log = logging.getLogger("outlast.http")

Authenticate: TypeAlias = Callable[[Request], Caller | Awaitable[Caller | None] | None]
LOOPBACK = Caller("loopback", Role.OPERATOR)
LOG_SECONDS = 10.0
"""Refusals within this time share one log line."""
_BROWSER = ("origin", "sec-fetch-site")


class Gate:
    """Admit callers by token, by the program's own check, or over loopback."""

    def __init__(
        self,
        tokens: Tokens,
        authenticate: Authenticate | None,
        *,
        insecure_loopback: bool,
        host: str = "",
        throttle: Throttle | None = None,
    ) -> None:
        ways = (len(tokens) > 0) + (authenticate is not None) + insecure_loopback
        if ways != 1:
            found = "nothing says who may use it" if ways == 0 else "several ways are given"
            raise SettingsError(
                f"the HTTP API needs one way to know its callers, and {found}. Set "
                "OUTLAST_API_TOKENS=name:role:token,… or pass authenticate=. On your own machine: "
                "`outlast serve --insecure-loopback`, or insecure_loopback=True."
            )
        self._tokens = tokens
        self._authenticate = authenticate
        self._loopback = insecure_loopback
        self._host = host.lower()
        self._throttle = throttle or Throttle()
        self._refused = 0
        self._log_at = 0.0

    async def caller(self, request: Request) -> Caller:
        """Return the caller. Raise Problem 401, 403 or 429 if the request has none."""
        if self._loopback:
            return self._over_loopback(request)
        peer, digest = peer_key(request.scope), _digest(request)
        seconds = self._throttle.seconds_to_wait(peer, digest)
        if seconds > 0:
            raise Problem(
                429,
                "Too many requests with wrong credentials came from this address.",
                next="Wait as long as Retry-After says, and check the token.",
                headers={"retry-after": str(int(seconds) + 1)},
            )
        caller = await self._identify(request)
        if caller is None:
            self._throttle.forget(peer, digest)
            self._throttle.note_wrong(peer)
            self._log_refusal(request)
            raise Problem(
                401,
                "The request has no valid credentials.",
                next="Send a token: Authorization: Bearer …",
                headers={"www-authenticate": "Bearer"},
            )
        self._throttle.note_right(peer, digest)
        return caller

    async def _identify(self, request: Request) -> Caller | None:
        if self._authenticate is None:
            scheme, _, token = _authorization(request).partition(b" ")
            return self._tokens.caller(token.strip()) if scheme.lower() == b"bearer" else None
        check: Callable[..., Any] = self._authenticate
        if inspect.iscoroutinefunction(check):
            found = await check(request)
        else:
            # It may ask a database.
            found = await run_in_threadpool(check, request)
            if inspect.isawaitable(found):
                found = await found
        if found is not None and not isinstance(found, Caller):
            raise TypeError(f"authenticate must return a Caller or None, not {type(found)}.")
        return found

    def _over_loopback(self, request: Request) -> Caller:
        headers, scope = request.headers, request.scope
        if (
            is_local(scope)
            and not says_it_was_forwarded(headers)
            and not any(name in headers for name in _BROWSER)
            and names_this_server(scope, headers, self._host)
        ):
            return LOOPBACK
        self._log_refusal(request)
        raise Problem(
            403,
            "This server has no tokens. It answers only programs on its own machine.",
            next="Set OUTLAST_API_TOKENS on the server to use it from a browser or from elsewhere.",
        )

    def _log_refusal(self, request: Request) -> None:
        now = time.monotonic()
        if now < self._log_at:
            self._refused += 1
            return
        before = f", and {self._refused} more since the last such line" if self._refused else ""
        self._refused, self._log_at = 0, now + LOG_SECONDS
        log.warning(
            "A request to the HTTP API from %s was refused%s.", peer_of(request.scope), before
        )


def check_role(caller: Caller, access: Access) -> None:
    """Raise Problem 403 if callers with this role may not use a route."""
    if not access.admits(caller.role):
        roles = ", ".join(role for role in Role if access.admits(role))
        raise Problem(
            403,
            f"A {caller.role} may not do this.",
            next=f"Use a token with one of these roles: {roles}.",
            facts={"role": caller.role},
        )


def _authorization(request: Request) -> bytes:
    return request.headers.get("authorization", "").encode("latin-1")


def _digest(request: Request) -> bytes:
    """Return a digest of the headers that carry credentials."""
    cookie = request.headers.get("cookie", "").encode("latin-1")
    return hashlib.sha256(_authorization(request) + b"\0" + cookie).digest()
