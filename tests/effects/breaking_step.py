"""A step that fails for as long as a test wants it to."""

import asyncio

from outlast import (
    step,
)

LONG = 1e5


HOUR = 3600.0


broken: list[str] = []


@step
async def breaks(seconds: float = 5.0) -> str:
    await asyncio.sleep(seconds)
    if "breaks" in broken:
        raise ValueError("no")
    return "fixed"
