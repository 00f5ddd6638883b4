"""A program of one run with one long step: it says when the step begins, and what ends it."""

import asyncio
import json
import sys

from outlast import StoreUnavailable, run, step, workflow


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


@step
async def long(seconds: float) -> int:
    say("begins")
    await asyncio.sleep(seconds)
    return 1


@workflow
async def flow(seconds: float) -> int:
    return await long(seconds)


_, _, store, seconds = sys.argv
try:
    say(run(flow(float(seconds)), id="outage", store=store))
except StoreUnavailable as error:
    say(f"unavailable: {error}")
