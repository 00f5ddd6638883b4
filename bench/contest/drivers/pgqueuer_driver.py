"""pgqueuer: as `pgq run` does it, on uvloop, one asyncpg connection; a job is one function."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pgqueuer
import uvloop
from common import WORKER, drive, ready
from jobs import Job, producing, stage
from pgqueuer.db import AsyncpgDriver

ENTRYPOINT = "job"
SLOTS_COUNTED = 20
"""With so many a limit to the tasks at a time is set, which must be twice a batch; with more there is none (its default), and a batch is as many."""
LOOK_SECONDS = 0.5
"""Of a worker that must notice another's death: how often it looks without being told. The default is 30."""
CONFIG = "`pgq run` on uvloop, one asyncpg connection, {words}; put by `enqueue` with a list, in one statement"


def work(given: argparse.Namespace) -> None:
    os.environ[WORKER] = given.name
    uvloop.run(_work(given))


async def _work(given: argparse.Namespace) -> None:
    @asynccontextmanager
    async def made() -> AsyncIterator[pgqueuer.PgQueuer]:
        connection = await asyncpg.connect(given.store)
        await _installed(connection)
        manager = pgqueuer.PgQueuer(AsyncpgDriver(connection))
        manager.entrypoint(ENTRYPOINT)(_job)
        ready()
        yield manager
        await connection.close()

    batch, tasks = _sizes(given.slots)
    if given.longest:  # a death is to be noticed
        await pgqueuer.run(
            made,
            batch_size=batch,
            max_concurrent_tasks=tasks,
            dequeue_timeout=timedelta(seconds=LOOK_SECONDS),
            heartbeat_timeout=timedelta(seconds=given.silence or 30.0),
        )
    else:
        await pgqueuer.run(made, batch_size=batch, max_concurrent_tasks=tasks)


def _sizes(slots: int) -> tuple[int, int | None]:
    """Of a batch, and how many tasks at a time."""
    return (slots // 2, slots) if slots <= SLOTS_COUNTED else (slots, None)


async def _job(found: pgqueuer.Job) -> None:
    assert found.payload is not None
    job = Job(*json.loads(found.payload))
    for number in range(job.stages):
        await stage(job, number)


async def _installed(connection: asyncpg.Connection) -> None:
    queries = pgqueuer.Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()


class _Producer:
    def __init__(self, connection: asyncpg.Connection, slots: int) -> None:
        batch, tasks = _sizes(slots)
        words = f"batch_size={batch}, " + (
            f"max_concurrent_tasks={tasks}" if tasks else "no limit to the tasks at a time"
        )
        self.config = CONFIG.format(words=words)
        self._connection, self._queries = connection, pgqueuer.Queries(AsyncpgDriver(connection))

    async def put(self, jobs: Sequence[Job]) -> None:
        payloads: list[bytes | None] = [json.dumps(job).encode() for job in jobs]
        await self._queries.enqueue([ENTRYPOINT] * len(jobs), payloads, [0] * len(jobs))

    async def left(self) -> int:
        found: int = await self._connection.fetchval("SELECT count(*) FROM pgqueuer")
        return found


@asynccontextmanager
async def producer(given: argparse.Namespace) -> AsyncIterator[_Producer]:
    connection = await asyncpg.connect(given.store)
    await _installed(connection)
    yield _Producer(connection, given.slots)
    await connection.close()


if __name__ == "__main__":
    drive({"work": work, **producing(producer)})
