# ruff: noqa: S608 - only our own names are interpolated
"""The reads of sessions."""

from __future__ import annotations

from outlast.store.session_rows import NAMES_MAX, NameRange

_HEAD = "s.id, s.version, s.updated, s.expires, s.owner"
_THERE = "version > 0 AND (expires IS NULL OR expires > coalesce(%(now)s, {s}.seconds_{v}()))"
_SESSION = f"SELECT * FROM {{s}}.sessions WHERE space = %(space)s AND id = %(session)s AND {_THERE}"
_VALUE = "CASE WHEN f.first IS NOT NULL THEN NULL WHEN %(values)s THEN f.value ELSE '' END"
_COLUMNS = f"{_HEAD}, f.field, {_VALUE}, f.last - f.first + 1"

SESSION = f"""
SELECT {_COLUMNS} FROM ({_SESSION}) s
LEFT JOIN {{s}}.session_fields f ON f.session = s.pk ORDER BY f.field
"""
SESSION_NAMED = f"""
SELECT {_COLUMNS} FROM ({_SESSION}) s
LEFT JOIN {{s}}.session_fields f ON f.session = s.pk AND f.field = ANY(%(names)s) ORDER BY f.field
"""
_NAMED = f"""
LEFT JOIN LATERAL (
    (SELECT * FROM {{s}}.session_fields WHERE session = s.pk AND first IS NULL
        ORDER BY field LIMIT {NAMES_MAX})
    UNION ALL
    (SELECT * FROM {{s}}.session_fields WHERE session = s.pk AND first IS NOT NULL
        ORDER BY field LIMIT {NAMES_MAX})
) f ON true
"""
SESSIONS = f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM {{s}}.sessions WHERE space = %(space)s AND {_THERE}
        AND (updated, id) < (%(before_updated)s::float8, %(before_id)s)
    ORDER BY updated DESC, id DESC LIMIT %(limit)s
) s {_NAMED} ORDER BY s.updated DESC, s.id DESC, f.field
"""
ITEMS = f"""
SELECT i.value FROM ({_SESSION}) s
JOIN {{s}}.session_fields f ON f.session = s.pk AND f.field = %(field)s
JOIN {{s}}.session_items i ON i.session = f.session AND i.field = f.field
    AND i.number >= CASE WHEN %(start)s::bigint < 0
        THEN greatest(f.first, f.last + 1 + %(start)s::bigint) ELSE f.first + %(start)s::bigint END
    AND i.number <= CASE WHEN %(stop)s::bigint IS NULL THEN f.last
        WHEN %(stop)s::bigint < 0 THEN f.last + %(stop)s::bigint
        ELSE f.first + %(stop)s::bigint - 1 END
ORDER BY i.number
"""


def sessions_with_prefix(names: NameRange) -> str:
    """Return the statement that lists the last changed of the sessions in a range of ids.

    It reads these sessions alone, by their ids, and sorts them.
    """
    return f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM (
        SELECT * FROM {{s}}.sessions WHERE space = %(space)s AND {_in_range("id", names)}
            AND {_THERE} OFFSET 0
    ) found WHERE (updated, id) < (%(before_updated)s::float8, %(before_id)s)
    ORDER BY updated DESC, id DESC LIMIT %(limit)s
) s {_NAMED} ORDER BY s.updated DESC, s.id DESC, f.field
"""


def sessions_by_id(names: NameRange) -> str:
    """Return the statement that lists sessions in the order of their ids."""
    return f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM {{s}}.sessions WHERE space = %(space)s AND {_in_range("id", names)} AND {_THERE}
    ORDER BY id LIMIT %(limit)s
) s {_NAMED} ORDER BY s.id, f.field
"""


def fields(names: NameRange, *, reverse: bool) -> str:
    """Return the statement that reads the fields in a range of names."""
    order = "DESC" if reverse else "ASC"
    return f"""
SELECT {_HEAD}, f.field, f.value, NULL FROM ({_SESSION}) s LEFT JOIN LATERAL (
    SELECT * FROM {{s}}.session_fields
    WHERE session = s.pk AND {_in_range("field", names)} AND first IS NULL
    ORDER BY field {order} LIMIT %(limit)s
) f ON true ORDER BY f.field {order}
"""


def _in_range(column: str, names: NameRange) -> str:
    low = f"{column} {'>' if names.above else '>='} %(low)s"
    return low if names.high is None else f"{low} AND {column} < %(high)s"
