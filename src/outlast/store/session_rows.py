"""Define what the reads of sessions return, and the queries that select it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple


class SessionRow(NamedTuple):
    id: str
    version: int
    updated: float
    expires: float | None
    fields: dict[str, str]
    """The fields with a value, sorted by name. The values are empty if they were not asked for."""
    lists: dict[str, int] = {}  # noqa: RUF012 - never changed
    """The fields that are lists, with their number of items, sorted by name."""
    owner: int | None = None
    """The number under which the session was last taken."""


def sessions_of(found: Iterable[Sequence[Any]]) -> list[SessionRow]:
    """Build sessions from ordered rows, one per field.

    A row is (id, version, updated, expires, owner, field, value, number of items).
    """
    sessions = []
    for (*head, owner), rows in groupby(found, lambda row: row[:5]):
        fields: dict[str, str] = {}
        lists: dict[str, int] = {}
        for *_, field, value, count in rows:
            if count is not None:
                lists[field] = count
            elif field is not None:
                fields[field] = value
        sessions.append(SessionRow._make((*head, fields, lists, owner)))
    return sessions


NAMES_MAX = 100
"""How many fields, and how many lists, of each session a list of sessions names."""


class SessionQuery(NamedTuple):
    """Which sessions to list: last changed first, then by descending id; or in order of their ids.

    Each row names at most NAMES_MAX fields and as many lists.
    """

    space: str = "session"
    prefix: str = ""
    limit: int = 100
    before: tuple[float, str] | None = None
    """Start after the session with this `updated` and id."""
    by_id: bool = False
    after: str | None = None
    """With `by_id`, start after this id."""
    values: bool = False
    """Whether the fields come with their values."""

    @property
    def range(self) -> NameRange:
        return NameRange.of(self.prefix, self.after if self.by_id else None)


class FieldQuery(NamedTuple):
    """Which fields of a session to read: those with a value, in the order of their names."""

    session: str
    prefix: str = ""
    limit: int | None = None
    after: str | None = None
    """Start after this name. With `reverse`, that is before it."""
    reverse: bool = False
    space: str = "session"

    @property
    def range(self) -> NameRange:
        return NameRange.of(self.prefix, self.after, reverse=self.reverse)


class NameRange(NamedTuple):
    """Names from `low` up to `high`, which does not belong to them. None: without an end."""

    low: str
    high: str | None
    above: bool = False
    """Whether `low` does not belong to them either."""

    @classmethod
    def of(cls, prefix: str, after: str | None = None, *, reverse: bool = False) -> NameRange:
        """Return the range of the names that begin with `prefix` and come after `after`."""
        high = _end_of(prefix)
        if after is None:
            return cls(prefix, high)
        if reverse:
            return cls(prefix, after if high is None else min(high, after))
        return cls(after, high, above=True) if after >= prefix else cls(prefix, high)


def _end_of(prefix: str) -> str | None:
    """Return the first text after all that begin with `prefix`. None if there is none.

    Code points order texts as the bytes of UTF-8 do, which every store compares.
    """
    rest = prefix.rstrip(chr(sys.maxunicode))
    if not rest:
        return None
    last = ord(rest[-1]) + 1
    # No text has surrogates.
    return rest[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
