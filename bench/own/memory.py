"""Memory over a long run: what a step leaves behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from bench.own.runs import address
from outlast import Outlast, step, workflow

EARLY, LATE = 10_000, 100_000

resident_mb: dict[int, float] = {}


@step
async def look(x: int) -> int:
    if x in (EARLY, LATE):
        resident_mb[x] = _resident_mb()
    return x


@workflow
async def endless(steps: int) -> int:
    found = 0
    for x in range(1, steps + 1):
        found = await look(x)
    return found


def memory(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> dict[str, float]:
    async with Outlast(
        address(folder, synchronous="normal")
    ) as app:  # so that it ends within the hour on any disk
        await (await app.start(endless(LATE), id="endless")).result()
    return {
        "early_mb": resident_mb[EARLY],
        "late_mb": resident_mb[LATE],
        "growth_mb": resident_mb[LATE] - resident_mb[EARLY],
    }


def _resident_mb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # no /proc: the peak, which over a growing run is the same
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
