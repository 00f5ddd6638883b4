"""Open a second app on the file of the first: `two_apps.py FOLDER open|closed`.

It prints "ready", waits for the file `go-PID`, executes a run, prints its result, and waits to be killed.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from outlast import Outlast, step, workflow

folder, second = sys.argv[1:]
STORE, GO = f"sqlite:///{folder}/outlast.db", Path(folder, f"go-{os.getpid()}")


@step
async def one(n: int) -> int:
    return n


@workflow
async def count(to: int) -> int:
    return sum([await one(n) for n in range(to)])


async def main() -> None:
    async with AsyncExitStack() as apps:
        app = await apps.enter_async_context(Outlast(STORE))
        if second == "open":
            await apps.enter_async_context(Outlast(STORE))
        else:
            async with Outlast(STORE):
                pass
        print(json.dumps("ready"), flush=True)
        while not GO.exists():
            await asyncio.sleep(0.005)
        print(json.dumps(await (await app.start(count(20), id="r")).result()), flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
