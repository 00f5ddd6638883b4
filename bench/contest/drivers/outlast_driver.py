"""Outlast: defaults, but for `ramp=0` (all slots from the start) where a worker's speed is measured."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from common import Meter, drive
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
    async with Outlast(given.store) as app:
        await _execute(app, "warm-up", 5, 5)
        meter.begin()
        laps = 0
        while not laps or meter.seconds < given.seconds:
            await _execute(app, f"lap-{laps}", given.runs, given.steps)
            laps += 1
        return meter.answer(laps * given.runs * given.steps, "the defaults: every step in a durable commit")


async def _execute(app: Outlast, name: str, runs: int, steps: int) -> None:
    started = await asyncio.gather(
        *[app.start(total(steps), id=f"{name}-{number}") for number in range(runs)]
    )
    results = await asyncio.gather(*[run.result() for run in started])
    assert results == [sum(range(steps))] * runs


if __name__ == "__main__":
    drive({"steps": steps, "work": work, **producing(producer)})
