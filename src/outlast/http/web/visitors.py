"""Identify the visitor of a page."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from outlast.http.rest.access import Authenticate, Gate
from outlast.http.rest.problems import Problem
from outlast.http.rest.roles import Caller
from outlast.http.rest.tokens import Tokens
from outlast.http.web.signed_cookies import SESSION_SECONDS, caller_in, csrf_token, make_cookie


class Visitor(NamedTuple):
    """The visitor of a page."""

    caller: Caller
    cookie: str
    """The value of the visitor's cookie. It is set with the answer if the request had none."""

    @property
    def csrf(self) -> str:
        return csrf_token(self.cookie)


class Visitors:
    """Know visitors by a cookie after they signed in with a token, or by the program's own check.

    Raise SettingsError unless exactly one of the two ways is given.
    """

    def __init__(self, tokens: Tokens, authenticate: Authenticate | None) -> None:
        self._tokens = tokens
        self._gate = Gate(tokens, authenticate, insecure_loopback=False)
        self.sign_in_is_ours = authenticate is None

    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor of a request.

        None if nobody is signed in. Raise Problem if the program's own check refuses the request.
        """
        cookie = request.cookies.get(cookie_name(request), "")
        if self.sign_in_is_ours:
            caller = caller_in(cookie, self._tokens)
            return None if caller is None else Visitor(caller, cookie)
        caller = await self._gate.caller(request)
        return Visitor(caller, cookie or secrets.token_urlsafe(32))

    async def sign_in(self, request: Request, token: str) -> Visitor | None:
        """Return the visitor with this token, or None. Raise Problem 429 after too many tries."""
        given = token.strip().encode()
        scope = {**request.scope, "headers": [(b"authorization", b"Bearer " + given)]}
        try:
            caller = await self._gate.caller(Request(scope))
        except Problem as problem:
            if problem.status == 401:
                return None
            raise
        return Visitor(caller, make_cookie(caller, given, self._tokens))


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. Ports of one host share cookies, so it has the port."""
    return f"outlast_ui_{request.url.port or ''}"


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Give the visitor the cookie, for the paths of this UI alone."""
    response.set_cookie(
        cookie_name(request),
        value,
        max_age=SESSION_SECONDS,
        path=str(request.scope.get("root_path", "")) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def delete_cookie(request: Request, response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(
        cookie_name(request),
        path=str(request.scope.get("root_path", "")) or "/",
        httponly=True,
        samesite="strict",
    )
