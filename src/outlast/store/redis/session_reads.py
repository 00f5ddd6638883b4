"""Read sessions from a Redis store. Each read is one call of the script, or a series of pages."""

from __future__ import annotations

import json
from typing import Any

from outlast.store.commands import SESSION
from outlast.store.protocol import BadValue
from outlast.store.redis import decode
from outlast.store.session_rows import NAMES_MAX, FieldQuery, SessionQuery, SessionRow

PAGE = 1_000
"""The most sessions that one call looks at."""
FIELDS_MAX = 2**53
"""The limit of a read that has none."""


class SessionReads:
    """The reads of sessions. A subclass has the connection."""

    def _read(self, name: str, *arguments: Any) -> Any:
        raise NotImplementedError

    def session(
        self,
        id: str,
        space: str = SESSION,
        *,
        names: tuple[str, ...] | None = None,
        values: bool = True,
    ) -> SessionRow | None:
        listed = "" if names is None else _json(sorted(names))
        return _row(self._read("session", space, id, listed, "1" if values else "0"))

    def fields(self, query: FieldQuery) -> SessionRow | None:
        limit = FIELDS_MAX if query.limit is None else query.limit
        asked = {**query._asdict(), **_range(query), "limit": limit}
        return _row(self._read("fields", _json(asked)))

    def items(
        self,
        session: str,
        field: str,
        start: int = 0,
        stop: int | None = None,
        space: str = SESSION,
    ) -> list[str]:
        end = "" if stop is None else stop
        found: list[str] = self._read("items", space, session, field, start, end)
        return found

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        if query.by_id:
            return self._by_id(query)
        return self._with_prefix(query) if query.prefix else self._last_changed(query)

    def _last_changed(self, query: SessionQuery) -> list[SessionRow]:
        rows: list[SessionRow] = []
        skip = 0
        asked: dict[str, Any] = {"look": PAGE, **_wanted(query)}
        if query.before is not None:
            asked["before"], asked["id"] = query.before
        while len(rows) < query.limit:
            looked, found = self._read("sessions", _json(asked | {"skip": skip}))
            rows += map(decode.session_row, found)
            skip += int(looked)
            if int(looked) < PAGE:
                break
        return rows[: query.limit]

    def _with_prefix(self, query: SessionQuery) -> list[SessionRow]:
        """Read all sessions with the prefix without their fields, and then the ones to list."""
        heads = self._pages(query, {"space": query.space}, PAGE * PAGE)
        heads.sort(key=lambda row: (row.updated, row.id), reverse=True)
        before = query.before
        chosen = [row for row in heads if before is None or (row.updated, row.id) < before]
        rows = []
        for head in chosen[: query.limit]:
            exact = {"space": query.space, "low": head.id, "look": 1, **_wanted(query)}
            _, found = self._read("sessions_by_id", _json(exact | {"limit": 1}))
            # One that has been deleted since is left out, and so is its neighbour.
            rows += [row for row in map(decode.session_row, found) if row.id == head.id]
        return rows

    def _by_id(self, query: SessionQuery) -> list[SessionRow]:
        return self._pages(query, _wanted(query), query.limit)

    def _pages(self, query: SessionQuery, wanted: dict[str, Any], limit: int) -> list[SessionRow]:
        rows: list[SessionRow] = []
        asked = wanted | _range(query)
        while len(rows) < limit:
            left = limit - len(rows)
            page = {"limit": left, "look": min(PAGE, left)}
            last, found = self._read("sessions_by_id", _json(asked | page))
            rows += map(decode.session_row, found)
            if last is None:
                break
            asked |= {"low": last, "above": True}
        return rows


def _wanted(query: SessionQuery) -> dict[str, Any]:
    return {"space": query.space, "names": NAMES_MAX, "values": query.values}


def _range(query: SessionQuery | FieldQuery) -> dict[str, Any]:
    return {name: part for name, part in query.range._asdict().items() if part is not None}


def _row(found: Any) -> SessionRow | None:
    return decode.session_row(found) if found else None


def _json(asked: Any) -> str:
    """Encode what is asked for. Raise BadValue for a text that cannot be stored."""
    text = json.dumps(asked, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadValue(f"a text cannot be stored: {error}") from None
    return text
