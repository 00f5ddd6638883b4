"""A retry of undone units, of effects that were open, and of runs with timers."""

import asyncio

import pytest
from outside import book, outside, put, say, work
from retry_tools import LONG, broken, fails, maybe, retried

from outlast import (
    KEY,
    RunTimeout,
    compensate_with,
    effect,
    now,
    sleep,
    workflow,
)
from outlast.api.unit import unit


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken[:] = ["last"]


# -- units


def test_unit_that_ended_its_run_is_repeated(world):
    @workflow
    async def order() -> str:
        await book("before")
        async with unit("order"):
            await book("a")
            await put("b")
            await maybe()
        return "ok"

    fails(world, order())
    assert outside.undone == ["-b", "-a", "-before"]
    assert retried(world, order()) == "ok"
    assert outside.left == ["before", "a", "b"]
    assert len(set(outside.keys["+a"])) == 2
    assert world.replays(order()) == "ok"


def test_unit_rolled_back_earlier_is_not_repeated(world):
    @workflow
    async def order() -> str:
        try:
            async with unit("order"):
                await book("a")
                raise LookupError
        except LookupError:
            await say("sorry")
        await put("b")
        await maybe()
        return "ok"

    fails(world, order())
    assert outside.log == ["+a", "-a", "+sorry", "+b", "last", "-b"]
    assert retried(world, order()) == "ok"
    assert outside.log[6:] == ["+b", "last"]
    assert world.replays(order()) == "ok"


def test_unit_between_undone_effects_rolls_back_again(world):
    """It is after the first effect that was undone, so it is void, and it was undone: it is done again."""

    @workflow
    async def order() -> str:
        await put("first")
        try:
            async with unit("order"):
                await book("a")
                raise LookupError
        except LookupError:
            pass
        await maybe()
        return "ok"

    fails(world, order())
    assert outside.log == ["+first", "+a", "-a", "last", "-first"]
    assert retried(world, order()) == "ok"
    assert outside.log[5:] == ["+first", "+a", "-a", "last"]
    assert outside.left == ["first"]
    assert world.replays(order()) == "ok"


def test_death_in_a_unit_after_a_retry_rolls_back_under_the_new_keys(world):
    @workflow
    async def order() -> str:
        async with unit("order"):
            await book("a")
            await put("b")
            await maybe()
        return "ok"

    fails(world, order())
    world.do(lambda app: app.retry("run"))
    world.die(order(), until=lambda: outside.log.count("-b") == 2)
    fails(world, order())
    assert outside.log.count("+a") == outside.log.count("-a") == 2
    assert [len(set(outside.keys[what])) for what in ("+a", "-a")] == [2, 2]
    assert retried(world, order()) == "ok"
    assert outside.left == ["a", "b"]


# -- done after all


def test_repeated_effect_stays_done_while_another_is_open(world):
    @workflow
    async def loose() -> str:
        await put("a")
        await maybe()
        asyncio.create_task(book("x", 50.0))  # its own timeout cuts it
        await asyncio.sleep(1)
        return "done"

    fails(world, loose())
    assert retried(world, loose()) == "done"
    assert outside.log == ["+a", "last", "-a", "+a", "last", "?x"]


# -- the clock


def test_time_before_the_retry_does_not_expire_a_timeout(world):
    @workflow
    async def hasty() -> str:
        async with asyncio.timeout(100):
            await work("early")
            await sleep(10)
            await book("a")
            await sleep(20)
            await maybe()
        return "in time"

    fails(world, hasty())
    world.restart(after=10_000)
    assert retried(world, hasty()) == "in time"
    assert world.replays(hasty()) == "in time"


def test_number_of_retries_does_not_expire_a_timeout(world):
    @workflow
    async def hasty() -> str:
        async with asyncio.timeout(100):
            await sleep(10)
            await book("a")
            await sleep(60)
            await maybe()
        return "in time"

    fails(world, hasty())
    for _ in range(3):
        world.restart(after=1_000)
        world.do(lambda app: app.retry("run"))
        fails(world, hasty())
    assert retried(world, hasty()) == "in time"


def test_timeout_counts_again_after_the_retry(world):
    @workflow
    async def hasty() -> str:
        try:
            async with asyncio.timeout(100):
                await sleep(10)
                await book("a")
                await maybe()
                await sleep(LONG)
        except TimeoutError:
            return f"{now().timestamp():.0f}"
        return ""

    fails(world, hasty())
    world.restart(after=1_000)
    at = world.clock()
    ended = float(retried(world, hasty()))
    assert at + 50 < ended < at + 100


def test_timed_out_run_has_its_whole_timeout_again(world):
    slow = [True]

    @workflow(timeout=60)
    async def timed() -> str:
        await book("a")
        await work("wait", LONG if slow else 50.0)
        return "ok"

    with pytest.raises(RunTimeout):
        world.run(timed())
    slow.clear()
    world.restart(after=1_000)
    assert retried(world, timed()) == "ok"
    assert outside.left == ["a"]


# -- what was open, or did not happen


def test_effect_that_failed_the_run_is_repeated_under_a_new_key(world):
    keys = []

    @effect(timeout=5, failed_on=LookupError)
    async def reserve(key: str = KEY) -> str:
        keys.append(key)
        if broken:
            raise LookupError
        return "ok"

    @workflow
    async def one() -> str:
        await book("a")
        return await reserve()

    with pytest.raises(LookupError):
        world.run(one())
    assert retried(world, one()) == "ok"
    assert len(set(keys)) == 2
    assert outside.log == ["+a", "-a", "+a"]


def test_registrations_are_repeated_without_the_steps_between(world):
    @workflow
    async def one() -> str:
        await compensate_with(say, "bye")
        await maybe("first")
        await compensate_with(say, "good night")
        await maybe()
        return "ok"

    fails(world, one())
    assert outside.log == ["first", "last", "+good night", "+bye"]
    assert retried(world, one()) == "ok"
    assert outside.log[4:] == ["last"], "and the step between is not executed again"
    assert world.replays(one()) == "ok"
