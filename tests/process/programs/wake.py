"""Wake another process, or be woken: `wake.py FOLDER ROLE COUNT [POLL [deaf] [slow]]`.

The poll is an hour by default. `deaf` simulates a system without FIFOs, where no process can be woken. `slow`
delays what the store reads.
"""

import asyncio
import json
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from outlast import Outlast, RunCancelled, receive, step, workflow
from outlast.store.sqlite.store import SQLiteStore

folder, role, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
poll = float(sys.argv[4]) if sys.argv[4:] else 3600.0
if "deaf" in sys.argv:
    del os.mkfifo


def say(word: object) -> None:
    print(json.dumps(word), flush=True)


async def until_there(name: str) -> None:
    while not Path(folder, name).exists():
        await asyncio.sleep(0.001)


def make(name: str) -> None:
    Path(folder, name).touch()


@step
async def seen(number: int) -> int:
    make(f"seen-{number}")
    return 1


@workflow
async def listener(count: int) -> int:
    return sum([await seen(await receive("note", int)) for _ in range(count)])


@step
async def finish(number: int) -> int:
    await until_there(f"finish-{number}")
    return 1


@workflow
async def finisher(number: int) -> int:
    return await finish(number)


@workflow
async def waiter(number: int) -> None:
    make(f"waits-{number}")
    try:
        await receive("never")
    except asyncio.CancelledError:
        say("cancelled")
        raise


async def somewhat_later() -> None:
    """Give the other process time to fall asleep, a little more or less each time."""
    await asyncio.sleep(random.uniform(0.02, 0.06))


async def receives(app: Outlast) -> None:
    run = await app.start(listener(count), id="listener")
    make("listening")
    say(await run.result())


async def sends(app: Outlast) -> None:
    await until_there("listening")
    for number in range(count):
        await somewhat_later()
        await app.send("listener", "note", number)
        await until_there(f"seen-{number}")


async def finishes(app: Outlast) -> None:
    for number in range(count):
        run = await app.start(finisher(number), id=f"finisher-{number}")
        make(f"started-{number}")
        await run.result()


async def awaits(app: Outlast) -> None:
    results = 0
    for number in range(count):
        await until_there(f"started-{number}")
        waiting = asyncio.create_task(app.get(finisher, f"finisher-{number}").result())
        await somewhat_later()
        make(f"finish-{number}")
        results += await waiting
    say(results)


async def waits(app: Outlast) -> None:
    for number in range(count):
        run = await app.start(waiter(number), id=f"waiter-{number}")
        with suppress(RunCancelled):
            await run.result()


async def cancels(app: Outlast) -> None:
    for number in range(count):
        await until_there(f"waits-{number}")
        await somewhat_later()
        await app.cancel(f"waiter-{number}")


async def is_killed(app: Outlast) -> None:
    await app.start(waiter(0), id="waiter-0")
    await until_there("never")


async def takes_over(app: Outlast) -> None:
    run = await app.start(waiter(0), id="waiter-0")
    with suppress(RunCancelled):
        await run.result()


async def cancels_meanwhile(app: Outlast) -> None:
    await until_there("reads")
    await app.cancel("waiter-0")
    await somewhat_later()
    make("cancelled")
    await until_there("ended")  # closing would notify once more


class SlowToRead(SQLiteStore):
    """A store whose reading thread is delayed before it returns what it has read."""

    def run(self, id: str) -> Any:
        row = super().run(id)
        time.sleep(0.1)
        return row

    def journal(self, *args: Any, **options: Any) -> Any:
        entries = super().journal(*args, **options)
        make("reads")
        deadline = time.monotonic() + 100
        while not Path(folder, "cancelled").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        return entries


async def main() -> None:
    path = Path(folder, "outlast.db")
    heartbeat = 0.02 if role in ("is_killed", "takes_over") else 600
    store = SlowToRead(path, heartbeat=heartbeat) if "slow" in sys.argv else f"sqlite:///{path}"
    async with Outlast(store, poll=poll, heartbeat=heartbeat, lease=3600) as app:
        await globals()[role](app)


asyncio.run(main())
