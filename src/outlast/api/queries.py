"""Read runs, effects, queues and workers from the store of an open app."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from outlast.api.run import conclude
from outlast.api.run_filters import RunFilters, age_seconds, check_filters, statuses_of
from outlast.codec import plain_json
from outlast.engine.actions import row_of
from outlast.engine.decisions import effect_log_of
from outlast.store.protocol import whole_journal
from outlast.store.rows import RunQuery

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.inspection import EffectInfo, QueueInfo, RunInfo, WorkerInfo
    from outlast.shutdown.report import DrainReport
    from outlast.store.rows import Entry


async def result_of(engine: Engine, id: str, timeout: float | None) -> Any:
    """Wait for a run to end and return its result as plain JSON, or raise how it ended."""
    await row_of(engine, id)
    async with asyncio.timeout(timeout):
        end = await engine.runs.wait_until_ended(id)
    return conclude(id, end, plain_json)


async def runs(
    engine: Engine, filters: RunFilters, limit: int, before: str | None
) -> list[RunInfo]:
    """Return at most `limit` runs that match, and are older than the run `before`."""
    from outlast.engine.inspection import RunInfo

    before_pk = None if before is None else (await row_of(engine, before)).pk
    query = run_query(engine, filters)._replace(limit=limit, before_pk=before_pk)
    return [RunInfo.of(row) for row in await engine.client.read(engine.store.runs, query)]


def run_query(engine: Engine, filters: RunFilters) -> RunQuery:
    """Return the query for runs that match."""
    check_filters(filters)
    older_than = age_seconds(filters.get("older_than"))
    newer_than = age_seconds(filters.get("newer_than"))
    now = engine.store.now()
    return RunQuery(
        statuses=statuses_of(filters),
        workflow=filters.get("workflow"),
        queue=filters.get("queue"),
        prefix=filters.get("prefix"),
        parent=filters.get("parent"),
        key=filters.get("key"),
        waiting_for=filters.get("waiting_for"),
        items=filters.get("items", False),
        undoing=filters.get("undoing"),
        created_before=None if older_than is None else now - older_than,
        created_after=None if newer_than is None else now - newer_than,
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
