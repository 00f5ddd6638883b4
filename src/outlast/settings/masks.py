"""Secrets, as they may be shown: in logs, in messages, on a terminal."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
SECRET = {"http_secret"}
"""Settings of which not even a part may be seen."""
ADDRESSES = {"store"}
"""Settings in which a password may be."""

_SECRET_PART = re.compile(
    r"(?P<name>(?<![^?&\s])\w*(?:password|passwd|pwd|secret|token|api_?key)\s*=\s*)(?P<value>'[^']*'?|\"[^\"]*\"?|[^&\s]*)",
    re.IGNORECASE,
)


def masked(address: str) -> str:
    """An address of a store without its password: `postgresql://user:***@host/database`.

    Whatever is in front of the last `@` is taken for a name and a password, for one with a `/`, `?` or `@` in it may not have been
    quoted. So more may be hidden than had to be, never less.
    """
    scheme, mark, rest = _SECRET_PART.sub(rf"\g<name>{MASK}", address).partition("://")
    if not mark:
        scheme, rest = "", scheme
    if not rest.startswith("/"):  # a path, and no host
        who, at, where = rest.rpartition("@")
        if ":" in who or "?" in who or "/" in who or (at and scheme.startswith("redis")):
            # Of a name that is no plain one nobody knows what it is, and Redis has passwords without a name.
            user, colon, _ = who.partition(":")
            who = f"{user if colon and _is_plain(user) else ''}:{MASK}"
        rest = f"{who}{at}{where}"
    return f"{scheme}{mark}{rest}"


def shown(name: str, value: Any) -> str:
    """The value of a setting for a message."""
    if name in SECRET:
        return MASK if value else "''"
    return repr(masked(value) if name in ADDRESSES and isinstance(value, str) else value)


def _is_plain(text: str) -> bool:
    return not set(text) & set("/?#@&=")
