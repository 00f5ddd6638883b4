"""Create and check ids and names that every store can hold and every terminal can show."""

from __future__ import annotations

import re
import secrets
import time

from outlast.errors import BadName, LimitExceeded

_separators = re.compile(r"[%/#\[\]]")
_escaped = re.compile("%(25|2F|23|5B|5D)")
_unprintable = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def new_ids(count: int) -> list[str]:
    """Return unique ids in ascending order.

    They begin with the time, so a store's index appends each one after the existing ids. A commit
    of a thousand ids touches some tens of index pages, however large the index is. Random ids would
    touch a thousand.
    """
    start, chance = time.time_ns(), secrets.token_hex(8 * count)
    return [
        f"{start + number:016x}{chance[16 * number : 16 * number + 16]}" for number in range(count)
    ]


def check_id(id: str, length_max: int, what: str = "id") -> str:
    """Check an id. It may be any printable text, because it never becomes a path or a statement."""
    return _check(id, length_max, what, "id_length_max")


def check_name(name: str, length_max: int, what: str = "name") -> str:
    """Check the name of a step, workflow, message, unit or scope. It may be any printable text."""
    return _check(name, length_max, what, "name_length_max")


def check_queue_name(name: str, length_max: int) -> str:
    """Check the name of a queue. `/` and `#` are reserved."""
    _check(name, length_max, "queue name", "name_length_max")
    if "/" in name or "#" in name:
        raise BadName(f"queue name {name!r} contains '/' or '#'. Use another character.")
    return name


def escape_name(name: str) -> str:
    """Replace the characters that separate the parts of a call's key.

    Different names stay different.
    """
    if _separators.search(name) is None:
        return name
    return _separators.sub(lambda found: f"%{ord(found[0]):02X}", name)


def unescape_name(name: str) -> str:
    """Return the name that `escape_name` was given."""
    return _escaped.sub(lambda found: chr(int(found[1], 16)), name)


def check_field(name: str, length_max: int) -> str:
    """Check the name of a session's field. It may be any printable text."""
    return _check(name, length_max, "field name", "name_length_max")


def _check(text: str, length_max: int, what: str, limit: str) -> str:
    if not isinstance(text, str) or not text:
        raise BadName(f"{what} must be a non-empty string, not {text!r}.")
    if len(text) > length_max:
        raise LimitExceeded(limit, length_max, len(text), f"{what} {text[:40]!r}…")
    if _unprintable.search(text):
        raise BadName(
            f"{what} {text[:80]!r} has a character that cannot be stored or shown. "
            "Use printable text."
        )
    return text
