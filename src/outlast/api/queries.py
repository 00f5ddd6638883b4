"""Read runs, effects, queues and workers from the store of an open app."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from outlast.api.run import conclude
from outlast.codec import plain_json
from outlast.engine.actions import row_of
from outlast.engine.decisions import effect_log_of
from outlast.store.protocol import whole_journal

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.inspection import EffectInfo, QueueInfo, RunInfo, WorkerInfo
    from outlast.shutdown.report import DrainReport
    from outlast.store.rows import Entry, RunQuery


async def result_of(engine: Engine, id: str, timeout: float | None) -> Any:
    """Wait for a run to end and return its result as plain JSON, or raise how it ended."""
    await row_of(engine, id)
    async with asyncio.timeout(timeout):
        end = await engine.runs.wait_until_ended(id)
    return conclude(id, end, plain_json)


async def runs(
    engine: Engine,
    query: RunQuery,
    *,
    older_than: timedelta | float | None,
    newer_than: timedelta | float | None,
    before: str | None,
) -> list[RunInfo]:
    """Return the runs that match a query, these ages, and are older than the run `before`."""
    from outlast.engine.inspection import RunInfo

    before_pk = None if before is None else (await row_of(engine, before)).pk
    query = with_ages(engine, query, older_than, newer_than)._replace(before_pk=before_pk)
    return [RunInfo.of(row) for row in await engine.client.read(engine.store.runs, query)]


def with_ages(
    engine: Engine,
    query: RunQuery,
    older_than: timedelta | float | None,
    newer_than: timedelta | float | None,
) -> RunQuery:
    """Return the query, limited to runs of these ages."""
    now = engine.store.now()
    return query._replace(
        created_before=None if older_than is None else now - seconds(older_than),
        created_after=None if newer_than is None else now - seconds(newer_than),
    )


async def journal_of(engine: Engine, id: str) -> list[Entry]:
    """Return every journal entry of a run, in order."""
    row = await row_of(engine, id)
    return await engine.client.read(whole_journal, engine.store, row.pk)


async def effects_of(engine: Engine, id: str) -> list[EffectInfo]:
    """Return the effects that a run performed or intended to perform, oldest first."""
    from outlast.engine.inspection import EffectInfo

    row = await row_of(engine, id)
    effect_log, _ = await engine.client.read(effect_log_of, engine.store, row)
    return EffectInfo.of(effect_log)


async def queues(engine: Engine) -> list[QueueInfo]:
    """Return every queue with its contents and limits."""
    from outlast.engine.inspection import QueueInfo

    return [QueueInfo.of(row) for row in await engine.client.read(engine.store.queues)]


async def workers(engine: Engine) -> list[WorkerInfo]:
    """Return every process that has the store open for work."""
    from outlast.engine.inspection import WorkerInfo

    dead = set(await engine.client.read(engine.store.dead_workers))
    rows = await engine.client.read(engine.store.workers)
    return [WorkerInfo.of(row, seems_dead=row.id in dead) for row in rows]


async def drains(engine: Engine, limit: int) -> list[DrainReport]:
    """Return the latest drains of all workers, newest first."""
    from outlast.shutdown.report import DrainReport

    return [DrainReport.of(row) for row in await engine.client.read(engine.store.drains, limit)]


def seconds(age: timedelta | float) -> float:
    """Return an age in seconds."""
    return age.total_seconds() if isinstance(age, timedelta) else float(age)
