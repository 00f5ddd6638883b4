"""Read sessions. Each read is one query."""

from __future__ import annotations

import json
import math
from typing import Any

from outlast.store.commands import SESSION
from outlast.store.session_rows import FieldQuery, SessionQuery, SessionRow, sessions_of
from outlast.store.sqlite import statements as sql


class SessionReads:
    """The reads of sessions. A subclass has the connection and the clock."""

    def now(self) -> float:
        raise NotImplementedError

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        raise NotImplementedError

    def session(
        self,
        id: str,
        space: str = SESSION,
        *,
        names: tuple[str, ...] | None = None,
        values: bool = True,
    ) -> SessionRow | None:
        asked = {"space": space, "session": id, "now": self.now(), "values": values}
        if names is None:
            found = self._read(sql.SESSION, asked)
        else:
            listed = json.dumps(names, ensure_ascii=False)
            found = self._read(sql.SESSION_NAMED, asked | {"names": listed})
        return next(iter(sessions_of(found)), None)

    def fields(self, query: FieldQuery) -> SessionRow | None:
        limit = -1 if query.limit is None else query.limit
        values = {**query._asdict(), **query.range._asdict(), "limit": limit, "now": self.now()}
        found = self._read(sql.SESSION_FIELDS[query.range.above, query.reverse], values)
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
            "now": self.now(),
        }
        return [value for (value,) in self._read(sql.SESSION_ITEMS, values)]

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        updated, id = query.before or (math.inf, "")
        values = {
            **query._asdict(),
            **query.range._asdict(),
            "before_updated": updated,
            "before_id": id,
            "now": self.now(),
        }
        if query.by_id:
            statement = sql.SESSIONS_BY_ID[query.range.above]
        else:
            statement = sql.SESSIONS_WITH_PREFIX if query.prefix else sql.SESSIONS
        return sessions_of(self._read(statement, values))
