"""Execute one run with one step: `outage.py FOLDER STORE`. The step waits for the file `go`.

It prints "begins" when the step begins, and the result or the error. Once `go` is there, its monotonic clock runs
FASTER: it loses patience soon, but not before the store is away. The file `clock`, if there is one, says by how
many seconds its wall clock is ahead.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from outlast import StoreUnavailable, run, step, workflow
from outlast.store.address import store_at

FASTER = 20
folder, store = sys.argv[1:]
CLOCK = Path(folder, "clock")


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


@step
async def wait() -> int:
    say("begins")
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.005)
    hurry()
    return 1


def hurry(real: Callable[[], float] = time.monotonic) -> None:
    began = real()
    time.monotonic = lambda: began + FASTER * (real() - began)


@workflow
async def flow() -> int:
    return await wait()


if CLOCK.exists():
    store = store_at(store, clock=lambda: time.time() + float(CLOCK.read_text()), heartbeat=0.1)
try:
    say(run(flow(), id="outage", store=store))
except StoreUnavailable as error:
    say(f"unavailable: {error}")
