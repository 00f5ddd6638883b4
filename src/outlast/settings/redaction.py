"""Mask secrets for logs, messages and terminals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MASK = "***"
SECRET = {"http_secret", "api_tokens", "token"}
"""Settings that are masked completely."""
ADDRESSES = {"store", "server"}
"""Settings that may contain a password."""

_SECRET_PART = re.compile(
    r"(?P<name>(?<![^?&\s])"
    r"(?:\w*(?:password|passwd|pwd|secret|token|api_?key)|[\w.-]*%[\w.%-]*)\s*=\s*)"
    r"(?P<value>'[^']*'?|\"[^\"]*\"?|[^&\s]*)",
    re.IGNORECASE,
)
"""It also matches an option whose name contains %: the only reason to write one so is to hide it.
"""
_PARTS = re.compile(
    r"(?P<scheme>[a-z][\w+.-]*:(?=//)"
    r"|(?:postgres(?:ql)?(?:\+\w+)?|rediss?|unix|sqlite|file|memory):|)"
    r"(?P<slashes>/*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_PATHS = ("sqlite:", "file:", "memory:")
"""Schemes whose addresses are paths: an `@` in one is part of a name."""
_LOGIN = re.compile(r":[^/@]*@")


def masked(address: str) -> str:
    """Return a store's address without its password: `postgresql://user:***@host/database`.

    Everything before the last `@` counts as a user and a password: a password with a `/`, `?` or
    `@` may not have been quoted, and an extra slash is a common typo. A port that is not a number
    is masked too. So this may hide more than necessary, but never less.
    """
    found = _PARTS.fullmatch(_SECRET_PART.sub(rf"\g<name>{MASK}", address))
    # Every part of the pattern may be empty.
    assert found is not None
    scheme, slashes, rest = found.groups()
    user_info, at, where = rest.rpartition("@")
    if scheme.lower() in _PATHS:
        if not _LOGIN.search(unquote(rest)):
            return f"{scheme}{slashes}{rest}"
        # All of it is percent-encoded.
        if not at:
            return f"{scheme}{slashes}{MASK}"
    elif slashes or at:
        end = min(place for mark in "/?#" if (place := f"{where}{mark}".find(mark)) >= 0)
        where = ",".join(map(_without_port, where[:end].split(","))) + where[end:]
    if at and (
        slashes != "//" or not _is_plain(user_info) or scheme.lower().startswith(("redis", "unix"))
    ):
        # A user name with special characters could be anything, and Redis has passwords without a
        # name.
        user, colon, _ = user_info.partition(":")
        user_info = (
            f"{user if colon and _is_plain(user) and (slashes or not scheme) else ''}:{MASK}"
        )
    return f"{scheme}{slashes}{user_info}{at}{where}"


def secrets_of(settings: Any) -> Iterator[str]:
    """Yield every secret in the settings."""
    yield from (getattr(settings, name) for name in SECRET)
    # A log line may have one token of the list.
    yield from (item.rpartition(":")[2] for item in settings.api_tokens.replace(",", " ").split())
    for name in ADDRESSES:
        address = getattr(settings, name)
        yield from (found["value"].strip("'\"") for found in _SECRET_PART.finditer(address))
        scheme, _, rest = address.partition("//")
        if not scheme.lower().startswith(_PATHS):
            user, colon, password = rest.rpartition("@")[0].partition(":")
            # Redis has passwords without a name; `default` is its name for clients that give none.
            alone = scheme.lower().startswith("redis") and not colon and user != "default"
            yield user if alone else password


def _without_port(host: str) -> str:
    return host if _HOST.fullmatch(host) else f"{host.partition(':')[0]}:{MASK}"


def for_display(name: str, value: Any) -> str:
    """Return a setting's value for a message, with its secrets masked."""
    if name in SECRET:
        return MASK if value else "''"
    return repr(masked(value) if name in ADDRESSES and isinstance(value, str) else value)


def _is_plain(text: str) -> bool:
    return not set(text) & set(":/?#@&=")
