"""A retry of a run that was undone does its effects again, under new keys."""

import asyncio

import pytest
from outside import book, outside, put, say, work
from retry_tools import LONG, broken, fails, maybe, retried

from outlast import (
    RunCancelled,
    RunParked,
    Unrecordable,
    effect,
    receive,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken[:] = ["last"]


@workflow
async def trip() -> list[str]:
    await work("early")
    first = await book("a")
    middle = await work("middle")
    said = await say("hello")
    second = await put("b")
    return [first, middle, said, second, await maybe()]


TRIP = ["ticket a", "middle", "said hello", "put b", "last"]


def test_undone_effects_are_repeated_under_new_keys(world):
    fails(world, trip())
    keys = {what: list(keys) for what, keys in outside.keys.items()}
    assert retried(world, trip()) == TRIP
    assert outside.log == [
        "early", "+a", "middle", "+hello", "+b", "last", "-b", "-a",
        "+a", "+b", "last",
    ]  # fmt: skip
    assert len(set(outside.keys["+a"])) == 2
    assert len(set(outside.keys["+b"])) == 2
    assert outside.keys["+a"][0] == keys["+a"][0]
    assert world.replays(trip()) == TRIP


def test_effect_without_a_compensation_is_not_done_twice(world):
    fails(world, trip())
    retried(world, trip())
    assert outside.keys["+hello"] == outside.keys["+hello"][:1]
    assert outside.attempts["hello"] == 1


def test_steps_are_not_executed_twice_before_or_after_what_was_undone(world):
    fails(world, trip())
    retried(world, trip())
    assert [outside.log.count(one) for one in ("early", "middle")] == [1, 1]


def test_retry_in_another_process_does_the_same(world):
    fails(world, trip())
    world.restart(after=3600)
    assert retried(world, trip()) == TRIP
    assert outside.log.count("+a") == 2


def test_retry_that_fails_again_is_undone_again_under_keys_of_its_own(world):
    fails(world, trip())
    for _ in range(2):
        world.do(lambda app: app.retry("run"))
        fails(world, trip())
    assert outside.undone == ["-b", "-a"] * 3
    assert [len(set(outside.keys[what])) for what in ("+a", "-a", "+b", "-b", "+hello")] == [
        3,
        3,
        3,
        3,
        1,
    ]
    assert retried(world, trip()) == TRIP
    assert outside.left == ["hello", "a", "b"]


def test_death_after_the_retry_changes_nothing(world):
    fails(world, trip())
    broken.clear()
    world.do(lambda app: app.retry("run"))
    world.die(trip(), until=lambda: outside.log.count("+a") == 2)
    assert world.run(trip()) == TRIP
    assert outside.log.count("+a") == 2
    assert world.replays(trip()) == TRIP


def test_cancelled_run_that_was_undone_can_be_retried(world):
    @workflow
    async def waits() -> str:
        await book("a")
        return await receive("go", str)

    async def main(app):
        run = await app.start(waits(), id="run")
        await asyncio.sleep(10)
        await app.cancel("run")
        with pytest.raises(RunCancelled):
            await run.result()
        await app.retry("run")
        run = await app.start(waits(), id="run")
        await app.send("run", "go", "gone")
        return await run.result(timeout=LONG)

    assert world.do(main) == "gone"
    assert outside.log == ["+a", "-a", "+a"]


def test_message_received_after_an_undone_effect_is_available_again(world):
    @workflow
    async def asks() -> str:
        await book("a")
        answer = await receive("answer", str)
        await maybe()
        return answer

    async def main(app):
        run = await app.start(asks(), id="run")
        await app.send("run", "answer", "yes")
        with pytest.raises(ValueError):
            await run.result(timeout=LONG)

    world.do(main)
    assert retried(world, asks()) == "yes"


def test_message_that_ended_the_run_is_not_delivered_again(world):
    @workflow
    async def asks() -> int:
        await book("a")
        await receive("hello", str)
        return await receive("number", int)

    async def main(app):
        run = await app.start(asks(), id="run")
        await app.send("run", "hello", "you")
        await app.send("run", "number", "many")
        with pytest.raises(Unrecordable):
            await run.result(timeout=LONG)
        await app.retry("run")
        await app.send("run", "number", 7)
        return await (await app.start(asks(), id="run")).result(timeout=LONG)

    assert world.do(main) == 7
    assert outside.log == ["+a", "-a", "+a"]
    assert world.replays(asks()) == 7


# -- other arguments


def test_changed_arguments_make_a_new_effect_after_a_retry(world):
    """What was asked before it is answered otherwise the second time."""
    price = [1]

    @workflow
    async def buys() -> str:
        await book("a")
        label = await current_price()
        await say(label)
        await put(label)
        await maybe()
        return label

    @effect(timeout=5, failed_on=LookupError)
    async def current_price() -> str:
        return f"price {price[0]}"

    @current_price.compensate
    async def forget(_: str) -> None:
        pass

    fails(world, buys())
    price[0] = 2
    assert retried(world, buys()) == "price 2"
    assert outside.done == ["+a", "+price 1", "+price 1", "+a", "+price 2", "+price 2"]
    assert outside.left == ["price 1", "a", "price 2", "price 2"], "what was said cannot be unsaid"
    assert outside.keys["+price 1"][0] != outside.keys["+price 2"][0]
    assert world.replays(buys()) == "price 2"


# -- not undone to the end


def test_retry_of_a_stuck_run_continues_undoing(world):
    outside.broken.add("-b")
    with pytest.raises(RunParked):
        world.run(trip())
    broken.clear()
    outside.broken.clear()
    world.do(lambda app: app.retry("run"))
    fails(world, trip())
    assert outside.undone == ["-b", "-a"]
    assert outside.done == ["+a", "+hello", "+b"]
    assert retried(world, trip()) == TRIP
    assert outside.left == ["hello", "a", "b"]


def test_effect_undone_by_hand_is_repeated(world):
    outside.broken.add("-b")
    with pytest.raises(RunParked):
        world.run(trip())

    async def by_hand(app):
        intents = [
            one.seq
            for one in await app.journal("run")
            if one.key == "undo:put#1" and one.kind == "intent"
        ]
        await app.decide("run", "undo:put#1", happened=None, intent=intents[-1])

    world.do(by_hand)
    fails(world, trip())
    assert retried(world, trip()) == TRIP
    assert outside.log.count("+b") == 2
