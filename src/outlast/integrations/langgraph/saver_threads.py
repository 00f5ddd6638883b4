"""Read, copy and delete the checkpoints of a thread, which is one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from outlast.api.session import Session
from outlast.errors import OutlastError, VersionConflict
from outlast.integrations.langgraph.saver_layout import (
    BLOBS,
    CHECKPOINTS,
    WRITES,
    Place,
    Record,
    checkpoint_name,
    checkpoint_of,
    checkpoint_prefix,
    config_of,
    metadata_of,
    writes_of,
)

PAGE = 50
"""How many checkpoints, or blobs to copy, are read at once."""
TRIES = 10
"""How often something is tried again when the thread changes meanwhile."""
DELETED_MAX = 5_000
"""How many fields one change deletes."""
COPIED_MAX = 1_000_000
"""How many characters are copied at once."""


# -- reading


async def load(session: Session, serde: SerializerProtocol, place: Place) -> CheckpointTuple | None:
    """Return a checkpoint: the one that is named, or the newest of the namespace."""
    id = place.checkpoint
    for _ in range(TRIES):
        record = await _record(session, place.namespace or "", place.checkpoint)
        if record is None:
            return None
        loaded = await complete(session, serde, place, record)
        if loaded is not None:
            return loaded
        id = record.id
    raise OutlastError(
        f"checkpoint {id!r} of thread {place.thread!r} lacks values: they were deleted while "
        "another run wrote to the thread. Continue from an earlier checkpoint, and let one run at "
        "a time write to a thread."
    )


async def _record(session: Session, namespace: str, id: str | None) -> Record | None:
    if id is not None:
        found = await session.fields(names=[checkpoint_name(namespace, id)])
    else:
        found = await session.fields(checkpoint_prefix(namespace), limit=1, reverse=True)
    return next((Record(*stored) for stored in found.values()), None)


async def complete(
    session: Session, serde: SerializerProtocol, place: Place, record: Record
) -> CheckpointTuple | None:
    """Return a checkpoint with its values and pending writes.

    Return None if a value is gone: the checkpoint was deleted after its record was read.
    """
    blobs = await session.fields(names=record.blobs.values()) if record.blobs else {}
    if len(blobs) < len({*record.blobs.values()}):
        return None
    writes = await session.fields(record.writes)
    thread, namespace = place.thread, record.namespace
    return CheckpointTuple(
        config_of(thread, namespace, record.id),
        checkpoint_of(serde, record, blobs),
        metadata_of(serde, record),
        config_of(thread, namespace, record.parent) if record.parent else None,
        writes_of(serde, writes),
    )


async def records(
    session: Session, namespace: str | None, before: str | None = None
) -> AsyncIterator[Record]:
    """Yield the checkpoints of a namespace, or of all, newest first."""
    if namespace is None:
        async for record in _records_of_all(session, before):
            yield record
        return
    prefix = checkpoint_prefix(namespace)
    after = None if before is None else checkpoint_name(namespace, before)
    while True:
        page = await session.fields(prefix, limit=PAGE, after=after, reverse=True)
        for stored in page.values():
            yield Record(*stored)
        if len(page) < PAGE:
            return
        after = min(page)


async def _records_of_all(session: Session, before: str | None) -> AsyncIterator[Record]:
    info = await session.info()
    names = [] if info is None else [name for name in info.fields if name.startswith(CHECKPOINTS)]
    names.sort(key=lambda name: name.rpartition("/")[2], reverse=True)
    for start in range(0, len(names), PAGE):
        page = names[start : start + PAGE]
        found = await session.fields(names=page)
        for name in page:
            if name in found:
                record = Record(*found[name])
                if before is None or record.id < before:
                    yield record


# -- deleting


async def delete(session: Session, kept_of: Callable[[list[Record]], set[str]]) -> None:
    """Delete checkpoints with their writes and the values that no other checkpoint uses.

    `kept_of` returns the names of those that stay. If another process changes the thread meanwhile,
    begin again. A crash between two changes leaves values that nothing refers to; the next call
    deletes them.
    """
    for _ in range(TRIES):
        info = await session.info()
        if info is None:
            return
        there = [record async for record in _records_of_all(session, None)]
        kept = kept_of(there)
        names = _superfluous(info.fields, [record for record in there if record.name in kept])
        # Checkpoints go first, so that none is ever without its values.
        names.sort(key=lambda name: not name.startswith(CHECKPOINTS))
        version = info.version
        try:
            for start in range(0, len(names), DELETED_MAX):
                part = names[start : start + DELETED_MAX]
                version = await session.update(delete=part, version=version)
        except VersionConflict:
            continue
        return
    raise OutlastError(
        f"{session!r} keeps changing, so nothing could be deleted consistently. "
        "Delete its checkpoints when no run writes to the thread."
    )


def _superfluous(fields: Iterable[str], kept: list[Record]) -> list[str]:
    names = {record.name for record in kept}
    blobs = {name for record in kept for name in record.blobs.values()}
    owners = {record.writes for record in kept}

    def is_needed(name: str) -> bool:
        if name.startswith(BLOBS):
            return name in blobs
        if name.startswith(WRITES):
            checkpoint = "/".join(name.split("/")[:3])
            return f"{checkpoint}/" in owners
        return name in names

    return [name for name in fields if not is_needed(name)]


def newest(serde: SerializerProtocol, there: Collection[Record]) -> set[str]:
    """Return the names of the newest checkpoint of each namespace, and of those that it needs.

    A channel of the type DeltaChannel has no value in most checkpoints. Its value is built from the
    writes of the checkpoints before, from the last one that has a value.
    """
    by_id = {(record.namespace, record.id): record for record in there}
    latest: dict[str, Record] = {}
    for record in there:
        best = latest.get(record.namespace)
        if best is None or best.id < record.id:
            latest[record.namespace] = record
    kept = {record.name for record in latest.values()}
    for namespace, head in latest.items():
        missing = {*metadata_of(serde, head).get("counters_since_delta_snapshot", {})}
        needed: Record | None = head
        while needed is not None and missing:
            kept.add(needed.name)
            missing -= {*needed.blobs}
            needed = by_id.get((namespace, needed.parent or ""))
    return kept


# -- copying


async def copy(source: Session, target: Session) -> None:
    """Copy everything from one thread to another.

    A checkpoint is written after its values and writes, so a copy that a crash has interrupted
    holds only complete checkpoints. Repeat it to get the others.
    """
    found = [record async for record in _records_of_all(source, None)]
    for prefix in (BLOBS, WRITES):
        after: str | None = None
        while page := await source.fields(prefix, limit=PAGE, after=after):
            await _write(target, page)
            after = max(page)
    # Oldest first, so that an interrupted copy has the beginning of the history.
    found.sort(key=lambda record: record.id)
    await _write(target, {record.name: list(record) for record in found})


async def _write(target: Session, fields: dict[str, Any]) -> None:
    part: dict[str, Any] = {}
    size = 0
    for name, value in fields.items():
        part[name] = value
        size += size_of(value)
        if size > COPIED_MAX:
            await target.update(part)
            part, size = {}, 0
    if part:
        await target.update(part)


def size_of(value: object) -> int:
    """Return about how many characters a stored value has."""
    if isinstance(value, str):
        return len(value) + 8
    if isinstance(value, dict):
        return sum(len(name) + size_of(part) + 8 for name, part in value.items())
    return sum(map(size_of, value)) if isinstance(value, (list, tuple)) else 8
