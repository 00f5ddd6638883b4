"""The same workflows, in an app of its own: slow to start, and slow to clean up."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from drain_flows import chain, gated, log, sleeper

from outlast import Outlast

__all__ = ["app", "chain", "gated", "sleeper"]


@asynccontextmanager
async def living(_: Outlast) -> AsyncIterator[None]:
    while not Path("may-start").exists():
        await asyncio.sleep(0.01)
    yield
    log("lifespan", os.getpid())


app = Outlast(lifespan=living)


@app.on_cleanup
async def clean_up() -> None:
    """As long as it takes until a file is there."""
    log("clean-up", os.getpid())
    while not Path("clean").exists():
        await asyncio.sleep(0.01)
