"""Read sessions from Postgres."""

from __future__ import annotations

from typing import Any

from outlast.store.postgres import session_statements as sql
from outlast.store.sql_session_reads import SessionStatements, SqlSessionReads


class SessionReads(SqlSessionReads):
    """The reads of sessions. A subclass has the connection and the clock."""

    _sessions = SessionStatements(
        session=sql.SESSION,
        named=sql.SESSION_NAMED,
        items=sql.ITEMS,
        sessions=sql.SESSIONS,
        fields=lambda names, reverse: sql.fields(names, reverse=reverse),
        with_prefix=sql.sessions_with_prefix,
        by_id=sql.sessions_by_id,
    )

    def _read(self, statement: str, values: Any = None, **fragments: str) -> list[Any]:
        raise NotImplementedError

    def _array(self, names: tuple[str, ...]) -> list[str]:
        return list(names)
