"""Who may end a worker over HTTP, and what they said.

Loopback is enough, unless somebody else may be speaking through it:

    a proxy on this host        says that it forwards; then the peer is not the one who asks
    a web page (CSRF)           its browser sends Origin and Sec-Fetch-Site
    a rebound name              a browser is led to loopback under a name of the attacker's, which is in Host

Whoever has the secret needs none of that.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from outlast.errors import SettingsError
from outlast.http.address import is_loopback

BODY_BYTES_MAX = 1024
BODY_SECONDS_MAX = 5.0

_FORWARDED = ("forwarded", "via", "x-real-ip")
_BROWSER = ("origin", "sec-fetch-site")
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.-]+))(?::\d{1,5})?", re.ASCII | re.IGNORECASE
)


class Gate:
    def __init__(self, secret: str) -> None:
        secret = secret.strip()  # a header's value cannot begin or end with a space
        if any(char < " " or char == "\x7f" for char in secret):
            raise SettingsError("http_secret has a control character, which no HTTP header can carry.")
        # Where there is no secret there is one that nobody knows: both cases take the same way and time.
        self._secret = (secret or secrets.token_hex(32)).encode(errors="surrogateescape")

    def admits(self, scope: Mapping[str, Any]) -> bool:
        headers = Headers(scope=dict(scope))
        return self._has_secret(headers) or (
            _is_local(scope)
            and not any(name in _FORWARDED or name.startswith("x-forwarded-") for name in headers)
            and not any(name in headers for name in _BROWSER)
            and _names_loopback(headers.getlist("host"))
        )

    def _has_secret(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(token.strip(), self._secret) and scheme.lower() == b"bearer"


def _is_local(scope: Mapping[str, Any]) -> bool:
    """Whether the peer is on this host: by loopback, or by a unix socket."""
    client = scope.get("client")
    return _is_unix(scope) if client is None else is_loopback(str(client[0]))


def _is_unix(scope: Mapping[str, Any]) -> bool:
    """A peer without an address is no proof: so is a remote one that reset its connection before it was accepted, while what it
    sent can still be read (seen). The server's own address tells: on a unix socket it is a path, without a port."""
    server = scope.get("server")
    return scope.get("client") is None and server is not None and server[1] is None


def _names_loopback(hosts: list[str]) -> bool:
    parts = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if parts is None:
        return False
    return (parts["name"] or "").lower() == "localhost" or is_loopback(parts["six"] or parts["name"])


def peer_of(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    if client is None:
        return "a unix socket" if _is_unix(scope) else "an unnamed peer"
    return str(client[0])


class Unreadable(Exception):
    """The body of a request cannot be used; nothing was begun."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


async def said(request: Request) -> str:
    """The reason that the body gives, fit for one line of a log; "" if it gives none."""
    body = await _body(request)
    if not body:
        return ""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable(400, 'the body is not JSON; {"reason": "..."} or nothing is expected') from None
    reason = document.get("reason", "") if isinstance(document, dict) else None
    if not isinstance(reason, str):
        raise Unreadable(400, '{"reason": "..."}, with a text, or no body is expected')
    return "".join(char if char.isprintable() else " " for char in reason).strip()


async def _body(request: Request) -> bytes:
    body = b""
    try:
        with anyio.fail_after(BODY_SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise Unreadable(413, f"the body is longer than {BODY_BYTES_MAX} bytes")
    except TimeoutError:
        raise Unreadable(408, f"the body was not complete after {BODY_SECONDS_MAX:g} s") from None
    except ClientDisconnect:
        raise Unreadable(400, "the body was not complete") from None
    return body
