"""The file store keeps every promise of a store."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache

import pytest

from outlast.store.file.store import FileStore
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.store import _migrations, _statements
from outlast.testing.conformance import DurableStoreConformance, MakeStore


@cache
def schema() -> bytes:
    """Return a database with the tables of this release."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for script in _migrations():
            for statement in _statements(script):
                db.execute(statement)
        return db.serialize()


class QuickFileStore(FileStore):
    """A file store that copies its tables into memory. To create them takes longer than most tests."""

    def _execute(self, scripts: Sequence[str]) -> None:
        if len(scripts) < len(_migrations()):
            super()._execute(scripts)
        else:
            self._db.execute("ROLLBACK")
            self._db.deserialize(schema())
            self._db.execute(sql.BEGIN)


class TestFile(DurableStoreConformance):
    shared = False
    test_a_commit_elsewhere_rings_the_bell_here = None  # one process at a time: see test_file_folder.py

    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock: QuickFileStore(tmp_path / "outlast", clock=clock)
