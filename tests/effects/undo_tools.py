"""What the tests of undoing share."""

import asyncio

import pytest
from outside import book, fail, outside, put, say, wire, work

from outlast import (
    RunParked,
    sleep,
    workflow,
)

LONG = 1e5


@workflow
async def trip(then: str = "fail") -> str:
    tickets = [await book("a"), await put("b"), await book("c")]
    await work("step")
    if then == "fail":
        await fail("no such luck")
    if then == "raise":
        raise LookupError("own")
    if then == "wait":
        await sleep(LONG)
    return ",".join(tickets)


async def failing(after: float) -> None:
    await asyncio.sleep(after)
    await fail("sibling")


def decide(world, effect: str, **said) -> None:
    """As a person does who has looked at it."""

    async def main(app):
        ones = [
            one for info in await app.effects("run") for one in (info, info.undo) if one is not None
        ]
        (meant,) = [one for one in ones if effect in (one.place, one.effect)]
        await app.decide("run", effect, intent=meant.intent, **said)

    world.do(main)


def parked(world, call=None, id: str = "run") -> str:
    """Until it is parked: why."""
    with pytest.raises(RunParked) as caught:
        world.run(call if call is not None else trip(), id=id)
    return caught.value.reason


# -- what is open


@workflow
async def one_act(kind: str) -> None:
    await put("first")
    await {"book": book, "put": put, "say": say, "wire": wire}[kind]("x")
    await fail()


def dies_in_the_act(world, call, *, after: bool) -> None:
    """The process dies in the middle of the act, before or after it has happened."""
    if after:
        world.die(call, until=lambda: "+x" in outside.log)
    else:
        world.die(call, until=lambda: outside.attempts["x"] == 1)
