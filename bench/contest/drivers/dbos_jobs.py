"""DBOS's jobs: workflows on a queue, whose stages are steps."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import sqlalchemy
from common import WORKER, ready
from dbos import DBOS, DBOSClient, DBOSConfig
from jobs import QUEUE, Job, stage

APP, VERSION = "bench", "1"
POLL_SECONDS = 0.01
"""How often its queue is looked at: the fastest. The default is 1 s."""
MARGIN_SECONDS = 2
CONFIG = (
    "worker_concurrency={slots}, polling_interval_sec={poll} (1 by default), async workflows of one step, logging of errors only{wal}; put by "
    "`DBOSClient.enqueue_in_transaction`, all in one transaction"
)


@DBOS.step()
async def nothing() -> None: ...


@DBOS.step()
async def staged(job: list[object], number: int) -> None:
    await stage(Job(*job), number)  # type: ignore[arg-type]


@DBOS.workflow()
async def whole(job: list[object]) -> None:
    stages = Job(*job).stages  # type: ignore[arg-type]
    if not stages:
        await nothing()
    for number in range(stages):
        await staged(job, number)


def work(given: argparse.Namespace) -> None:
    """It has no handler for SIGTERM; this one is the driver's, and waits for workflows as its documentation says."""
    os.environ[WORKER] = given.name
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with_wal(given.store)
    DBOS(config=_config(given))
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=given.slots, polling_interval_sec=POLL_SECONDS)
    ready()
    stop.wait()
    DBOS.destroy(workflow_completion_timeout_sec=int(given.grace) - MARGIN_SECONDS)


def _config(given: argparse.Namespace) -> DBOSConfig:
    return {
        "name": APP,
        "system_database_url": url_of(given.store),
        "application_version": VERSION,
        "executor_id": given.executor or given.name,
        "log_level": "ERROR",
    }


def url_of(store: str) -> str:
    return store.replace("postgresql://", "postgresql+psycopg://", 1)


def with_wal(store: str) -> None:
    """It leaves SQLite's journal as it finds it; the log is remembered in the file."""
    if store.startswith("sqlite"):
        with sqlalchemy.create_engine(store).connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


class _Producer:
    def __init__(self, given: argparse.Namespace) -> None:
        wal = (
            ", SQLite with a write-ahead log (not its default)"
            if given.store.startswith("sqlite")
            else ""
        )
        self.config = CONFIG.format(slots=given.slots, poll=POLL_SECONDS, wal=wal)
        self.client = DBOSClient(system_database_url=url_of(given.store), application_name=APP)
        self._engine = sqlalchemy.create_engine(url_of(given.store))
        schema = "" if given.store.startswith("sqlite") else "dbos."
        self._left = (
            f"SELECT count(*) FROM {schema}workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
        )

    async def put(self, jobs: Sequence[Job]) -> None:
        with self._engine.begin() as connection:
            for job in jobs:
                self.client.enqueue_in_transaction(
                    connection,
                    {"workflow_name": "whole", "queue_name": QUEUE, "app_version": VERSION},
                    list(job),
                )

    async def left(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql(self._left).scalar_one())


@asynccontextmanager
async def producer(given: argparse.Namespace) -> AsyncIterator[_Producer]:
    made = _Producer(given)
    yield made
    made.client.destroy()
