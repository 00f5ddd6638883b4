"""DBOS, durable steps: a step of its own is one row of its system database, written before the next begins.

Configurations (`--variant`): "async" and "threads" have what its documentation lets one set for speed; "plain" is async with the defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from typing import Any

from common import (
    POSTGRES_SETTINGS,
    SQLITE_SETTINGS,
    Laps,
    Meter,
)
from dbos import DBOS, DBOSConfig, SetWorkflowID

meter = Meter()

THREADS = 32


@DBOS.step()
async def noop_async(x: int) -> int:
    meter.step(DBOS.workflow_id)
    return x


@DBOS.workflow()
async def total_async(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += await noop_async(x)
    return found


@DBOS.step()
def noop(x: int) -> int:
    meter.step(DBOS.workflow_id)
    return x


@DBOS.workflow()
def total(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += noop(x)
    return found


def steps(given: argparse.Namespace) -> dict[str, Any]:
    meter.server = given.server
    config, words = _steps_config(given)
    DBOS(config=config)
    DBOS.launch()
    try:
        laps = _in_threads(given) if given.variant == "threads" else asyncio.run(_in_asyncio(given))
        return {**laps.found, **_counted(given.store, laps.last), "config": words}
    finally:
        DBOS.destroy()


def _steps_config(given: argparse.Namespace) -> tuple[DBOSConfig, str]:
    config: DBOSConfig = {"name": "bench", "system_database_url": given.store, "log_level": "ERROR"}
    if given.variant == "plain":
        return config, "the defaults: async workflows; on SQLite a rollback journal"
    config["db_engine_kwargs"] = {"pool_pre_ping": False}
    words = "async workflows"
    if given.variant == "threads":
        config["max_executor_threads"] = THREADS
        words = f"workflows in {THREADS} threads"
    words += ", pool_pre_ping off"
    if given.store.startswith("sqlite:"):
        with sqlite3.connect(given.store.removeprefix("sqlite:///")) as db:
            db.execute("PRAGMA journal_mode = WAL")  # it stays in the file
        words += ", WAL set in the file beforehand (synchronous is FULL by default)"
    else:
        words += ", a pool of 20 connections"
    return config, words


async def _in_asyncio(given: argparse.Namespace) -> Laps:
    async def one(id: str, steps: int) -> int:
        with SetWorkflowID(id):
            handle = await DBOS.start_workflow_async(total_async, steps)
        return await handle.get_result()

    async def execute(name: str, runs: int, steps: int) -> None:
        results = await asyncio.gather(*[one(f"{name}-{number}", steps) for number in range(runs)])
        assert results == [sum(range(steps))] * runs

    laps = Laps(given, meter)
    for name, runs, steps in laps:
        await execute(name, runs, steps)
    return laps


def _in_threads(given: argparse.Namespace) -> Laps:
    def execute(name: str, runs: int, steps: int) -> None:
        handles = []
        for number in range(runs):
            with SetWorkflowID(f"{name}-{number}"):
                handles.append(DBOS.start_workflow(total, steps))
        assert [handle.get_result() for handle in handles] == [sum(range(steps))] * runs

    laps = Laps(given, meter)
    for name, runs, steps in laps:
        execute(name, runs, steps)
    return laps


def _counted(store: str, lap: str) -> dict[str, Any]:
    """What its own engine sees: the rows of the last lap's steps, and how durable a commit is."""
    from dbos._dbos import _get_dbos_instance
    from sqlalchemy import text

    is_sqlite = store.startswith("sqlite:")
    table = "operation_outputs" if is_sqlite else "dbos.operation_outputs"
    with _get_dbos_instance()._sys_db.engine.connect() as db:
        count = text(f"SELECT count(*) FROM {table} WHERE workflow_uuid LIKE :lap")
        recorded = db.execute(count, {"lap": f"{lap}-%"}).scalar()
        names = SQLITE_SETTINGS if is_sqlite else POSTGRES_SETTINGS
        ask = "PRAGMA" if is_sqlite else "SHOW"
        settings = {name: str(db.execute(text(f"{ask} {name}")).scalar()) for name in names}
    return {"recorded": recorded, "settings": settings}
