"""Publish to streams on an open transaction. The rules are numbered in `Publish`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.store import commands
from outlast.store.commands import FENCE, FOLD_MAX, OFFSET, Refused, chunk_of
from outlast.store.sqlite import statements as sql
from outlast.store.stream_rows import joined

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


class _Part(NamedTuple):
    fence: int
    attempt: int
    length: int
    first: int
    """The position of its first value, if it has any."""


class _Chunk(NamedTuple):
    first: int
    writer: str
    length: int
    value: str


def publish(transaction: Transaction, command: commands.Publish) -> Refused | None:
    db, record = transaction.db, command.record
    if record is not None:
        if db.execute(sql.RECORDED, (record.run, record.seq, record.fence)).fetchone():
            return None
        if db.execute(sql.SEQ_TAKEN, (record.run, record.seq)).fetchone():
            return Refused(FENCE)
    if not db.execute(sql.HAS_FENCE, (command.run, command.fence)).fetchone():
        return Refused(FENCE)
    refused = _apply(transaction, command)
    if refused is None and record is not None:
        db.execute(sql.RECORD, (*record, record.run, record.fence))
    return refused


def _apply(transaction: Transaction, command: commands.Publish) -> Refused | None:
    """Apply rules 2 to 6."""
    found = transaction.db.execute(sql.STREAM_PART, _where(command)).fetchone()
    part = _Part(*found) if found else None
    if part is None:
        part = _Part(command.fence, command.attempt, 0, 0)
        is_own = True
    else:
        is_own = (part.fence, part.attempt) == (command.fence, command.attempt)
        if not is_own and part.fence == command.fence and part.attempt > command.attempt:
            return None
    expected = part.length if is_own or command.resumes else 0
    if command.after != expected:
        is_repeat = is_own and command.after + len(command.values) <= part.length
        return None if is_repeat else Refused(OFFSET, str(part.length))
    if part.length > expected:
        _replace(transaction, command)
        part = part._replace(length=0)
    part = _append(transaction, command, part)
    if command.last:
        _fold(transaction, command, part)
    return None


def _where(command: commands.Publish) -> dict[str, Any]:
    return {"run": command.run, "stream": command.stream, "writer": command.writer}


def _bounds(transaction: Transaction, command: commands.Publish) -> tuple[int, int]:
    found = transaction.db.execute(sql.STREAM_BOUNDS, _where(command)).fetchone()
    start, stop = found or (0, 0)
    return start, stop


def _append(transaction: Transaction, command: commands.Publish, part: _Part) -> _Part:
    """Append the values at the end of the stream, and return the part as it is then."""
    start, stop = _bounds(transaction, command)
    count = len(command.values)
    if count:
        _add(transaction, command, _Chunk(stop, command.writer, count, chunk_of(command.values)))
    part = _Part(
        command.fence,
        command.attempt,
        part.length + count,
        part.first if part.length else stop,
    )
    where = _where(command)
    transaction.db.execute(sql.STREAM_SET, {**where, "start": start, "stop": stop + count})
    transaction.db.execute(sql.STREAM_PART_SET, {**where, **part._asdict()})
    return part


def _replace(transaction: Transaction, command: commands.Publish) -> None:
    """Begin a new generation without the writer's part."""
    where = _where(command)
    start = stop = _bounds(transaction, command)[1] + 1
    chunks = _chunks(transaction, command, 0)
    transaction.db.execute(sql.STREAM_CHUNKS_DROP, where)
    moved: dict[str, int] = {}
    for chunk in chunks:
        if chunk.writer != command.writer:
            moved.setdefault(chunk.writer, stop)
            _add(transaction, command, chunk._replace(first=stop))
            stop += chunk.length
    for writer, first in moved.items():
        transaction.db.execute(sql.STREAM_PART_MOVE, {**where, "writer": writer, "first": first})
    transaction.db.execute(sql.STREAM_SET, {**where, "start": start, "stop": stop})


def _fold(transaction: Transaction, command: commands.Publish, part: _Part) -> None:
    for group in _groups(_chunks(transaction, command, part.first), command.writer):
        for chunk in group:
            transaction.db.execute(
                sql.STREAM_CHUNK_DROP, (command.run, command.stream, chunk.first)
            )
        count = sum(chunk.length for chunk in group)
        value = joined(chunk.value for chunk in group)
        _add(transaction, command, _Chunk(group[0].first, command.writer, count, value))


def _groups(chunks: list[_Chunk], writer: str) -> Iterator[list[_Chunk]]:
    """Yield what becomes one row each: chunks of the writer without another's in between."""
    group: list[_Chunk] = []
    size = 0
    for chunk in chunks:
        fits = chunk.writer == writer and size + len(chunk.value) <= FOLD_MAX
        if not fits:
            if len(group) > 1:
                yield group
            group, size = [], 0
        if chunk.writer == writer:
            group.append(chunk)
            size += len(chunk.value)
    if len(group) > 1:
        yield group


def _chunks(transaction: Transaction, command: commands.Publish, first: int) -> list[_Chunk]:
    where = {**_where(command), "first": first}
    return [_Chunk(*row) for row in transaction.db.execute(sql.STREAM_CHUNKS_FROM, where)]


def _add(transaction: Transaction, command: commands.Publish, chunk: _Chunk) -> None:
    transaction.db.execute(sql.STREAM_CHUNK_ADD, (command.run, command.stream, *chunk))
