"""`compensate_with` registers a compensation for anything a run did."""

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


def test_registered_compensation_runs_in_undo_order(world):
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.log == ["+a", "+b", "-l2", "-b", "-l1", "-a"]
    assert world.status() == "failed"


def test_finished_run_does_not_execute_it(world):
    assert world.run(locked("return")) == "return"
    assert outside.log == ["+a", "+b"]


def test_registration_alone_makes_a_failed_run_undo(world):
    @workflow
    async def only() -> None:
        await compensate_with(release, "l")
        raise LookupError

    with pytest.raises(LookupError):
        world.run(only())
    assert outside.log == ["-l"]


def test_registration_is_durable_when_it_returns(world):
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


def test_each_registration_runs_once_under_its_own_key(world):
    @workflow
    async def twice() -> None:
        await compensate_with(release, "l")
        await compensate_with(release, "l")
        await fail()

    with pytest.raises(ValueError):
        world.run(twice())
    assert outside.log == ["-l", "-l"]
    assert len(set(outside.keys["-l"])) == 2


def test_registered_compensation_is_repeated_under_its_key_after_death(world):
    world.die(locked(), until=lambda: outside.attempts["-l1"] == 1)
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.log == ["+a", "+b", "-l2", "-b", "-l1", "-a"]
    assert outside.attempts["-l1"] == 2


def test_compensation_can_be_registered_during_cancellation(world):
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


def test_registration_in_a_finally_is_repeated_after_death(world):
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


def test_compensation_of_a_registered_effect_is_not_executed(world):
    """It is called to undo something: nobody undoes that."""

    @workflow
    async def one() -> None:
        await compensate_with(put, "x")
        await fail()

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.log == ["+x"]


def test_sync_workflow_registers_a_sync_effect(world):
    @s.workflow
    def plain() -> None:
        sput("a")
        s.compensate_with(sput, "b")
        sput("c")
        raise LookupError

    with pytest.raises(LookupError):
        world.run(plain())
    assert outside.log == ["+a", "+c", "-c", "+b", "-a"]


def test_failed_registered_compensation_continues_after_a_retry(world):
    outside.broken.add("-l1")
    with pytest.raises(Exception, match=r"stuck: undo:compensate:release#1") as caught:
        world.run(locked())
    assert type(caught.value).__name__ == "RunParked"
    outside.broken.clear()
    world.do(lambda app: app.retry("run"))
    with pytest.raises(ValueError):
        world.run(locked())
    assert outside.undone == ["-l2", "-b", "-l1", "-a"]


def test_registration_replays_and_a_changed_one_diverges(world):
    world.die(locked("wait"), after=30)
    world.restart()

    @workflow(name="locked")
    async def other(then: str = "fail") -> str:
        await book("a")
        await compensate_with(release, "another")
        return ""

    with pytest.raises(Exception, match="journal recorded compensation compensate:release#1"):
        world.run(other("wait"))


def test_compensate_with_takes_an_effect_in_workflow_code(world):
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


def test_registration_copies_its_arguments(world):
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


def test_undone_registration_is_repeated_by_a_retry(world):
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
    assert outside.undone == ["-l", "-l"], "what was registered again is done again"
    assert len(set(outside.keys["-l"])) == 2
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == "ok"
    assert outside.undone == ["-l", "-l"]
    assert world.replays(one()) == "ok"


def test_unverifiable_registered_compensation_parks_the_run(world):
    @workflow
    async def one() -> None:
        await compensate_with(wire, "x")
        await fail()

    outside.lost.add("+x")
    with pytest.raises(Exception, match="stuck: undo:compensate:wire#1"):
        world.run(one())
    assert outside.attempts["x"] == 1
