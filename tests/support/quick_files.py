"""File stores that open at once."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache

from outlast.store.file.store import FileStore
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.migrate import statements_of


@cache
def _database(scripts: tuple[str, ...]) -> bytes:
    """Return a database with the tables that these migrations make."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for script in scripts:
            for statement in statements_of(script):
                db.execute(statement)
        return db.serialize()


class QuickFileStore(FileStore):
    """A file store that copies its tables into memory. To create them takes longer than most tests."""

    def _execute(self, scripts: Sequence[str]) -> None:
        if self._has_tables():
            super()._execute(scripts)
        else:
            self._db.execute("ROLLBACK")
            self._db.deserialize(_database(tuple(scripts)))
            self._db.execute(sql.BEGIN)

    def _has_tables(self) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
