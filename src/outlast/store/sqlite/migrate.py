"""Check the version of the schema, and bring it to the one that this release knows.

A migration is a numbered file. It is executed once, in its own transaction.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from outlast.errors import StoreBroken, StoreTooNew
from outlast.store.protocol import left_as_it_is
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.connection import retry_busy

APPLICATION_ID = 0x4F75744C  # "OutL"


@cache
def migrations() -> list[str]:
    """Return the scripts of all migrations, in order."""
    files = (Path(__file__).parent / "migrations").glob("*.sql")
    return [file.read_text(encoding="utf-8") for file in sorted(files)]


def version() -> int:
    """Return the schema version that this release knows."""
    return len(migrations())


def version_of(db: sqlite3.Connection, place: str) -> int:
    """Return the schema's version, or 0 if the database is empty.

    Raise StoreBroken if the database is not Outlast's.
    """
    # Keep this order. Another process may be committing all three together, and a reader that sees
    # one of the first sees the last.
    filled = db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours and (found or filled):
        raise StoreBroken(
            f"{place}: this SQLite database was not created by Outlast. Use a separate file."
        )
    return found


def check(db: sqlite3.Connection, place: str) -> int:
    """Return the schema's version.

    Raise StoreTooNew or StoreBroken if this Outlast cannot use it.
    """
    found = version_of(db, place)
    if found > version():
        raise StoreTooNew(
            f"{place}: its schema is version {found}, this Outlast supports up to {version()}. "
            "It was written by a newer Outlast: upgrade this one. Nothing was changed."
        )
    return found


def migrate(db: sqlite3.Connection, place: str, *, allowed: bool) -> None:
    """Migrate forward, each step in its own transaction.

    BEGIN IMMEDIATE keeps two processes apart. Raise NoStore or OlderStore if a migration is needed
    but not allowed.
    """
    steps = migrations()
    while True:
        retry_busy(lambda: db.execute(sql.BEGIN))
        try:
            found = check(db, place)
            if found == len(steps):
                return
            if not allowed:
                raise left_as_it_is(place, found, len(steps))
            for statement in statements_of(steps[found]):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {found + 1}")
            db.execute(sql.COMMIT)
        finally:
            if db.in_transaction:
                db.execute(sql.ROLLBACK)


def statements_of(script: str) -> list[str]:
    """Return the statements of a migration."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
