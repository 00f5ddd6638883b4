"""Read sessions from SQLite."""

from __future__ import annotations

import json

from outlast.store.sql_session_reads import SessionStatements, SqlSessionReads
from outlast.store.sqlite import statements as sql


class SessionReads(SqlSessionReads):
    """The reads of sessions. A subclass has the connection and the clock."""

    _sessions = SessionStatements(
        session=sql.SESSION,
        named=sql.SESSION_NAMED,
        items=sql.SESSION_ITEMS,
        sessions=sql.SESSIONS,
        fields=lambda names, reverse: sql.SESSION_FIELDS[names.above, reverse],
        with_prefix=lambda _: sql.SESSIONS_WITH_PREFIX,
        by_id=lambda names: sql.SESSIONS_BY_ID[names.above],
    )

    def now(self) -> float:
        raise NotImplementedError

    def _at(self) -> float:
        return self.now()

    def _array(self, names: tuple[str, ...]) -> str:
        return json.dumps(names, ensure_ascii=False)

    def _limit(self, limit: int | None) -> int:
        return -1 if limit is None else limit
