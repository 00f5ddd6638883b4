"""Parse the address that the HTTP server listens on: `host:port`."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

from outlast.errors import SettingsError

LOOPBACK = "127.0.0.1"
HOW_TO_WRITE = (
    "Write host:port: 127.0.0.1:8080 or :8080 (this machine only), 0.0.0.0:8080 (every "
    "interface, as in a pod), [::1]:8080, or port 0 for any free port."
)
_ADDRESS = re.compile(
    r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^\s:\[\]/@]*)):(?P<port>[0-9]{1,5})", re.ASCII
)


def parse(address: str) -> tuple[str, int]:
    """Return the host and the port. No host means loopback: leaving something out admits no one.

    Raise SettingsError for an invalid address.
    """
    parts = _ADDRESS.fullmatch(address.strip())
    if parts is None:
        raise SettingsError(f"http={address!r} is not an address. {HOW_TO_WRITE}")
    host = parts["six"] or parts["host"] or LOOPBACK
    port = int(parts["port"])
    if port > 65535:
        raise SettingsError(
            f"http={address!r}: there is no port {port}, only 0 to 65535. {HOW_TO_WRITE}"
        )
    if parts["six"] is not None and not _is_six(host):
        raise SettingsError(f"http={address!r}: {host!r} is not an IPv6 address. {HOW_TO_WRITE}")
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


def _is_six(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False
