"""Outlast: defaults, but for `ramp=0` (all slots from the start) where a worker's speed is measured."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from common import (
    POSTGRES_SETTINGS,
    REDIS_SETTINGS,
    SQLITE_SETTINGS,
    Laps,
    Meter,
    drive,
)
from jobs import producing
from outlast_jobs import producer, work

from outlast import Outlast, current, step, workflow

meter = Meter()


@step
async def noop(x: int) -> int:
    meter.step(current().id)
    return x


@workflow
async def total(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += await noop(x)
    return found


def steps(given: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_steps(given))


async def _steps(given: argparse.Namespace) -> dict[str, Any]:
    meter.server = given.server
    async with Outlast(given.store) as app:
        laps = Laps(given, meter)
        for name, runs, steps in laps:
            await _execute(app, name, runs, steps)
        last = [f"{laps.last}-{number}" for number in range(given.runs)]
        recorded = sum([_steps_in(await app.journal(id)) for id in last])
        found = {**laps.found, "recorded": recorded, "settings": _settings(app, given.store)}
    return {**found, "config": "the defaults: asyncio, every step recorded before the next begins"}


async def _execute(app: Outlast, name: str, runs: int, steps: int) -> None:
    started = await asyncio.gather(
        *[app.start(total(steps), id=f"{name}-{number}") for number in range(runs)]
    )
    results = await asyncio.gather(*[run.result() for run in started])
    assert results == [sum(range(steps))] * runs


def _steps_in(journal: list[Any]) -> int:
    return sum(entry.kind == "step" for entry in journal)


def _settings(app: Outlast, store: str) -> dict[str, str]:
    if store.startswith("sqlite:"):
        db = app._open.store._db
        return {name: str(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in SQLITE_SETTINGS}
    if store.startswith("postgres"):
        import psycopg

        with psycopg.connect(store) as db:
            return {name: db.execute(f"SHOW {name}").fetchone()[0] for name in POSTGRES_SETTINGS}
    import redis

    with redis.Redis.from_url(store, decode_responses=True) as client:
        return {name: client.config_get(name)[name] for name in REDIS_SETTINGS}


if __name__ == "__main__":
    drive({"steps": steps, "work": work, **producing(producer)})
