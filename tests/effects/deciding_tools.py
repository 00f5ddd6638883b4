"""What the tests of decisions share."""

import pytest
from bank import mail, push

from outlast import (
    RunParked,
    workflow,
)


@workflow
async def mailing() -> str:
    return await mail("rent")


def park(world, call, id="run") -> None:
    with pytest.raises(RunParked):
        world.run(call, id=id)


def decide(world, *args, **what) -> None:
    world.do(lambda app: app.decide(*args, **what))


# -- who comes too late


@workflow
async def pushing() -> str:
    return await push("never")
