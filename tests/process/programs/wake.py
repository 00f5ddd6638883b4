"""Two processes that wake each other: `wake.py FOLDER ROLE COUNT`, where no poll can help (every 30 s).

Times are of the monotonic clock, which is one for all processes of a host.
"""

import asyncio
import json
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from outlast import Outlast, RunCancelled, receive, step, workflow

folder, role, count = sys.argv[1], sys.argv[2], int(sys.argv[3])


def say(word: object) -> None:
    print(json.dumps(word), flush=True)


async def until_there(name: str) -> None:
    while not Path(folder, name).exists():
        await asyncio.sleep(0.001)


def make(name: str) -> None:
    Path(folder, name).touch()


@step
async def seen(number: int, sent: float) -> float:
    seconds = time.monotonic() - sent
    make(f"seen-{number}")
    return seconds


@workflow
async def listener(count: int) -> list[float]:
    return [await seen(number, await receive("note", float)) for number in range(count)]


@step
async def finish(number: int) -> float:
    await until_there(f"finish-{number}")
    return time.monotonic()


@workflow
async def finisher(number: int) -> float:
    return await finish(number)


@workflow
async def waiter(number: int) -> None:
    make(f"waits-{number}")
    try:
        await receive("never")
    except asyncio.CancelledError as cancelled:
        say(time.monotonic() - float(str(cancelled)))
        raise


async def somewhat_later() -> None:
    """Long enough for the other to wait, never in step with it."""
    await asyncio.sleep(random.uniform(0.02, 0.06))


async def receives(app: Outlast) -> None:
    run = await app.start(listener(count), id="listener")
    make("listening")
    say(await run.result())


async def sends(app: Outlast) -> None:
    await until_there("listening")
    for number in range(count):
        await somewhat_later()
        await app.send("listener", "note", time.monotonic())
        await until_there(f"seen-{number}")


async def finishes(app: Outlast) -> None:
    for number in range(count):
        run = await app.start(finisher(number), id=f"finisher-{number}")
        make(f"started-{number}")
        await run.result()


async def awaits(app: Outlast) -> None:
    seconds = []
    for number in range(count):
        await until_there(f"started-{number}")
        waiting = asyncio.create_task(app.get(finisher, f"finisher-{number}").result())
        await somewhat_later()
        make(f"finish-{number}")
        seconds.append(-(await waiting) + time.monotonic())
    say(seconds)


async def waits(app: Outlast) -> None:
    for number in range(count):
        run = await app.start(waiter(number), id=f"waiter-{number}")
        with suppress(RunCancelled):
            await run.result()


async def cancels(app: Outlast) -> None:
    for number in range(count):
        await until_there(f"waits-{number}")
        await somewhat_later()
        await app.cancel(f"waiter-{number}", str(time.monotonic()))


async def main() -> None:
    async with Outlast(f"sqlite:///{folder}/outlast.db", poll=30, heartbeat=15, lease=60) as app:
        await globals()[role](app)


asyncio.run(main())
