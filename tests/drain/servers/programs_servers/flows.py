"""What `outlast worker` executes here. GATE is a file: until it is there, the lifespan is not entered."""

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
async def block(seconds: float) -> str:
    """The loop stands still."""
    say("block-begins")
    time.sleep(seconds)
    say("block-ends")
    return "blocked"


@workflow
async def blocks(seconds: float) -> str:
    return await block(seconds)


@step
def hold() -> int:
    say("hold-begins")
    return sum(itertools.repeat(1, 10**11))


@workflow
async def holds_the_gil() -> int:
    return await hold.aio()
