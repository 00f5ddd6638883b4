"""What the numbers of `/metrics` cost: 100 runs x 20 steps with everything counted and scraped every second, against nothing counted.

The two are measured in turns in one process, each on a store of its own, so that neither inherits the other's log; and a machine that
slows down slows both. `python -m bench.telemetry` prints every turn.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.folder import measuring_folder
from bench.runs import address, execute
from outlast import Outlast
from outlast.http import Server

RUNS, STEPS = 100, 20
BATCHES = 4
"""Of so many runs in one turn: it takes seconds, so that it is scraped several times."""
TURNS = 7

SCRAPER = """
import sys, time, urllib.request
while True:
    with urllib.request.urlopen(sys.argv[1] + "/metrics", timeout=10) as answer:
        answer.read()
    print("scraped", flush=True)
    time.sleep(1)
"""


def telemetry(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder, tell=False))


async def _measure(folder: Path, *, tell: bool) -> dict[str, float]:
    """Medians; the ratios are made of turns that follow each other."""
    await _turn(folder / "warm-up", counting=True)
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(TURNS):
        # Who goes first changes: what the first leaves behind is the second's burden.
        order = (False, True) if number % 2 else (True, False)
        found = {
            counting: await _turn(folder / f"{number}-{counting}", counting=counting) for counting in order
        }
        pairs.append((found[True], found[False]))
        if tell:
            (rate, cpu), (rate_off, cpu_off) = pairs[-1]
            print(
                f"on {rate:,.0f} steps/s, {cpu:.1f} µs a step; off {rate_off:,.0f}, {cpu_off:.1f}; time x {rate_off / rate:.3f}, CPU x {cpu / cpu_off:.3f}"
            )
    return {
        "steps_per_second": median(on[0] for on, _ in pairs),
        "steps_per_second_off": median(off[0] for _, off in pairs),
        "cpu_us_per_step": median(on[1] for on, _ in pairs),
        "cpu_us_per_step_off": median(off[1] for _, off in pairs),
        "time_ratio": median(off[0] / on[0] for on, off in pairs),
        "cpu_ratio": median(on[1] / off[1] for on, off in pairs),
    }


async def _turn(folder: Path, *, counting: bool) -> tuple[float, float]:
    """Steps a second, and microseconds of CPU a step; scraping is part of what counting costs."""
    folder.mkdir()
    async with Outlast(address(folder), metrics=int(counting)) as app:
        await execute(app, "warm-up", runs=10, steps=5)
        server = Server(app, "127.0.0.1:0")
        server.start()
        scraper = None
        if counting:
            scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, server.url], stdout=subprocess.PIPE)
            assert scraper.stdout is not None
            await asyncio.to_thread(scraper.stdout.readline)
        try:
            cpu, wall = time.process_time(), time.perf_counter()
            for number in range(BATCHES):
                await execute(app, f"batch-{number}", runs=RUNS, steps=STEPS)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        finally:
            if scraper is not None:
                scraper.kill()
                scraper.communicate()
            await server.stopped(2.0)
    steps = BATCHES * RUNS * STEPS
    return steps / wall, cpu / steps * 1e6


def main() -> None:
    with measuring_folder(None) as folder:
        for name, number in asyncio.run(_measure(folder, tell=True)).items():
            print(f"{name}: {number:,.3f}")


if __name__ == "__main__":
    main()
