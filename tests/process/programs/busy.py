"""Execute many runs at once, for ever: `busy.py FOLDER`. It logs at once what the store acknowledged.

`busy.py FOLDER resume` starts every run of the store again and prints their results. The file `clock`, if
there is one, says by how many seconds its clock is ahead.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from outlast import Outlast, WrongStatus, current, receive, step, workflow
from outlast.store.address import store_at

folder, *mode = sys.argv[1:]
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
STEPS, WIDTH = 12, 6
CLOCK = Path(folder, "clock")


def acknowledged(kind: str, run: str, key: object) -> None:
    os.write(LOG, f"{kind}\t0\t{run}\t{key}\n".encode())


@step
async def block(n: int) -> str:
    return f"{n}" * 1500


@workflow
async def blocks(steps: int) -> int:
    size = 0
    for n in range(steps):
        size += len(await block(n))
        acknowledged("step", current().id, f"block#{n + 1}")
    return size + len(await receive("last", str))


async def one(app: Outlast, id: str) -> int:
    run = await app.start(blocks(STEPS), id=id)
    acknowledged("run", id, "")
    with suppress(WrongStatus):  # the run ended after the first send
        await app.send(id, "last", "x", message_id="x")
    acknowledged("message", id, "x")
    result = await run.result()
    acknowledged("end", id, "")
    return result


async def lane(app: Outlast, number: int) -> None:
    count = 0
    while True:
        await one(app, f"{number}-{count}")
        count += 1


async def main() -> None:
    address = f"sqlite:///{folder}/outlast.db"
    moved = store_at(address, clock=lambda: time.time() + float(CLOCK.read_text()))
    async with Outlast(moved if CLOCK.exists() else address) as app:
        if mode:
            ids = [info.id for info in await app.runs(status=["running", "queued"], limit=1000)]
            results = [await one(app, id) for id in ids]
            print(json.dumps(results), flush=True)
        else:
            await asyncio.gather(*(lane(app, number) for number in range(WIDTH)))


asyncio.run(main())
