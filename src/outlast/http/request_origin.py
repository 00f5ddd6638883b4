"""Tell where a request comes from: this machine, a proxy, and which host it was sent to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers

from outlast.settings.http_address import is_loopback, is_same_address, is_unspecified

_FORWARDED = ("forwarded", "via", "x-real-ip")
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.-]+))(?::\d{1,5})?", re.ASCII | re.IGNORECASE
)


def is_local(scope: Mapping[str, Any]) -> bool:
    """Return whether the peer is on this host: over loopback, or over a unix socket."""
    client = scope.get("client")
    return is_unix(scope) if client is None else is_loopback(str(client[0]))


def is_unix(scope: Mapping[str, Any]) -> bool:
    """Return whether the request came over a unix socket.

    A missing peer address is no proof: a remote peer that reset its connection before it was
    accepted has none either, while its data can still be read (observed). The server's own address
    is proof: on a unix socket it is a path without a port.
    """
    server = scope.get("server")
    return scope.get("client") is None and server is not None and server[1] is None


def says_it_was_forwarded(headers: Headers) -> bool:
    """Return whether a proxy names itself in the headers."""
    return any(name in _FORWARDED or name.startswith("x-forwarded-") for name in headers)


def names_this_server(scope: Mapping[str, Any], headers: Headers, configured: str) -> bool:
    """Return whether the only Host header names this server.

    A web page whose own name resolves to this machine (DNS rebinding) sends that name.
    `configured` is the host that the server listens on, in lower case.
    """
    hosts = headers.getlist("host")
    parts = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if parts is None:
        return False
    host = (parts["six"] or parts["name"]).lower()
    if host == "localhost" or is_loopback(host):
        return True
    # Browsers let a page send requests to 0.0.0.0, which is this machine.
    if is_unspecified(host):
        return False
    server = scope.get("server")
    return host == configured or (server is not None and is_same_address(host, str(server[0])))
