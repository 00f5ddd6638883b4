"""Read the journals: check every line, and build the rows of the database. Write nothing."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from outlast.errors import StoreBroken
from outlast.store.file import disk
from outlast.store.file.batch import Length
from outlast.store.file.line_format import Damaged, Scanner, check_crc
from outlast.store.file.log import Part, broken
from outlast.store.file.row_changes import SCHEMA, SEQUENCE, Table
from outlast.store.file.row_files import STORE, Owner, is_a_journal, may_live_in, owner_of
from outlast.store.file_trust import refuse_link

LATER = "it is later than the log, whose own end is missing"

Rows = dict[tuple[str, tuple[Any, ...]], dict[str, Any]]
"""Rows by table and key."""


class Tail(NamedTuple):
    """The end of a file from `start` on, according to the log.

    `data` is None if the file is gone.
    """

    start: int
    data: bytes | None


@dataclass
class Loaded:
    rows: dict[Owner | None, Rows] = field(default_factory=lambda: {None: {}})
    lengths: dict[str, Length] = field(default_factory=dict)
    row_files: dict[Owner, str] = field(default_factory=dict)
    commit: int = 0
    """The last commit that any line mentions."""


def schema_of(folder: Path, tail: Tail | None) -> int | None:
    """Return the schema version of the rows, or None if nothing was ever committed."""
    path = folder / STORE
    data = disk.read(path) if path.exists() else b""
    if tail is not None:
        data = data[: tail.start] + (tail.data or b"")
    found = [line for line in data.split(b"\n") if b'"insert": "schema"' in line]
    if not found:
        return None
    try:
        version = json.loads(found[-1])["row"]["version"]
    except (ValueError, KeyError) as error:
        raise broken(path, data.count(b"\n", 0, data.index(found[-1])) + 1, error) from None
    return int(version)


def files_in(folder: Path) -> list[str]:
    """Return the journals in a folder, shared files before those of runs that may have moved out of
    them.
    """
    found = [STORE] if (folder / STORE).exists() else []
    for top in ("runs", "sessions"):
        for place, _, names in os.walk(folder / top, onerror=_unless_missing):
            refuse_link(Path(place))
            inside = Path(place).relative_to(folder).as_posix()
            found += [f"{inside}/{name}" for name in names]
    return sorted(file for file in found if is_a_journal(file))


def _unless_missing(error: OSError) -> None:
    """Raise the error unless the folder is missing.

    An unreadable folder is not empty: its files would count as removed.
    """
    if not isinstance(error, FileNotFoundError):
        raise error


def tails(folder: Path, parts: list[Part]) -> dict[str, Tail]:
    """Return how each file ends according to the log.

    Parts that a file already contains because it was rewritten later are left out.
    """
    by_file: dict[str, list[Part]] = {}
    for part in parts:
        if not is_a_journal(part.file):
            raise StoreBroken(
                f"{folder}: its log names {part.file!r}, which is no journal. Nothing was changed."
            )
        by_file.setdefault(part.file, []).append(part)
    found: dict[str, Tail] = {}
    for file, own in by_file.items():
        rewritten = rewritten_at(folder / file)
        left = [part for part in own if part.commit > rewritten]
        removed = [place for place, part in enumerate(left) if part.lines is None]
        if removed:
            left = left[removed[-1] + 1 :]
        if left:
            found[file] = Tail(left[0].start, b"".join([part.data for part in left]))
        elif removed:
            found[file] = Tail(0, None)
    return found


def rewritten_at(path: Path) -> int:
    """Return the commit at which a file was last rewritten, 0 if it never was.

    A rewritten file has everything up to that commit.
    """
    try:
        with disk.reading(path) as file:
            line = file.readline(200)
        scan = Scanner(check_crc(line.rstrip(b"\n")))
        scan.expect('{"line": 1, "commit": ')
        commit = scan.integer()
    except (FileNotFoundError, Damaged, UnicodeDecodeError):
        return 0
    return commit if line.endswith(b"\n") and b'"rewritten": true' in line else 0


class Loader:
    def __init__(self, folder: Path, tables: dict[str, Table], upto: int) -> None:
        """Prepare to load files.

        `upto` is the last commit of the log, 0 if the log is empty. A journal has no later commit:
        every change was in the log first.
        """
        self._folder, self._tables, self._upto = folder, tables, upto
        self.loaded = Loaded()

    def load(self, file: str, tail: Tail | None) -> None:
        """Load one file, with the end that the log gives it.

        Raise StoreBroken if it is damaged.
        """
        path = self._folder / file
        data = disk.read(path) if path.exists() else b""
        if tail is not None:
            if len(data) < tail.start:
                raise broken(path, data.count(b"\n") + 1, "the file is shorter than the log says")
            if tail.data is not None and _goes_on(data[tail.start :], tail.data):
                raise broken(path, data.count(b"\n"), LATER)
            data = data[: tail.start] + (tail.data or b"")
        if not data and tail is not None and tail.data is None:
            return
        lines = data.split(b"\n")
        if lines.pop():
            raise broken(path, len(lines) + 1, "its end is missing")
        if not lines:
            raise broken(path, 1, "it is missing")
        last = 0
        for number, line in enumerate(lines, 1):
            try:
                last = self._read(file, check_crc(line), number, last)
                if self._upto and last > self._upto:
                    raise Damaged(LATER)
            except (Damaged, UnicodeDecodeError, KeyError) as error:
                raise broken(path, number, error) from None
        self.loaded.commit = max(self.loaded.commit, last)
        self.loaded.lengths[file] = Length(len(data), len(lines))

    def _read(self, file: str, body: str, number: int, last: int) -> int:
        scan = Scanner(body)
        scan.expect(f'{{"line": {number}, "commit": ')
        commit = scan.integer()
        if commit < last:
            raise Damaged(f"commit {commit} after {last}")
        scan.expect(', "at": ')
        scan.value()
        scan.expect(", ")
        what = scan.name()
        if what == "rewritten":
            scan.expect("true")
        else:
            table = self._tables[scan.text()]
            scan.expect(', "row": ')
            self._apply(file, what, table, scan.row(table.json))
        scan.end()
        return commit

    def _apply(self, file: str, what: str, table: Table, row: dict[str, Any]) -> None:
        owner = owner_of(table.name, row)
        if not may_live_in(file, owner):
            raise Damaged(f"it belongs to another file: {owner}")
        if what == "moved" or (what == "delete" and owner is not None and table.name == owner[0]):
            assert owner is not None
            if self.loaded.row_files.get(owner) == file:
                del self.loaded.row_files[owner], self.loaded.rows[owner]
            return
        if owner is not None and self.loaded.row_files.setdefault(owner, file) != file:
            raise Damaged(f"{owner} lives in {self.loaded.row_files[owner]} already")
        rows = self.loaded.rows.setdefault(owner, {})
        place = (table.name, table.key_of(row))
        if what == "insert":
            rows[place] = row
        elif what == "update":
            rows[place].update(row)
        elif what == "delete":
            del rows[place]
        else:
            raise Damaged(f"{what!r} is not known")

    def fill(self, db: sqlite3.Connection) -> None:
        """Put the rows into an empty database of their schema."""
        if not self.loaded.rows[None]:
            return
        for table in self._tables.values():
            if table not in (SCHEMA, SEQUENCE):
                # Delete the rows that the migrations inserted.
                db.execute(f"DELETE FROM {table.name}")  # noqa: S608
        batches: dict[tuple[str, tuple[str, ...]], list[tuple[Any, ...]]] = {}
        for (name, _), row in self._all_rows():
            if name not in (SCHEMA.name, SEQUENCE.name):
                batches.setdefault((name, tuple(row)), []).append(tuple(row.values()))
        for (name, columns), rows in batches.items():
            marks = ", ".join("?" * len(columns))
            statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
            db.executemany(statement, rows)
        for (name, _), row in self.loaded.rows[None].items():
            if name == SEQUENCE.name:
                _set_sequence(db, row["name"], row["seq"])

    def _all_rows(self) -> Iterator[tuple[tuple[str, tuple[Any, ...]], dict[str, Any]]]:
        for rows in self.loaded.rows.values():
            yield from rows.items()


def _set_sequence(db: sqlite3.Connection, table: str, seq: int) -> None:
    """Continue a table's numbering, so that a number is never given out twice, even if its row is
    gone.
    """
    if not db.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (seq, table)
    ).rowcount:
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, seq))


def _goes_on(there: bytes, data: bytes) -> bool:
    """Return whether a whole line follows what the log has: a line that the log has lost."""
    line, end, _ = there[len(data) :].partition(b"\n")
    if not end or not there.startswith(data):
        return False
    try:
        check_crc(line)
    except (Damaged, UnicodeDecodeError):
        return False
    return True
