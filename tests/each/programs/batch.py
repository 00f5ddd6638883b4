"""A job with many items, which tests kill: `batch.py FOLDER each|map|sync FROM TO [SECONDS]`.

It logs each item that begins or ends, prints the result, and exits with 75 when it was drained. Items from
number 20 on take two seconds unless the file `go` exists, so a test has time to signal the process. The file
`clock`, if there is one, says by how many seconds the clock of its store is ahead.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from outlast import Draining, Outlast
from outlast import sync as blocking
from outlast.engine import direct_claim
from outlast.store.address import store_at

folder, form = sys.argv[1], sys.argv[2]
numbers = range(int(sys.argv[3]), int(sys.argv[4]))
seconds = float(sys.argv[5]) if sys.argv[5:] else 0.002
STORE: Any = f"sqlite:///{folder}/outlast.db"
CLOCK = Path(folder, "clock")
if CLOCK.exists():
    STORE = store_at(STORE, clock=lambda: time.time() + float(CLOCK.read_text()), heartbeat=0.1)
direct_claim.NOTICE_AFTER_SECONDS = 0.1  # a test waits for the message
SETTINGS = {"heartbeat": 0.1, "death_backoff": 0.05, "signals": 1}


def log(when: str, number: int) -> None:
    file = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{when}\t{os.getpid()}\tjob\t{number}\n".encode())
    os.close(file)


def seconds_of(number: int) -> float:
    is_slow = sys.argv[5:] and number >= 20 and not Path(folder, "go").exists()
    return 2.0 if is_slow else seconds


async def work(number: int) -> int:
    log("begin", number)
    await asyncio.sleep(seconds_of(number))
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
            time.sleep(seconds_of(number))
            log("end", number)
            count += 1
        return count


try:
    result = sync_main() if form == "sync" else asyncio.run(main())
except (Draining, asyncio.CancelledError):
    sys.exit(75)
print(json.dumps(result), flush=True)
