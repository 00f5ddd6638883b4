"""Replay: how long a run with a long journal needs to be where it was."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.own.runs import address, noop
from outlast import Outlast, receive, step, workflow

STEPS = 10_000

begun = asyncio.Event()
begun_at = 0.0


@step
async def after() -> None:
    global begun_at  # noqa: PLW0603 - a step's body reports to the measurement, past the run
    begun_at = time.perf_counter()
    begun.set()


@workflow
async def long(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += await noop(x)
    await receive("go")
    await after()
    return found


def replay(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> dict[str, float]:
    async with Outlast(
        address(folder, synchronous="normal")
    ) as app:  # its journal is only made, not measured
        await app.start(long(STEPS), id="long")
        while not await app.runs(waiting_for="go"):
            await asyncio.sleep(0.05)
    assert not begun.is_set()
    async with Outlast(address(folder)) as app:
        assert len(await app.journal("long")) >= STEPS
        await app.send("long", "go")
        started = time.perf_counter()
        run = await app.start(long(STEPS), id="long")
        await begun.wait()
        seconds = begun_at - started
        assert await run.result() == sum(range(STEPS))
        started = time.perf_counter()
        await app.journal("long")
        return {"seconds": seconds, "load_seconds": time.perf_counter() - started}
