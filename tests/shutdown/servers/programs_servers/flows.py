"""Workflows for `outlast worker`. Until there is the file that GATE names, the lifespan is not entered."""

import asyncio
import itertools
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

from said import cleanup, living, one, say, two, two_in_thread

from outlast import Outlast, step, workflow

__all__ = ["app", "blocks", "holds_the_gil", "one", "two", "two_in_thread"]


@asynccontextmanager
async def gated(app):
    gate = os.environ.get("GATE")
    say("at-the-gate")
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.01)
    async with living(app):
        yield
    say("drained-flows")


app = Outlast(lifespan=gated)
app.on_cleanup(cleanup)


@step
async def block(gate: str) -> str:
    """Block the loop until there is a file of this name."""
    say("block-begins")
    while not Path(gate).exists():
        time.sleep(0.02)
    say("block-ends")
    return "blocked"


@workflow
async def blocks(gate: str) -> str:
    return await block(gate)


@step
def hold() -> int:
    say("hold-begins")
    return sum(itertools.repeat(1, 10**11))


@workflow
async def holds_the_gil() -> int:
    return await hold.aio()
