"""What the numbers of `/metrics` cost: 100 runs x 20 steps with everything counted and scraped every second, against nothing counted.

Two apps are open in one process, each with a store of its own, and take turns of about a second. Turns that follow each other are compared, and
who goes first changes: a machine that slows down slows both, and neither has the other's garbage. `python -m bench.own.telemetry` prints
every pair.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.folder import measuring_folder
from bench.own.runs import address, execute
from outlast import Outlast
from outlast.http import Server

RUNS, STEPS = 100, 20
BATCHES = 5
"""Runs in one turn: about a second, in which it is scraped once."""
PAIRS = 24

SCRAPER = """
import sys, urllib.request
for _ in sys.stdin:
    with urllib.request.urlopen(sys.argv[1] + "/metrics", timeout=10) as answer:
        answer.read()
"""

Turn = tuple[float, float]
"""Seconds, and seconds of CPU."""


def telemetry(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder, tell=False))


async def _measure(folder: Path, *, tell: bool) -> dict[str, float]:
    for name in ("on", "off"):
        (folder / name).mkdir()
    pairs: list[tuple[Turn, Turn]] = []
    async with (
        Outlast(address(folder / "on")) as on,
        Outlast(address(folder / "off"), metrics=0) as off,
    ):
        server = Server(on, "127.0.0.1:0")
        server.start()
        scraper = subprocess.Popen(
            [sys.executable, "-c", SCRAPER, server.url], stdin=subprocess.PIPE
        )
        try:
            for app in (on, off):
                await _turn(app, "warm-up", scraper if app is on else None)
            for number in range(PAIRS):
                order = (on, off) if number % 2 else (off, on)
                found = [
                    await _turn(app, str(number), scraper if app is on else None) for app in order
                ]
                pairs.append((found[order.index(on)], found[order.index(off)]))
                if tell:
                    _tell(*pairs[-1])
        finally:
            scraper.kill()
            scraper.communicate()
            await server.stopped(2.0)
    steps = BATCHES * RUNS * STEPS
    return {
        "steps_per_second": median(steps / seconds for (seconds, _), _ in pairs),
        "steps_per_second_off": median(steps / seconds for _, (seconds, _) in pairs),
        "cpu_us_per_step": median(cpu / steps * 1e6 for (_, cpu), _ in pairs),
        "cpu_us_per_step_off": median(cpu / steps * 1e6 for _, (_, cpu) in pairs),
        "time_ratio": median(counted[0] / bare[0] for counted, bare in pairs),
        "cpu_ratio": median(counted[1] / bare[1] for counted, bare in pairs),
    }


async def _turn(app: Outlast, name: str, scraper: subprocess.Popen[bytes] | None) -> Turn:
    """Being scraped is part of what counting costs."""
    gc.collect()
    if scraper is not None:
        assert scraper.stdin is not None
        scraper.stdin.write(b"now\n")
        scraper.stdin.flush()
    cpu, wall = time.process_time(), time.perf_counter()
    for number in range(BATCHES):
        await execute(app, f"{name}-{number}", runs=RUNS, steps=STEPS)
    return time.perf_counter() - wall, time.process_time() - cpu


def _tell(counted: Turn, bare: Turn) -> None:
    steps = BATCHES * RUNS * STEPS
    print(
        f"counted {steps / counted[0]:,.0f} steps/s, {counted[1] / steps * 1e6:.1f} µs a step; bare {steps / bare[0]:,.0f}, "
        f"{bare[1] / steps * 1e6:.1f}; time x {counted[0] / bare[0]:.3f}, CPU x {counted[1] / bare[1]:.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.own.telemetry", description=__doc__)
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    with measuring_folder(parser.parse_args().dir) as folder:
        for name, number in asyncio.run(_measure(folder, tell=True)).items():
            print(f"{name}: {number:,.3f}")


if __name__ == "__main__":
    main()
