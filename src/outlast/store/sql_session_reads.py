"""Read sessions from a SQL store. Each read is one query."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from outlast.store.commands import SESSION
from outlast.store.session_rows import (
    FieldQuery,
    NameRange,
    SessionQuery,
    SessionRow,
    sessions_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatements:
    """The statements of one SQL store. Some depend on a range of names."""

    session: str
    named: str
    items: str
    sessions: str
    fields: Callable[[NameRange, bool], str]
    """The bool says whether the order is reversed."""
    with_prefix: Callable[[NameRange], str]
    by_id: Callable[[NameRange], str]


class SqlSessionReads:
    """The reads of sessions. A subclass has the statements, the connection and the clock."""

    _sessions: ClassVar[SessionStatements]

    def _at(self) -> float | None:
        """Return the time to send with a query. None means the server's own time."""
        raise NotImplementedError

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        """Return the rows of a query. Raise a StoreError."""
        raise NotImplementedError

    def _array(self, names: tuple[str, ...]) -> Any:
        """Return names as one value of a query."""
        raise NotImplementedError

    def _limit(self, limit: int | None) -> int | None:
        """Return a limit as the store writes it. None means no limit."""
        return limit

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
            found = self._read(self._sessions.session, asked)
        else:
            found = self._read(self._sessions.named, asked | {"names": self._array(names)})
        return next(iter(sessions_of(found)), None)

    def fields(self, query: FieldQuery) -> SessionRow | None:
        values = {
            **query._asdict(),
            **query.range._asdict(),
            "limit": self._limit(query.limit),
            "now": self._at(),
        }
        found = self._read(self._sessions.fields(query.range, query.reverse), values)
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
        return [value for (value,) in self._read(self._sessions.items, values)]

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
            statement = self._sessions.by_id(query.range)
        elif query.prefix:
            statement = self._sessions.with_prefix(query.range)
        else:
            statement = self._sessions.sessions
        return sessions_of(self._read(statement, values))
