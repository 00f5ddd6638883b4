"""A thousand-record job that may be killed anywhere: `batch.py FOLDER each|map|sync FROM TO [SECONDS]`.

An item that begins, or has ended, is a line in the outside log. It says what came of it, and exits 75 when it was drained.
"""

import asyncio
import json
import os
import sys
import time

from outlast import Draining, Outlast
from outlast import sync as blocking

folder, form = sys.argv[1], sys.argv[2]
numbers = range(int(sys.argv[3]), int(sys.argv[4]))
seconds = float(sys.argv[5]) if sys.argv[5:] else 0.002
STORE = f"sqlite:///{folder}/outlast.db"
SETTINGS = {"heartbeat": 0.1, "death_backoff": 0.05, "signals": 1}


def log(when: str, number: int) -> None:
    file = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{when}\t{os.getpid()}\tjob\t{number}\n".encode())
    os.close(file)


async def work(number: int) -> int:
    log("begin", number)
    await asyncio.sleep(seconds)
    log("end", number)
    return number * number


async def main() -> object:
    async with Outlast(STORE, **SETTINGS) as app:
        if form == "map":
            return await app.map(work, numbers, id="job", concurrency=8)
        count = 0
        async for number in app.each(numbers, id="job"):
            await work(number)
            count += 1
        return count


def sync_main() -> object:
    with blocking.Outlast(STORE, **SETTINGS) as app:
        count = 0
        for number in app.each(numbers, id="job"):
            log("begin", number)
            time.sleep(seconds)
            log("end", number)
            count += 1
        return count


try:
    result = sync_main() if form == "sync" else asyncio.run(main())
except (Draining, asyncio.CancelledError):
    sys.exit(75)
print(json.dumps(result), flush=True)
