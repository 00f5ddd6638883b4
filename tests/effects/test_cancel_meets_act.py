"""A cancellation waits for an act, then cancels what the task awaits next."""

import asyncio
import time

import pytest

from outlast import (
    KEY,
    Happened,
    Outlast,
    RunCancelled,
    compensate_with,
    effect,
    step,
    unit,
    workflow,
)
from outlast.execution.effect_call import find
from support.waiting import WAIT_SECONDS

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@effect(timeout=60)
async def book(what: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    done.append(what)
    return f"ref {what}"


@book.compensate
async def unbook(ref: str, what: str) -> None:
    done.append(f"un{what}")


@effect(timeout=60)
async def tell(what: str) -> None:
    done.append(what)


@step
async def fail(after: float) -> None:
    await asyncio.sleep(after)
    raise ValueError("a sibling failed")


@workflow
async def goes_on_after_the_act() -> str:
    try:
        async with asyncio.timeout(1):
            await book("a", 5)
            done.append("got it")
            await asyncio.sleep(1000)
    except TimeoutError:
        return "timed out"
    return "slept on"


def test_code_after_the_act_is_cancelled(world):
    assert world.run(goes_on_after_the_act()) == "timed out"
    assert done == ["a", "got it"]
    assert world.replays(goes_on_after_the_act()) == "timed out"


@workflow
async def leaves_the_timeout() -> str:
    async with asyncio.timeout(1):
        ref = await book("a", 5)
    await asyncio.sleep(10)
    return ref


def test_timeout_that_was_left_cancels_nothing(world):
    assert world.run(leaves_the_timeout()) == "ref a"
    assert world.replays(leaves_the_timeout()) == "ref a"


@workflow
async def in_a_group() -> str:
    async def long() -> None:
        await book("a", 5)
        await book("b", 5)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(long())
            group.create_task(fail(1))
    except ExceptionGroup:
        return "failed"
    return "done"


def test_acting_sibling_starts_nothing_more_when_its_group_fails(world):
    assert world.run(in_a_group()) == "failed"
    assert done == ["a"]
    assert world.replays(in_a_group()) == "failed"


@workflow
async def two_bookings() -> None:
    await book("a", 5)
    await book("b", 5)


def test_run_cancelled_during_an_act_is_undone(world):
    async def main(app):
        run = await app.start(two_bookings(), id="run")
        await asyncio.sleep(1)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled):
            await run.result()

    world.do(main)
    assert done == ["a", "una"]


@workflow
async def registers_in_a_unit() -> str:
    try:
        async with unit("order"):
            await book("a", 0)
            await compensate_with(tell, "registered")
            await book("b", 0)
            raise ValueError
    except ValueError:
        return "rolled back"


def test_registered_compensation_is_called_when_its_unit_rolls_back(world):
    assert world.run(registers_in_a_unit()) == "rolled back"
    assert done == ["a", "b", "unb", "registered", "una"]
    assert [one.state for one in world.do(lambda app: app.effects("run"))] == ["undone"] * 3
    assert world.replays(registers_in_a_unit()) == "rolled back"


def test_undo_finds_the_right_effect_of_two_with_one_name():
    @effect(timeout=1, name="twin")
    async def one() -> None: ...

    @effect(timeout=1, name="twin")
    async def other() -> None: ...

    assert find("twin", one.code) is one
    assert find("twin", other.code) is other
    assert find("twin", "elsewhere:gone") is None


def test_process_that_paused_before_sending_does_not_verify_at_once():
    """The loop stands still for longer than the wait; then the request goes out, and is served after the time-out has cut the act."""
    served_at: list[float] = []
    acts: list[str] = []

    @effect(timeout=0.5)
    async def send(key: str = KEY) -> str:
        acts.append(key)
        time.sleep(1.5)  # held up
        served_at.append(time.monotonic() + 0.3)
        await asyncio.sleep(10)
        return key

    @send.verify
    async def sent(key: str = KEY) -> Happened[str] | None:
        return Happened(key) if time.monotonic() >= served_at[0] else None

    @workflow
    async def sending() -> str:
        return await send()

    async def main() -> str:
        async with Outlast("memory:", effect_margin=0.2) as app:
            return await (await app.start(sending(), id="run")).result(timeout=WAIT_SECONDS)

    assert asyncio.run(main()) == acts[0]
    assert len(acts) == 1
