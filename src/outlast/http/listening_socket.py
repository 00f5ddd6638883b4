"""Open the socket that the HTTP server listens on."""

from __future__ import annotations

import errno
import socket
import sys

from outlast.errors import SettingsError
from outlast.settings.http_address import HOW_TO_WRITE, LOOPBACK, parse

_BACKLOG = 64


def listen(address: str) -> socket.socket:
    """Return a listening socket that other programs do not inherit.

    Raise SettingsError at once if the address cannot be used.
    """
    host, port = parse(address)
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"http={address!r}: {host!r} cannot be resolved ({error}). {HOW_TO_WRITE}"
        ) from None
    listener = socket.socket(family, kind, proto)
    try:
        # On Windows this would let two processes share a port.
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
        listener.listen(_BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise SettingsError(f"http={address!r}: {_why(error)}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of the listener for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "the address is in use, perhaps by another worker on this machine. Give each worker "
            "its own port, or port 0 for any free port (OUTLAST_HTTP=127.0.0.1:0)."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"no interface of this machine has that address. {HOW_TO_WRITE}"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "this user may not listen there. Use a port of 1024 or above."
    return f"cannot listen there ({error.strerror or error}). {HOW_TO_WRITE}"
