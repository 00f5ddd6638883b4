"""Measure many viewers: 200 streams with five viewers each.

One process executes the runs and publishes. Another one follows all streams, as a web process does.
`python -m bench.own.viewers [STORE]` prints the numbers of one measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.folder import measuring_folder
from bench.own.runs import address
from outlast import DataEvent, Outlast, UnknownRun, publish, step, workflow
from outlast.testing.servers import postgres_server, redis_server

STREAMS, VIEWERS = 200, 5
TOKENS, PAUSE_SECONDS = 200, 0.1
"""Each stream has ten writes a second for 20 s."""


@step
async def speak() -> None:
    async with publish("answer") as out:
        for _ in range(TOKENS):
            await out.write(time.monotonic())
            await asyncio.sleep(PAUSE_SECONDS)


@workflow
async def answer() -> None:
    await speak()


def viewers(folder: Path) -> dict[str, float]:
    return _measure(address(folder))


def postgres_viewers(folder: Path) -> dict[str, float]:
    with postgres_server(folder, durable=True) as server:
        return _measure(server.url)


def redis_viewers(folder: Path) -> dict[str, float]:
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "everysec") as server:
        return _measure(server.url)


def _measure(store: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.own.viewers", store, "--publish"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as publisher:
        numbers = asyncio.run(_watch(store))
        publisher.communicate()
    assert publisher.returncode == 0
    return numbers


async def _publish(store: str) -> None:
    """Execute all runs at once, one for each stream."""
    async with Outlast(store, signals=0) as app:
        runs = [await app.start(answer(), id=f"run-{number}") for number in range(STREAMS)]
        await asyncio.gather(*(run.result() for run in runs))


async def _watch(store: str) -> dict[str, float]:
    """Follow every stream with all viewers, and return what they saw."""
    late: list[float] = []
    async with Outlast(store, signals=0) as app:

        async def view(run: str) -> int:
            seen = 0
            while not seen:
                # Until the run exists.
                with suppress(UnknownRun):
                    async for event in app.watch(run, "answer"):
                        if isinstance(event, DataEvent):
                            seen += 1
                            late.append(time.monotonic() - event.value)
                if not seen:
                    await asyncio.sleep(PAUSE_SECONDS)
            return seen

        worked = time.process_time()
        names = [f"run-{number}" for number in range(STREAMS) for _ in range(VIEWERS)]
        seen = await asyncio.gather(*map(view, names))
        worked = time.process_time() - worked
    late.sort()
    return {
        "events_share": sum(seen) / (STREAMS * VIEWERS * TOKENS),
        "p50_ms": late[len(late) // 2] * 1000,
        "p99_ms": late[len(late) * 99 // 100] * 1000,
        "cpu_us_per_event": worked / sum(seen) * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.own.viewers", description=__doc__)
    parser.add_argument(
        "store", nargs="?", help="the address of a store; by default a new SQLite file"
    )
    parser.add_argument("--publish", action="store_true", help="be the process that publishes")
    given = parser.parse_args()
    if given.publish:
        asyncio.run(_publish(given.store))
        return
    with measuring_folder(None) as folder:
        print(json.dumps(_measure(given.store or address(folder))))


if __name__ == "__main__":
    main()
