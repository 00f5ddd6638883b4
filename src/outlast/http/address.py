"""Parse and open the address that the server listens on: `host:port`."""

from __future__ import annotations

import errno
import re
import socket
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address

from outlast.errors import SettingsError

LOOPBACK = "127.0.0.1"
_BACKLOG = 64
_ADDRESS = re.compile(
    r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^\s:\[\]/@]*)):(?P<port>[0-9]{1,5})", re.ASCII
)

_WRITE = (
    "Write host:port: 127.0.0.1:8080 or :8080 (this machine only), 0.0.0.0:8080 (everybody, as in a pod), [::1]:8080, "
    "or port 0 for any free one."
)


def parse(address: str) -> tuple[str, int]:
    """Return the host and the port. No host means loopback: leaving something out admits no one.

    Raise SettingsError for an invalid address.
    """
    parts = _ADDRESS.fullmatch(address.strip())
    if parts is None:
        raise SettingsError(f"http={address!r} is not an address. {_WRITE}")
    host, port = parts["six"] or parts["host"] or LOOPBACK, int(parts["port"])
    if port > 65535:
        raise SettingsError(f"http={address!r}: there is no port {port}, only 0 to 65535. {_WRITE}")
    if parts["six"] is not None and not _is_six(host):
        raise SettingsError(f"http={address!r}: {host!r} is not an IPv6 address. {_WRITE}")
    return host, port


def is_loopback(host: str) -> bool:
    """Return whether this is an address, not a name, that only this machine can reach."""
    found = _ip(host)
    return found is not None and found.is_loopback


def is_unspecified(host: str) -> bool:
    """Return whether this is 0.0.0.0 or ::, which stands for every address of this machine."""
    found = _ip(host)
    return found is not None and found.is_unspecified


def is_same_address(one: str, other: str) -> bool:
    """Return whether both are addresses, not names, and equal."""
    found = _ip(one)
    return found is not None and found == _ip(other)


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address; None for a name. A mapped IPv4 address becomes the IPv4 one."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_for_this_machine(address: str) -> bool:
    """Return whether only this machine can reach a server at this address.

    Raise SettingsError for an invalid address.
    """
    host, _ = parse(address)
    return host.lower() == "localhost" or is_loopback(host)


def listen(address: str) -> socket.socket:
    """Return a listening socket that other programs do not inherit.

    Raise SettingsError at once if the address cannot be used.
    """
    host, port = parse(address)
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"http={address!r}: {host!r} cannot be resolved ({error}). {_WRITE}"
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
    """Return the URL that reaches the listener from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_six(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "the address is in use, perhaps by another worker of this machine. Give each a port of its own, or port 0 for any free "
            "one (OUTLAST_HTTP=127.0.0.1:0)."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"no interface of this machine has that address. {_WRITE}"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "this user may not listen there. Take a port from 1024 on."
    return f"cannot listen there ({error.strerror or error}). {_WRITE}"
