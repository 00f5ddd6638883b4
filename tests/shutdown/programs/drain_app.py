"""The same workflows in an app that waits for a file when it starts and when it cleans up."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from drain_flows import chain, gated, log, receiver, sleeper

from outlast import Outlast

__all__ = ["app", "chain", "gated", "receiver", "sleeper"]


@asynccontextmanager
async def living(_: Outlast) -> AsyncIterator[None]:
    while not Path("may-start").exists():
        await asyncio.sleep(0.01)
    yield
    log("lifespan", os.getpid())


app = Outlast(lifespan=living)


@app.on_cleanup
async def clean_up() -> None:
    """Wait until there is a file."""
    log("clean-up", os.getpid())
    while not Path("clean").exists():
        await asyncio.sleep(0.01)
