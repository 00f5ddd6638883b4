"""Read a store from outside: its runs, journals and workers at one moment."""

import json
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.stores import peek


class Snapshot(NamedTuple):
    """The rows of a store at one moment."""

    runs: dict[str, dict[str, Any]]
    journals: dict[str, list[dict[str, Any]]]
    workers: dict[str, dict[str, Any]]

    def recorded(self) -> set[tuple[str, str]]:
        """Return the (run, key) of every step whose result is in a journal."""
        return {(id, entry["key"]) for id, entry in self._entries("step", "inner")}

    def fences(self) -> dict[tuple[str, str], int]:
        """Return the fence under which each step was recorded, by (run, key)."""
        return {(id, entry["key"]): entry["fence"] for id, entry in self._entries("step", "inner")}

    def attempts(self) -> dict[tuple[str, str], int]:
        """Return the number of the last recorded failed attempt, by (run, key)."""
        return {(id, entry["key"]): entry["attempt"] for id, entry in self._entries("attempt")}

    def deaths(self) -> list[tuple[str, str]]:
        """Return (run, worker) for every death in a journal."""
        return sorted(
            (id, json.loads(entry["value"])["worker"]) for id, entry in self._entries("death")
        )

    def kinds(self, id: str) -> list[str]:
        return [entry["kind"] for entry in self.journals.get(id, [])]

    def _entries(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for id, journal in self.journals.items():
            yield from ((id, entry) for entry in journal if entry["kind"] in kinds)


def read_snapshot(place: Path | str) -> Snapshot:
    """Read a store that running processes may have open, in one transaction."""
    connection = peek(f"sqlite:///{place}" if isinstance(place, Path) else place)
    try:
        return _snapshot(connection)
    finally:
        connection.close()


def read_dead_store(db: Path) -> Snapshot:
    """Read a copy of a SQLite store whose processes are dead or stopped.

    Reading the file itself would recover its log, which is for the next process to do.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_store(db, Path(folder))
        connection = sqlite3.connect(copy)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return _snapshot(connection)
        finally:
            connection.close()


def copy_store(db: Path, folder: Path) -> Path:
    for suffix in ("", "-wal"):
        source = db.with_name(db.name + suffix)
        if source.exists():
            shutil.copyfile(source, folder / source.name)
    return folder / db.name


def _snapshot(connection: sqlite3.Connection) -> Snapshot:
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchone():
        return Snapshot({}, {}, {})  # its process died before it had made the tables
    runs = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM runs")}
    ids = {row["pk"]: id for id, row in runs.items()}
    journals: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in connection.execute("SELECT * FROM entries ORDER BY run, seq"):
        journals[ids[entry["run"]]].append(dict(entry))
    for id, journal in journals.items():
        assert [entry["seq"] for entry in journal] == list(range(1, len(journal) + 1)), (
            f"a gap in {id}"
        )
        fences = [abs(entry["fence"]) for entry in journal]
        assert fences == sorted(fences), f"an entry of {id} under an old fence"
    workers = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM workers")}
    return Snapshot(runs, dict(journals), workers)
