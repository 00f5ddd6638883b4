"""Child runs: awaiting a call inside a run starts a run of its own."""

import asyncio
from dataclasses import dataclass

import pytest

from outlast import LimitExceeded, NotInRun, RunCancelled, RunParked, sleep, step, workflow


@dataclass(frozen=True)
class Part:
    label: str
    sizes: tuple[int, ...] = ()


class Rejected(Exception):
    pass


broken: list[str] = []


@pytest.fixture(autouse=True)
def _whole():
    broken.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    if label in broken:
        raise Rejected(label)
    return label


@workflow
async def child(label: str, seconds: float = 0.0) -> Part:
    return Part(await work(label, seconds), (1, 2))


@workflow
async def sleeper(seconds: float) -> str:
    try:
        await sleep(seconds)
    finally:
        broken.append("sleeper ended")
    return "slept"


def test_child_is_a_run_with_an_id_derived_from_its_position(world):
    @workflow
    async def parent() -> list[Part]:
        return [await child("a"), await child("b")]

    assert world.run(parent()) == [Part("a", (1, 2)), Part("b", (1, 2))]
    assert world.kinds() == ["child", "child"]
    assert [world.row(f"run/child#{n}").parent for n in (1, 2)] == ["run", "run"]
    assert world.replays(parent()) == [Part("a", (1, 2)), Part("b", (1, 2))]


def test_children_side_by_side_in_gather_as_completed_and_a_task_group(world):
    @workflow
    async def parent() -> list[str]:
        parts = await asyncio.gather(child("slow", 3), child("fast", 1))
        order = [
            (await next_one).label
            for next_one in asyncio.as_completed([child("x", 3), child("y", 1)])
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(str(n))) for n in range(2)]
        return [part.label for part in parts] + order + [task.result().label for task in tasks]

    assert world.run(parent()) == ["slow", "fast", "y", "x", "0", "1"]
    assert world.replays(parent()) == ["slow", "fast", "y", "x", "0", "1"]


def test_parent_and_child_both_resume_after_a_crash(world):
    @workflow
    async def parent() -> list[str]:
        first = await work("first", 5)
        part = await child("c", 10)
        return [first, part.label, await work("last", 5)]

    for second in (2, 9, 17):
        id = f"died at {second}"
        world.die(parent(), id=id, after=second)
        assert world.run(parent(), id=id) == ["first", "c", "last"]
        assert [e.kind for e in world.journal(f"{id}/child#1") if e.kind == "step"] == ["step"]


def test_exception_of_a_child_is_raised_in_its_parent(world):
    broken.append("bad")

    @workflow
    async def parent() -> str:
        try:
            await child("bad")
        except Rejected as error:
            return f"caught {error}"
        return "?"

    assert world.run(parent()) == "caught bad"
    assert world.status("run/child#1") == "failed"
    broken.clear()
    assert world.replays(parent()) == "caught bad"


def test_cancelling_the_waiting_task_cancels_the_child(world):
    @workflow
    async def parent() -> str:
        try:
            async with asyncio.timeout(5):
                await sleeper(1000)
        except TimeoutError:
            return "timed out"
        return "?"

    assert world.run(parent()) == "timed out"
    assert world.status("run/sleeper#1") == "cancelled"
    assert broken == ["sleeper ended"]
    assert world.replays(parent()) == "timed out"


def test_cancelling_the_parent_cancels_the_child(world):
    @workflow
    async def parent() -> str:
        return await sleeper(1000)

    async def main(app) -> None:
        run = await app.start(parent(), id="run")
        await asyncio.sleep(5)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=500)

    world.do(main)
    assert world.status() == "cancelled"
    assert world.status("run/sleeper#1") == "cancelled"


def test_a_child_cancelled_from_outside_is_a_run_cancelled_in_its_parent(world):
    @workflow
    async def parent() -> str:
        try:
            return await sleeper(1000)
        except RunCancelled as error:
            return f"{error.id}: {error.reason}"

    async def main(app) -> str:
        run = await app.start(parent(), id="run")
        await asyncio.sleep(5)
        await app.cancel("run/sleeper#1", "by its user")
        return await run.result(timeout=500)

    assert world.do(main) == "run/sleeper#1: by its user"
    assert world.replays(parent()) == "run/sleeper#1: by its user"


def test_unawaited_child_ends_with_its_parent(world):
    @workflow
    async def parent() -> str:
        asyncio.create_task(_wait(sleeper(1000)))
        return await work("done", 1)

    async def _wait(call):
        return await call

    async def main(app) -> str:
        result = await (await app.start(parent(), id="run")).result(timeout=500)
        await asyncio.sleep(10)
        return result

    assert world.do(main) == "done"
    assert world.status("run/sleeper#1") == "cancelled"


def test_retrying_a_parent_retries_the_child_that_failed(world):
    broken.append("bad")

    @workflow
    async def parent() -> list[str]:
        return [await work("first"), (await child("bad")).label]

    with pytest.raises(Rejected):
        world.run(parent())
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(parent()) == ["first", "bad"]
    assert world.kinds("run/child#1") == ["step", "retry", "step"]
    assert world.executed == {"work": 3}, "first once, the child's step twice"


def test_children_of_children_have_ids_within_the_limit(world):
    @workflow
    async def deep(levels: int) -> int:
        return 1 + await deep(levels - 1) if levels else 0

    world.restart(id_length_max=60)
    assert world.run(deep(12)) == 12
    rows = world.do(lambda app: app.runs(limit=100))
    assert len({row.id for row in rows}) == 13
    assert max(len(row.id) for row in rows) <= 60
    assert world.replays(deep(12)) == 12


def test_a_child_with_other_arguments_than_recorded_diverges(world):
    label = ["a"]

    @workflow
    async def parent() -> str:
        part = await child(label[0])
        return part.label + await work("slow", 100)

    world.die(parent(), after=50)
    label[0] = "b"
    with pytest.raises(RunParked, match="child"):
        world.run(parent())


def test_parked_child_parks_no_other_run_and_resumes(world):
    stuck = [True]

    @workflow
    async def odd() -> str:
        if stuck:
            await asyncio.Event().wait()
        return "free"

    @workflow
    async def parent() -> str:
        return await odd()

    async def main(app) -> str:
        run = await app.start(parent(), id="run")
        await asyncio.sleep(5)
        assert (await app.runs(status="parked"))[0].id == "run/odd#1"
        stuck.clear()
        await app.resume("run/odd#1")
        return await run.result(timeout=500)

    assert world.do(main) == "free"


def test_the_arguments_of_a_child_are_bounded_too(world):
    world.restart(value_size_max=1000)

    @workflow
    async def parent() -> str:
        try:
            await child("x" * 2000)
        except LimitExceeded as error:
            return error.limit
        return "?"

    assert world.run(parent()) == "value_size_max"
    assert world.store.run("run/child#1") is None


def test_a_call_made_outside_cannot_be_awaited_inside(world):
    outside = child("a")

    @workflow
    async def parent() -> None:
        await outside

    with pytest.raises(NotInRun):
        world.run(parent())
