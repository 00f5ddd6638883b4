"""Execute a run that can be held at two places: `stale.py FOLDER [step] [end]`.

`step`: its second step waits for the file `go-PID`. `end`: the workflow itself waits for it before it returns.
The file `clock` says by how many seconds its clock is ahead.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from outlast import Outlast, current, step, workflow
from outlast.store.address import store_at

folder, *places = sys.argv[1:]
GO = Path(folder, f"go-{os.getpid()}")
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def log(when: str) -> None:
    me = current()
    os.write(LOG, f"{when}\t{os.getpid()}\t{me.id}\t{me.step}\t0\t{me.fence}\n".encode())


@step
async def first() -> str:
    return "first"


@step
async def second() -> str:
    log("before")
    while "step" in places and not GO.exists():
        await asyncio.sleep(0.005)
    log("after")
    return "second"


@step
async def third() -> str:
    log("before")
    return "third"


@workflow
async def held() -> list[str]:
    words = [await first(), await second(), await third()]
    log("at the end")
    while "end" in places and not GO.exists():
        time.sleep(0.005)  # blocks the event loop
    return words


def clock() -> float:
    """Return the time, moved by as many seconds as the file `clock` says."""
    return time.time() + float(Path(folder, "clock").read_text())


async def main() -> None:
    store = store_at(f"sqlite:///{folder}/outlast.db", clock=clock, heartbeat=0.2)
    async with Outlast(store, heartbeat=0.2) as app:
        result = await (await app.start(held(), id="r")).result()
    print(json.dumps(result), flush=True)


asyncio.run(main())
