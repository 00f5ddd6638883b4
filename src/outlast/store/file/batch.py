"""Encode a commit as lines, sorted into the files that its rows live in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from outlast.store.commands import ITEM
from outlast.store.file.line_format import encode_row, number, with_crc
from outlast.store.file.log import Part, commit_line
from outlast.store.file.row_changes import SCHEMA, SEQUENCE, RowChange, Table
from outlast.store.file.row_files import (
    OWNERS,
    STORE,
    Owner,
    may_live,
    own_file,
    owner_of,
    shared_file,
)


class Length(NamedTuple):
    """The length of a file."""

    size: int = 0
    lines: int = 0


@dataclass
class Batch:
    """A commit that is not in the journals yet.

    `lengths` and `row_files` describe the state after it, so applying them twice is harmless.
    """

    commit: int
    line: bytes
    parts: list[Part]
    lengths: dict[str, Length | None] = field(default_factory=dict)
    """The new length of each file. None means that the file is gone."""
    row_files: dict[Owner, str | None] = field(default_factory=dict)


class Composer:
    """Build batches from the lengths of the files and the files of the rows."""

    def __init__(
        self,
        db: sqlite3.Connection,
        tables: dict[str, Table],
        lengths: dict[str, Length],
        row_files: dict[Owner, str],
        schema: int,
    ) -> None:
        self._db, self._tables, self._lengths, self._row_files = db, tables, lengths, row_files
        self._schema = _event(RowChange(SCHEMA, None, {"one": 1, "version": schema}))

    def compose(self, changes: list[RowChange], commit: int, at: float) -> Batch:
        """Return the batch of a commit. Call it in the transaction that made the changes."""
        row_files: dict[Owner, str | None] = {}
        removed: list[str] = []
        files: dict[str, list[str]] = {}
        by_owner: dict[Owner | None, list[RowChange]] = {}
        for change in changes:
            row = change.after or change.before
            assert row is not None
            by_owner.setdefault(owner_of(change.table.name, row), []).append(change)
        for owner, own in by_owner.items():
            if owner is None:
                files.setdefault(STORE, []).extend(map(_event, own))
                continue
            was, home = self._row_files.get(owner), self._home(owner, own)
            if home is None and was == own_file(owner):
                removed.append(was)
            elif home is None and was is not None:
                files.setdefault(was, []).append(_gone(self._tables[owner[0]], owner[1], "delete"))
            elif home is not None and was is not None and home != was:
                files.setdefault(was, []).append(_gone(self._tables[owner[0]], owner[1], "moved"))
                files.setdefault(home, []).extend(self._whole(owner))
            elif home is not None:
                files.setdefault(home, []).extend(map(_event, own))
            if home != was:
                row_files[owner] = home
        files.setdefault(STORE, []).extend(self._sequences(changes))
        # The first commit also has the rows that the migrations inserted.
        if STORE not in self._lengths:
            files[STORE] = list(self._living(STORE))
        return self._batch(commit, at, files, removed, row_files)

    def _home(self, owner: Owner, changes: list[RowChange]) -> str | None:
        """Return the owner's file after these changes. None means that the owner is gone."""
        root = next((change for change in changes if change.table.name == owner[0]), None)
        if root is not None and root.after is None:
            return None
        was = self._row_files.get(owner)
        if was == own_file(owner):
            return was
        begins = owner[0] != "runs" or any(change.table.name == "entries" for change in changes)
        if begins and not self._is_item(owner, root):
            return own_file(owner)
        return was or shared_file(owner)

    def _is_item(self, owner: Owner, root: RowChange | None) -> bool:
        if owner[0] != "runs":
            return False
        if root is not None and root.after is not None:
            return bool(root.after["workflow"] == ITEM)
        found = self._db.execute("SELECT workflow FROM runs WHERE pk = ?", (owner[1],)).fetchone()
        return found is not None and found[0] == ITEM

    def _whole(self, owner: Owner) -> Iterator[str]:
        """Yield all rows of a run or a session as they are now."""
        for name, (table, column) in OWNERS.items():
            if table == owner[0] and name in self._tables:
                yield from self._rows(self._tables[name], f"WHERE {column} = ?", (owner[1],))

    def _rows(self, table: Table, where: str = "", values: tuple[Any, ...] = ()) -> Iterator[str]:
        columns = ", ".join(table.columns)
        # The names are those of our own tables.
        statement = f"SELECT {columns} FROM {table.name} {where}"  # noqa: S608
        for row in self._db.execute(statement, values):
            yield _event(RowChange(table, None, dict(zip(table.columns, row, strict=True))))

    def _sequences(self, changes: list[RowChange]) -> Iterator[str]:
        """Yield the last number given out in each table that lost a row: the row may have been the
        last.
        """
        for name in {change.table.name for change in changes if change.after is None}:
            yield from self._rows(SEQUENCE, "WHERE name = ?", (name,))

    def _batch(
        self,
        commit: int,
        at: float,
        files: dict[str, list[str]],
        removed: list[str],
        row_files: dict[Owner, str | None],
    ) -> Batch:
        parts: list[Part] = []
        lengths: dict[str, Length | None] = {}
        for file, events in files.items():
            if not events:
                continue
            was = self._lengths.get(file, Length())
            lines = with_crcs(events, was.lines + 1, commit, at)
            part = Part(commit, file, was.size, tuple(lines))
            parts.append(part)
            lengths[file] = Length(was.size + len(part.data), was.lines + len(lines))
        for file in removed:
            parts.append(Part(commit, file, 0, None))
            lengths[file] = None
        return Batch(commit, commit_line(commit, at, parts), parts, lengths, row_files)

    def rewritten(self, file: str, commit: int, at: float) -> tuple[bytes, Length]:
        """Return the content of a file with only the rows that live in it now, without their
        history.
        """
        events = ['"rewritten": true', *self._living(file)]
        data = b"".join([line + b"\n" for line in with_crcs(events, 1, commit, at)])
        return data, Length(len(data), len(events))

    def _living(self, file: str) -> Iterator[str]:
        if file == STORE:
            yield self._schema
            for table in self._tables.values():
                if table.name not in OWNERS and table is not SCHEMA:
                    yield from self._rows(table)
        for owner in may_live(file):
            if self._row_files.get(owner) == file:
                yield from self._whole(owner)


def with_crcs(events: Iterable[str], line: int, commit: int, at: float) -> list[bytes]:
    return [
        with_crc(f'{{"line": {number_}, "commit": {commit}, "at": {number(at)}, {event}')
        for number_, event in enumerate(events, line)
    ]


def _event(change: RowChange) -> str:
    table, before, after = change
    if after is None:
        assert before is not None
        return _written("delete", table, {name: before[name] for name in table.key})
    if before is None:
        new = {
            name: value
            for name, value in after.items()
            if value is not None or name not in table.implied
        }
        return _written("insert", table, new)
    other = {
        name: value for name, value in after.items() if name in table.key or value != before[name]
    }
    return _written("update", table, other)


def _gone(table: Table, pk: int, what: str) -> str:
    return _written(what, table, {"pk": pk})


def _written(what: str, table: Table, row: dict[str, Any]) -> str:
    return f'"{what}": "{table.name}", "row": {encode_row(row, table.json)}'
