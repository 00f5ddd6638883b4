"""What the tests of units share."""

from outside import book, fail, outside, put, work

from outlast import workflow
from outlast.api.unit import unit


def ends_alike(world, call, expected):
    """It ends like this, undisturbed; and its finished journal replays to the same end."""
    assert world.run(call.again()) == expected
    log = list(outside.log)
    assert world.replays(call.again()) == expected
    assert outside.log == log


# -- rolling back


@workflow
async def order(then: str = "fail") -> str:
    await book("before")
    try:
        async with unit("order"):
            await book("a")
            await put("b")
            await work("step")
            await book("c")
            if then == "fail":
                await fail()
            if then == "raise":
                raise ValueError("own")
    except ValueError as error:
        await work("after")
        return f"rolled back: {error}"
    if then == "late":
        await fail("late")
    return "committed"
