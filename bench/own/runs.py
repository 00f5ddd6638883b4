"""Runs whose steps do nothing: what is left is the cost of recording and delivering them."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path

from bench.own.log import Log
from outlast import Outlast, step, workflow


@step
async def noop(x: int) -> int:
    return x


@workflow
async def total(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += await noop(x)
    return found


def database(folder: Path) -> Path:
    return folder / "outlast.db"


def address(folder: Path, *, synchronous: str = "full") -> str:
    return f"sqlite:///{database(folder)}?synchronous={synchronous}"


def lone(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder, runs=1, steps=1_000, filler=(1, 100)))


def hundred(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder, runs=100, steps=20, filler=(100, 20)))


def thousand(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder, runs=1_000, steps=20, filler=(100, 20)))


async def _measure(
    folder: Path, *, runs: int, steps: int, filler: tuple[int, int]
) -> dict[str, float]:
    """While the log grows, and again once it is reused. `filler` is what to execute in between: runs, and their steps."""
    log = Log(database(folder))
    async with Outlast(address(folder)) as app:
        await execute(app, "warm-up", runs=1, steps=5)
        growing = await timed(app, "growing", runs=runs, steps=steps)
        fillers = count(1)
        while log.grew():
            await execute(app, f"filler-{next(fillers)}", runs=filler[0], steps=filler[1])
        reused = await timed(app, "reused", runs=runs, steps=steps)
    return growing | {f"reused_{name}": number for name, number in reused.items()}


async def timed(app: Outlast, name: str, *, runs: int, steps: int) -> dict[str, float]:
    """From the first start to the last result. Submitting and settling the runs is part of it."""
    writer = app._open.writer
    verbs, batches = writer.commands, writer.batches
    cpu, wall = time.process_time(), time.perf_counter()
    results = await execute(app, name, runs=runs, steps=steps)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert results == [sum(range(steps))] * runs, "a run has another result than its steps"
    return {
        "steps_per_second": runs * steps / wall,
        "cpu_us_per_step": cpu / (runs * steps) * 1e6,
        "verbs_per_batch": (writer.commands - verbs) / (writer.batches - batches),
    }


async def execute(app: Outlast, name: str, *, runs: int, steps: int) -> list[int]:
    started = await asyncio.gather(
        *[app.start(total(steps), id=f"{name}-{number}") for number in range(runs)]
    )
    return await asyncio.gather(*[run.result() for run in started])
