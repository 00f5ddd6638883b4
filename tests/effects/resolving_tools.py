"""What the tests of resolving share."""

import asyncio

import pytest
from bank import (
    MARGIN,
    TIMEOUT,
)

from outlast import (
    step,
)

SPAN = TIMEOUT + MARGIN


def about(seconds: float):
    return pytest.approx(seconds, abs=0.2)


def resumed(world, call, id="run"):
    world.do(lambda app: app.resume(id))
    return world.run(call, id=id)


# -- a run that only waits for that


@step
async def work(label: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return label
