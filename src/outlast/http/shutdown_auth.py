"""Decide who may end a worker over HTTP or read what it is doing, and read the reason they give.

With a configured secret, every request to these routes must carry it, even one from this machine: a
proxy on the same host makes every client loopback, and a default nginx does not say that it
forwards.

Without a secret, the Host header must name this server: localhost, a loopback address, the
configured address, or the address that the connection came to. A web page whose own name resolves
to this machine (DNS rebinding) sends that name. Ending the worker also requires a peer on this
machine that is neither a proxy that says so (Forwarded, X-Forwarded-..., X-Real-IP, Via) nor a
browser (Origin, Sec-Fetch-Site).
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from outlast.errors import SettingsError
from outlast.http.request_origin import (
    is_local,
    is_unix,
    names_this_server,
    says_it_was_forwarded,
)

BODY_BYTES_MAX = 1024
BODY_SECONDS_MAX = 5.0

_BROWSER = ("origin", "sec-fetch-site")


class ShutdownAuthorizer:
    """Admit requests by the secret, or without one by their origin and Host header.

    `host` is the name or address that the server was configured to listen on.
    """

    def __init__(self, secret: str, host: str = "") -> None:
        # A header's value cannot begin or end with a space.
        secret = secret.strip()
        if any(char < " " or char == "\x7f" for char in secret):
            raise SettingsError(
                "http_secret has a control character, which no HTTP header can carry."
            )
        self._needs_secret, self._host = bool(secret), host.lower()
        # Without a secret, use a random one: both cases take the same path and time.
        self._secret = (secret or secrets.token_hex(32)).encode(errors="surrogateescape")

    def admits(self, scope: Mapping[str, Any]) -> bool:
        """Return whether this request may change something."""
        headers = Headers(scope=dict(scope))
        has_secret = self._has_secret(headers)
        if has_secret or self._needs_secret:
            return has_secret
        return (
            is_local(scope)
            and not says_it_was_forwarded(headers)
            and not any(name in headers for name in _BROWSER)
            and names_this_server(scope, headers, self._host)
        )

    def shows(self, scope: Mapping[str, Any]) -> bool:
        """Return whether this request may read what the worker is doing."""
        headers = Headers(scope=dict(scope))
        has_secret = self._has_secret(headers)
        if has_secret or self._needs_secret:
            return has_secret
        return names_this_server(scope, headers, self._host)

    def _has_secret(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").encode("latin-1").partition(b" ")
        return hmac.compare_digest(token.strip(), self._secret) and scheme.lower() == b"bearer"


def peer_of(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    if client is None:
        return "a unix socket" if is_unix(scope) else "an unnamed peer"
    return str(client[0])


class Unreadable(Exception):
    """The body of a request cannot be used. Nothing was started."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


async def reason_in(request: Request) -> str:
    """Return the reason in the body, fit for one log line; "" if there is none.

    Raise Unreadable if the body is not usable.
    """
    body = await _body(request)
    if not body:
        return ""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable(400, 'the body is not JSON. Send {"reason": "..."} or no body.') from None
    reason = document.get("reason", "") if isinstance(document, dict) else None
    if not isinstance(reason, str):
        raise Unreadable(400, 'the reason is not text. Send {"reason": "..."} or no body.')
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
