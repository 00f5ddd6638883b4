"""`compensate_with`: what is to be done if the run is undone, whatever it belongs to."""

import asyncio

import pytest
from outside import book, fail, outside, put, sput, wire, work

from outlast import KEY, NotInRun, RunCancelled, compensate_with, effect, sleep, step, workflow
from outlast import sync as s

LONG = 1e5


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


@effect(timeout=5, idempotent=True)
async def release(lock: str, key: str = KEY) -> str:
    outside.attempts[f"-{lock}"] += 1
    await asyncio.sleep(1)
    outside.apply(f"-{lock}", key)
    return lock


@workflow
async def locked(then: str = "fail") -> str:
    await book("a")
    await compensate_with(release, "l1")
    await book("b")
    await compensate_with(release, lock="l2")
    if then == "fail":
        await fail()
    if then == "wait":
        await sleep(LONG)
    return then


def test_it_takes_its_place_in_the_order_in_which_things_are_undone(world):
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.log == ["+a", "+b", "-l2", "-b", "-l1", "-a"]
    assert world.status() == "failed"


def test_a_run_that_is_done_does_not_execute_it(world):
    assert world.run(locked("return")) == "return"
    assert outside.log == ["+a", "+b"]


def test_it_alone_makes_a_run_be_undone(world):
    @workflow
    async def only() -> None:
        await compensate_with(release, "l")
        raise LookupError

    with pytest.raises(LookupError):
        world.run(only())
    assert outside.log == ["-l"]


def test_it_is_durable_when_it_returns(world):
    @workflow
    async def only() -> None:
        await compensate_with(release, "l")
        await work("registered")
        await sleep(LONG)

    world.die(only(), until=lambda: outside.log)

    async def main(app):
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled):
            await (await app.start(only(), id="run")).result(timeout=2 * LONG)

    world.do(main)
    assert outside.log == ["registered", "-l"]


def test_each_registration_is_done_once_under_a_key_of_its_own(world):
    @workflow
    async def twice() -> None:
        await compensate_with(release, "l")
        await compensate_with(release, "l")
        await fail()

    with pytest.raises(ValueError):
        world.run(twice())
    assert outside.log == ["-l", "-l"]
    assert len(set(outside.keys["-l"])) == 2


def test_a_death_in_the_middle_of_it_acts_again_under_its_key(world):
    world.die(locked(), until=lambda: outside.attempts["-l1"] == 1)
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.log == ["+a", "+b", "-l2", "-b", "-l1", "-a"]
    assert outside.attempts["-l1"] == 2


def test_it_may_be_registered_while_the_run_is_being_cancelled(world):
    @workflow
    async def guarded() -> None:
        await put("a")
        try:
            await sleep(LONG)
        finally:
            await compensate_with(release, "l")

    async def main(app):
        run = await app.start(guarded(), id="run")
        await asyncio.sleep(10)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=2 * LONG)

    world.do(main)
    assert outside.log == ["+a", "-l", "-a"]


def test_what_is_registered_in_a_finally_of_a_run_that_dies_then_is_registered_again(world):
    @workflow
    async def guarded() -> None:
        await put("a")
        try:
            await sleep(LONG)
        finally:
            await compensate_with(release, "l")

    async def cancel(app):
        await app.start(guarded(), id="run")
        await asyncio.sleep(10)
        await app.cancel("run", "enough")

    world.do(cancel)
    world.restart()
    with pytest.raises(RunCancelled):
        world.run(guarded())
    assert outside.log == ["+a", "-l", "-a"]


def test_its_own_compensation_is_not_executed(world):
    """It is called to undo something: nobody undoes that."""

    @workflow
    async def one() -> None:
        await compensate_with(put, "x")
        await fail()

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.log == ["+x"]


def test_a_sync_effect_and_a_sync_workflow(world):
    @s.workflow
    def plain() -> None:
        sput("a")
        s.compensate_with(sput, "b")
        sput("c")
        raise LookupError

    with pytest.raises(LookupError):
        world.run(plain())
    assert outside.log == ["+a", "+c", "-c", "+b", "-a"]


def test_one_that_fails_for_good_is_stuck_and_goes_on_after_a_retry(world):
    outside.broken.add("-l1")
    with pytest.raises(Exception, match=r"stuck: undo:compensate:release#1") as caught:
        world.run(locked())
    assert type(caught.value).__name__ == "RunParked"
    outside.broken.clear()
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.undone == ["-l2", "-b", "-l1", "-a"]


def test_it_replays_and_a_changed_registration_diverges(world):
    world.die(locked("wait"), after=30)
    world.restart()

    @workflow(name="locked")
    async def other(then: str = "fail") -> str:
        await book("a")
        await compensate_with(release, "another")
        return ""

    with pytest.raises(Exception, match="journal recorded compensation compensate:release#1"):
        world.run(other("wait"))


def test_it_takes_an_effect_and_is_for_a_workflows_own_code(world):
    @step
    async def inside() -> None:
        await compensate_with(release, "l")

    @workflow
    async def one() -> str:
        with pytest.raises(TypeError, match="takes an effect"):
            compensate_with(work, "l")
        with pytest.raises(TypeError):
            compensate_with(release, nonsense=1)
        with pytest.raises(NotInRun):
            await inside()
        return "ok"

    assert world.run(one()) == "ok"
    with pytest.raises(NotInRun):
        compensate_with(release, "l")
    assert "compensation" not in world.kinds()


def test_an_argument_that_is_changed_after_the_registration_is_as_it_was(world):
    given = []

    @effect(timeout=5, idempotent=True)
    async def drop(names: list[str]) -> None:
        given.append(names)

    @workflow
    async def one() -> None:
        names = ["a"]
        await compensate_with(drop, names)
        names.append("b")
        await fail()

    with pytest.raises(ValueError):
        world.run(one())
    assert given == [["a"]]


def test_after_a_retry_that_undid_it_it_is_registered_anew(world):
    broken = [True]

    @step
    async def maybe() -> None:
        if broken:
            raise ValueError("broken")

    @workflow
    async def one() -> str:
        await compensate_with(release, "l")
        await take_it()
        await maybe()
        return "ok"

    @step
    async def take_it() -> None:
        outside.log.append("+l")

    with pytest.raises(ValueError):
        world.run(one())
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError):
        world.run(one())
    assert outside.undone == ["-l", "-l"], "what was registered anew is done anew"
    assert len(set(outside.keys["-l"])) == 2
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == "ok"
    assert outside.undone == ["-l", "-l"]
    assert world.replays(one()) == "ok"


def test_what_can_be_undone_with_an_effect_that_nobody_can_tell_is_for_a_person(world):
    @workflow
    async def one() -> None:
        await compensate_with(wire, "x")
        await fail()

    outside.lost.add("+x")
    with pytest.raises(Exception, match="stuck: undo:compensate:wire#1"):
        world.run(one())
    assert outside.attempts["x"] == 1
