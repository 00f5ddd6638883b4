"""Execute a run that can be held at two places: `stale.py FOLDER [step] [end]`.

`step`: its second step waits for the file `go-PID`. `end`: the workflow itself waits for it before it returns.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from outlast import Outlast, current, step, workflow

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


async def main() -> None:
    async with Outlast(f"sqlite:///{folder}/outlast.db", heartbeat=0.2) as app:
        result = await (await app.start(held(), id="r")).result()
    print(json.dumps(result), flush=True)


asyncio.run(main())
