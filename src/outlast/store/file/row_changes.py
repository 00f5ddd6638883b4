"""Record what a transaction changes, row by row, with triggers on every table.

The triggers call back with the rows, so numbers are exact (SQLite's own JSON rounds them), and a
row changed five times is one change. They are temporary: a copy of the database has none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from outlast.store.file.line_format import JSON_COLUMNS

_INSERT, _OLD, _NEW, _DELETE = range(4)


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    json: frozenset[str]
    """Columns that are written as JSON."""
    implied: frozenset[str]
    """Columns that are NULL if a new row does not name them."""

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([row[name] for name in self.key])


class RowChange(NamedTuple):
    table: Table
    before: dict[str, Any] | None
    after: dict[str, Any] | None


SEQUENCE = Table("sqlite_sequence", ("name", "seq"), ("name",), frozenset(), frozenset())
"""SQLite's own table of the last AUTOINCREMENT numbers. No trigger sees it."""
SCHEMA = Table("schema", ("one", "version"), ("one",), frozenset(), frozenset())
"""The version of the schema, as a table. It is not in the database."""


def tables(db: sqlite3.Connection) -> dict[str, Table]:
    names = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\'"
    )
    found = {name: _table(db, name) for (name,) in names.fetchall()}
    return found | {SEQUENCE.name: SEQUENCE, SCHEMA.name: SCHEMA}


def _table(db: sqlite3.Connection, name: str) -> Table:
    described = db.execute(f"PRAGMA table_info({name})").fetchall()
    keys = sorted((place, column) for _, column, _, _, _, place in described if place)
    columns = [column for _, column, *_ in described]
    # A table without a primary key has a rowid.
    if not keys:
        columns.insert(0, "rowid")
    return Table(
        name,
        tuple(columns),
        tuple(column for _, column in keys) or ("rowid",),
        frozenset(
            column for _, column, type, *_ in described if type == "TEXT" and column in JSON_COLUMNS
        ),
        frozenset(
            column
            for _, column, _, needed, default, _ in described
            if default is None and not needed
        ),
    )


class RowChanges:
    """Record the changes of one transaction at a time: `clear` before each, `taken` at its end."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._notes: list[tuple[Any, ...]] = []
        self.tables: dict[str, Table] = {}
        db.create_function("outlast_note", -1, self._note)
        # With this, replacing a row also records its deletion.
        db.execute("PRAGMA recursive_triggers = ON")
        db.execute("PRAGMA temp_store = MEMORY")

    def watch(self) -> None:
        """Watch all tables as they are now. Call it again after altering them."""
        self.unwatch()
        self.tables = tables(self._db)
        for table in self.tables.values():
            if table not in (SEQUENCE, SCHEMA):
                for statement in _triggers(table):
                    self._db.execute(statement)

    def unwatch(self) -> None:
        for (name,) in self._db.execute(
            "SELECT name FROM sqlite_temp_schema WHERE type = 'trigger'"
        ).fetchall():
            self._db.execute(f"DROP TRIGGER {name}")

    def clear(self) -> None:
        self._notes.clear()

    def taken(self) -> list[RowChange]:
        """Return each row that the transaction changed, in the order of first changes, and forget
        them.
        """
        before: dict[tuple[str, tuple[Any, ...]], dict[str, Any] | None] = {}
        after: dict[tuple[str, tuple[Any, ...]], dict[str, Any] | None] = {}
        for name, what, *values in self._notes:
            table = self.tables[name]
            row = dict(zip(table.columns, values, strict=True))
            place = (name, table.key_of(row))
            before.setdefault(place, None if what in (_INSERT, _NEW) else row)
            after[place] = row if what in (_INSERT, _NEW) else None
        self._notes.clear()
        return [
            RowChange(self.tables[place[0]], was, after[place])
            for place, was in before.items()
            if was != after[place]
        ]

    def _note(self, *values: Any) -> None:
        self._notes.append(values)


def _triggers(table: Table) -> list[str]:
    def note(what: int, row: str) -> str:
        columns = ", ".join(f"{row}.{column}" for column in table.columns)
        return f"SELECT outlast_note('{table.name}', {what}, {columns});"

    bodies = {
        "INSERT": note(_INSERT, "NEW"),
        "UPDATE": note(_OLD, "OLD") + note(_NEW, "NEW"),
        "DELETE": note(_DELETE, "OLD"),
    }
    return [
        f"CREATE TEMP TRIGGER noted_{table.name}_{event} AFTER {event} ON main.{table.name} "
        f"BEGIN {body} END"
        for event, body in bodies.items()
    ]
