"""What publishing costs a step, and when a reader in another process has a token.

A step writes tokens, and a process with a watch of its own notes when each arrives. Both read one clock. `python -m bench.own.publish` prints the
numbers of one measurement.
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

CHEAP_TOKENS = 100_000
TOKENS, PAUSE_SECONDS = 200, 0.02
"""What a reader follows: four seconds of a model's answer."""
TURN = 500
"""Tokens between two turns of the event loop."""


class _Nowhere:
    async def write(self, value: str) -> None:
        pass


@step
async def write_many(publishes: bool) -> float:
    """Return the microseconds of CPU that one token costs on the step's thread."""
    out = publish("answer") if publishes else _Nowhere()
    began = time.thread_time()
    for number in range(CHEAP_TOKENS):
        await out.write("token ")
        if number % TURN == 0:
            await asyncio.sleep(0)
    return (time.thread_time() - began) / CHEAP_TOKENS * 1e6


@step
async def speak() -> None:
    async with publish("answer") as out:
        for _ in range(TOKENS):
            await out.write(time.monotonic())
            await asyncio.sleep(PAUSE_SECONDS)


@workflow
async def cheap(publishes: bool) -> float:
    return await write_many(publishes)


@workflow
async def answer() -> None:
    await speak()


def measured(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(address(folder)))


async def _measure(store: str) -> dict[str, float]:
    async with Outlast(store, signals=0) as app:
        bare, full = [
            await (await app.start(cheap(publishes), id=f"cheap-{publishes}")).result()
            for publishes in (False, True)
        ]
        reader = subprocess.Popen(
            [sys.executable, "-m", "bench.own.publish", "--read", store],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout is not None
        await asyncio.to_thread(reader.stdout.readline)
        run = await app.start(answer(), id="answer")
        await run.result()
        output, _ = await asyncio.to_thread(reader.communicate)
    late = sorted(json.loads(output))
    interval = app.settings.publish_interval
    return {
        "cpu_us_per_token": full - bare,
        "p50_ms": late[len(late) // 2] * 1000,
        "p99_ms": late[len(late) * 99 // 100] * 1000,
        "p50_past_interval_ms": (late[len(late) // 2] - interval) * 1000,
    }


async def _read(store: str) -> None:
    """Print a line when the store is open, and then how late each token was, in seconds."""
    late = []
    async with Outlast(store, signals=0) as app:
        print("open", flush=True)
        while not late:
            # Until the run exists.
            with suppress(UnknownRun):
                async for event in app.watch("answer", "answer"):
                    if isinstance(event, DataEvent):
                        late.append(time.monotonic() - event.value)
    print(json.dumps(late))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.own.publish", description=__doc__)
    parser.add_argument("--read", metavar="STORE", help="be the reader")
    given = parser.parse_args()
    if given.read:
        asyncio.run(_read(given.read))
        return
    with measuring_folder(None) as folder:
        print(json.dumps(measured(folder)))


if __name__ == "__main__":
    main()
