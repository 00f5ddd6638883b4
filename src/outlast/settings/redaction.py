"""Secrets, as they may be shown: in logs, in messages, on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MASK = "***"
SECRET = {"http_secret"}
"""Settings of which not even a part may be seen."""
ADDRESSES = {"store"}
"""Settings in which a password may be."""

_SECRET_PART = re.compile(
    r"(?P<name>(?<![^?&\s])(?:\w*(?:password|passwd|pwd|secret|token|api_?key)|[\w.-]*%[\w.%-]*)\s*=\s*)"
    r"(?P<value>'[^']*'?|\"[^\"]*\"?|[^&\s]*)",
    re.IGNORECASE,
)
"""Also an option whose name is written with %: nobody does that but to hide it."""
_PARTS = re.compile(
    r"(?P<scheme>[a-z][\w+.-]*:(?=//)|(?:postgres(?:ql)?(?:\+\w+)?|rediss?|unix|sqlite|file|memory):|)(?P<slashes>/*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_PATHS = ("sqlite:", "file:", "memory:")
"""Schemes of addresses that are paths: an `@` in one is part of a name."""
_LOGIN = re.compile(r":[^/@]*@")


def masked(address: str) -> str:
    """An address of a store without its password: `postgresql://user:***@host/database`.

    Whatever is in front of the last `@` is taken for a name and a password, for one with a `/`, `?` or `@` in it may not have been
    quoted, and a slash too many is soon written; and what should be a port, and is no number. So more may be hidden than had to be,
    never less.
    """
    found = _PARTS.fullmatch(_SECRET_PART.sub(rf"\g<name>{MASK}", address))
    assert found is not None  # it may all be empty
    scheme, slashes, rest = found.groups()
    who, at, where = rest.rpartition("@")
    if scheme.lower() in _PATHS:
        if not _LOGIN.search(unquote(rest)):
            return f"{scheme}{slashes}{rest}"
        if not at:  # it is all quoted
            return f"{scheme}{slashes}{MASK}"
    elif slashes or at:
        end = min(place for mark in "/?#" if (place := f"{where}{mark}".find(mark)) >= 0)
        where = ",".join(map(_without_port, where[:end].split(","))) + where[end:]
    if at and (
        slashes != "//" or not _is_plain(who) or scheme.lower().startswith(("redis", "unix"))
    ):
        # Of a name that is no plain one nobody knows what it is, and Redis has passwords without a name.
        user, colon, _ = who.partition(":")
        who = f"{user if colon and _is_plain(user) and (slashes or not scheme) else ''}:{MASK}"
    return f"{scheme}{slashes}{who}{at}{where}"


def secrets_of(settings: Any) -> Iterator[str]:
    """Everything in the settings that must not be seen."""
    yield from (getattr(settings, name) for name in SECRET)
    for name in ADDRESSES:
        address = getattr(settings, name)
        yield from (found["value"].strip("'\"") for found in _SECRET_PART.finditer(address))
        scheme, _, rest = address.partition("//")
        if not scheme.lower().startswith(_PATHS):
            user, colon, password = rest.rpartition("@")[0].partition(":")
            # Redis has passwords without a name; `default` is the name that it gives to whoever has none.
            alone = scheme.lower().startswith("redis") and not colon and user != "default"
            yield user if alone else password


def _without_port(host: str) -> str:
    return host if _HOST.fullmatch(host) else f"{host.partition(':')[0]}:{MASK}"


def shown(name: str, value: Any) -> str:
    """The value of a setting for a message."""
    if name in SECRET:
        return MASK if value else "''"
    return repr(masked(value) if name in ADDRESSES and isinstance(value, str) else value)


def _is_plain(text: str) -> bool:
    return not set(text) & set(":/?#@&=")
