"""A run that was undone and is retried does what was undone anew, under new keys, and nothing else twice."""

import asyncio

import pytest
from outside import book, outside, put, say, work

from outlast import (
    KEY,
    RunCancelled,
    RunParked,
    RunTimeout,
    Unrecordable,
    compensate_with,
    effect,
    now,
    receive,
    sleep,
    step,
    workflow,
)
from outlast.define.unit import unit

LONG = 1e5
broken: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken[:] = ["last"]


@step
async def maybe(label: str = "last") -> str:
    outside.log.append(label)
    if label in broken:
        raise ValueError(label)
    return label


@workflow
async def trip() -> list[str]:
    await work("early")
    first = await book("a")
    middle = await work("middle")
    said = await say("hello")
    second = await put("b")
    return [first, middle, said, second, await maybe()]


TRIP = ["ticket a", "middle", "said hello", "put b", "last"]


def fails(world, call, id: str = "run") -> None:
    with pytest.raises(ValueError):
        world.run(call, id=id)


def retried(world, call, id: str = "run"):
    """Once the cause is mended."""
    broken.clear()
    world.do(lambda app: app.retry(id))
    return world.run(call, id=id)


def test_what_was_undone_is_done_anew_under_new_keys(world):
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


def test_an_effect_without_a_compensation_is_not_done_twice(world):
    fails(world, trip())
    retried(world, trip())
    assert outside.keys["+hello"] == outside.keys["+hello"][:1]
    assert outside.attempts["hello"] == 1


def test_steps_are_not_executed_twice_before_or_after_what_was_undone(world):
    fails(world, trip())
    retried(world, trip())
    assert [outside.log.count(one) for one in ("early", "middle")] == [1, 1]


def test_retried_in_another_process_it_is_the_same(world):
    fails(world, trip())
    world.restart(after=3600)
    assert retried(world, trip()) == TRIP
    assert outside.log.count("+a") == 2


def test_a_retry_that_fails_again_is_undone_again_under_keys_of_its_own(world):
    fails(world, trip())
    for _ in range(2):
        world.do(lambda app: app.retry("run"))
        fails(world, trip())
    assert outside.undone == ["-b", "-a"] * 3
    assert [len(set(outside.keys[what])) for what in ("+a", "-a", "+b", "-b", "+hello")] == [3, 3, 3, 3, 1]
    assert retried(world, trip()) == TRIP
    assert outside.left == ["hello", "a", "b"]


def test_a_death_after_the_retry_changes_nothing(world):
    fails(world, trip())
    broken.clear()
    world.do(lambda app: app.retry("run"))
    world.die(trip(), until=lambda: outside.log.count("+a") == 2)
    assert world.run(trip()) == TRIP
    assert outside.log.count("+a") == 2
    assert world.replays(trip()) == TRIP


def test_a_cancelled_run_that_was_undone_can_be_retried(world):
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


def test_a_message_that_was_taken_after_what_was_undone_is_there_again(world):
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


def test_a_message_that_ended_the_run_is_left_out_although_more_is_void(world):
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


def test_what_is_done_with_other_arguments_after_the_retry_is_another_effect(world):
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


def test_a_retry_of_a_run_that_is_stuck_goes_on_undoing_and_does_nothing_anew(world):
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


def test_what_was_undone_by_hand_is_done_anew_too(world):
    outside.broken.add("-b")
    with pytest.raises(RunParked):
        world.run(trip())

    async def by_hand(app):
        intents = [
            one.seq for one in await app.journal("run") if one.key == "undo:put#1" and one.kind == "intent"
        ]
        await app.decide("run", "undo:put#1", happened=None, intent=intents[-1])

    world.do(by_hand)
    fails(world, trip())
    assert retried(world, trip()) == TRIP
    assert outside.log.count("+b") == 2


# -- units


def test_a_unit_that_ended_its_run_is_done_anew(world):
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


def test_a_unit_that_was_rolled_back_before_is_not_done_anew_and_stays_so(world):
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


def test_a_unit_between_what_was_undone_is_rolled_back_anew_with_it(world):
    """It is after the first effect that was undone, so it is void, and it was undone: it is done anew."""

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


def test_a_death_in_a_unit_after_a_retry_rolls_back_under_the_new_keys(world):
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


def test_what_was_undone_once_and_is_done_now_stays_done_also_if_another_effect_is_still_open(world):
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


def test_a_timeout_that_was_set_before_is_not_overdue_because_of_the_time_between(world):
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


def test_nor_because_of_how_often_it_was_tried(world):
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


def test_time_goes_on_after_the_retry_and_the_timeout_still_counts(world):
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


def test_a_run_that_timed_out_has_its_whole_time_again(world):
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


def test_an_effect_that_ended_the_run_because_it_did_not_happen_is_tried_anew_under_a_new_key(world):
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


def test_what_was_registered_is_registered_anew_and_the_steps_between_are_not_executed_again(world):
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
