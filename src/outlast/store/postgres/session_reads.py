"""Read sessions. Each read is one query."""

from __future__ import annotations

import math
from typing import Any

from outlast.store.commands import SESSION
from outlast.store.postgres import session_statements as sql
from outlast.store.session_rows import FieldQuery, SessionQuery, SessionRow, sessions_of


class SessionReads:
    """The reads of sessions. A subclass has the connection and the clock."""

    def _at(self) -> float | None:
        """Return the time to send with a call. None means the server's own time."""
        raise NotImplementedError

    def _read(self, statement: str, values: Any = None, **fragments: str) -> list[Any]:
        """Return the rows of a query. Raise a StoreError."""
        raise NotImplementedError

    def session(
        self,
        id: str,
        space: str = SESSION,
        *,
        names: tuple[str, ...] | None = None,
        values: bool = True,
    ) -> SessionRow | None:
        asked = {"space": space, "session": id, "now": self._at(), "values": values}
        if names is None:
            found = self._read(sql.SESSION, asked)
        else:
            found = self._read(sql.SESSION_NAMED, asked | {"names": list(names)})
        return next(iter(sessions_of(found)), None)

    def fields(self, query: FieldQuery) -> SessionRow | None:
        values = {**query._asdict(), **query.range._asdict(), "now": self._at()}
        found = self._read(sql.fields(query.range, reverse=query.reverse), values)
        return next(iter(sessions_of(found)), None)

    def items(
        self,
        session: str,
        field: str,
        start: int = 0,
        stop: int | None = None,
        space: str = SESSION,
    ) -> list[str]:
        values = {
            "space": space,
            "session": session,
            "field": field,
            "start": start,
            "stop": stop,
            "now": self._at(),
        }
        return [value for (value,) in self._read(sql.ITEMS, values)]

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        updated, id = query.before or (math.inf, "")
        values = {
            **query._asdict(),
            **query.range._asdict(),
            "before_updated": updated,
            "before_id": id,
            "now": self._at(),
        }
        if query.by_id:
            statement = sql.sessions_by_id(query.range)
        else:
            statement = sql.sessions_with_prefix(query.range) if query.prefix else sql.SESSIONS
        return sessions_of(self._read(statement, values))
