"""What the tests of retried runs share."""

import pytest
from outside import outside

from outlast import (
    step,
)

LONG = 1e5


broken: list[str] = []


@step
async def maybe(label: str = "last") -> str:
    outside.log.append(label)
    if label in broken:
        raise ValueError(label)
    return label


def fails(world, call, id: str = "run") -> None:
    with pytest.raises(ValueError):
        world.run(call, id=id)


def retried(world, call, id: str = "run"):
    """Once the cause is fixed."""
    broken.clear()
    world.do(lambda app: app.retry(id))
    return world.run(call, id=id)
