"""Close the app while a step still executes: `hung.py FOLDER thread|swallow close|stay`.

`thread`: the step runs in a thread, which cannot be stopped. `swallow`: the step runs beside the end of the
workflow and swallows its cancellation. Either executes until the file `go-PID` exists. `close`: the program
closes the app once the step executes, prints the error that the waiter got, and waits to be killed. `stay`: it
prints the result.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from outlast import Outlast, current, step, workflow

folder, kind, then = sys.argv[1:]
GO = Path(folder, f"go-{os.getpid()}")
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
begun: list[int] = []


def note() -> None:
    me = current()
    os.write(LOG, f"before\t{os.getpid()}\t{me.id}\t{me.step}\t{me.attempt}\t{me.fence}\n".encode())
    begun.append(1)


@step
def in_thread() -> int:
    note()
    while not GO.exists():
        time.sleep(0.005)
    return 1


@step
async def swallows() -> int:
    note()
    while not GO.exists():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.005)
    return 1


@step
async def until_begun() -> int:
    while not begun:
        await asyncio.sleep(0.005)
    return 1


@workflow
async def held() -> int:
    if kind == "thread":
        return await in_thread.aio()
    beside = asyncio.create_task(swallows())
    return await until_begun() or await beside


async def main() -> None:
    store = f"sqlite:///{folder}/outlast.db"
    async with Outlast(store, lease=9, heartbeat=0.1, close_timeout=0.1) as app:
        result = asyncio.create_task((await app.start(held(), id="r")).result())
        if then == "stay":
            print(json.dumps(await result), flush=True)
            return
        while not begun:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
    await asyncio.wait([result], timeout=100)
    told = type(result.exception()).__name__ if result.done() else "nothing"
    print(json.dumps(told), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
