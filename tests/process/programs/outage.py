"""Execute one run with one step: `outage.py FOLDER STORE`. The step waits for the file `go`.

It prints "begins" when the step begins, and the result or the error.
"""

import asyncio
import json
import sys
from pathlib import Path

from outlast import StoreUnavailable, run, step, workflow

folder, store = sys.argv[1:]


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


@step
async def wait() -> int:
    say("begins")
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.005)
    return 1


@workflow
async def flow() -> int:
    return await wait()


try:
    say(run(flow(), id="outage", store=store))
except StoreUnavailable as error:
    say(f"unavailable: {error}")
