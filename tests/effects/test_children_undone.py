"""Children are undone with their parent, in order."""

import asyncio

import pytest
from outside import book, fail, outside, put, work

from outlast import RunCancelled, RunParked, sleep, step, workflow
from outlast import sync as s
from outlast.store.commands import Prune

LONG = 1e5
broken: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


@step
async def maybe(label: str) -> None:
    if label in broken:
        raise ValueError(label)


@workflow
async def child(label: str, seconds: float = 0.0) -> str:
    await book(label)
    await put(f"{label}2")
    await sleep(seconds)
    return f"child {label}"


@workflow
async def harmless(label: str) -> str:
    return await work(label)


@workflow
async def middle(label: str) -> str:
    await put(f"{label}-before")
    said = await child(label)
    await put(f"{label}-after")
    return said


@workflow
async def parent() -> str:
    await put("a")
    await harmless("h")
    said = await child("c")
    await put("b")
    await maybe("parent")
    return said


def fails(world, call, match: str | None = None) -> None:
    with pytest.raises(ValueError, match=match):
        world.run(call)


def statuses(world) -> dict[str, str]:
    infos = world.do(lambda app: app.runs())
    return {info.id: info.status for info in infos}


def test_finished_child_is_undone_in_order_when_its_parent_fails(world):
    broken.append("parent")
    fails(world, parent(), "parent")
    assert outside.log == ["+a", "h", "+c", "+c2", "+b", "-b", "-c2", "-c", "-a"]
    assert statuses(world) == {
        "run": "failed",
        "run/child#1": "cancelled",
        "run/harmless#1": "done",
    }
    assert "run is being compensated" in world.row("run/child#1").reason


def test_children_are_undone_though_their_parent_has_no_effects(world):
    @workflow
    async def plain() -> None:
        await child("c")
        await child("d")
        await fail()

    fails(world, plain())
    assert outside.log == ["+c", "+c2", "+d", "+d2", "-d2", "-d", "-c2", "-c"]


def test_parent_of_children_without_effects_settles_directly(world):
    @workflow
    async def plain() -> None:
        await harmless("h")
        await fail()

    fails(world, plain())
    assert world.kinds() == ["child", "step"]


def test_failed_child_is_not_undone_twice(world):
    @workflow
    async def failing() -> None:
        await book("c")
        await fail("child")

    @workflow
    async def plain() -> None:
        await put("a")
        await failing()

    fails(world, plain(), "child")
    assert outside.log == ["+a", "+c", "-c", "-a"]
    assert statuses(world) == {"run": "failed", "run/failing#1": "failed"}


def test_running_child_is_cancelled_and_undone_first(world):
    @workflow
    async def plain() -> None:
        await put("a")
        waiting = asyncio.create_task(child("c", LONG))
        await sleep(30)
        await fail()
        await waiting

    fails(world, plain())
    assert outside.log == ["+a", "+c", "+c2", "-c2", "-c", "-a"]
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}


def test_cancelled_parent_cancels_its_child_and_both_are_undone(world):
    @workflow
    async def plain() -> None:
        await put("a")
        await child("c", LONG)

    async def main(app):
        run = await app.start(plain(), id="run")
        await asyncio.sleep(30)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LONG)

    world.do(main)
    assert outside.log == ["+a", "+c", "+c2", "-c2", "-c", "-a"]
    assert statuses(world) == {"run": "cancelled", "run/child#1": "cancelled"}


def test_parent_does_not_end_before_its_children_are_undone(world):
    """Who waits for the parent may count on it."""
    broken.append("parent")

    async def main(app):
        run = await app.start(parent(), id="run")
        with pytest.raises(ValueError):
            await run.result(timeout=LONG)
        return list(outside.undone), (await app.get(child, "run/child#1").info()).status

    assert world.do(main) == (["-b", "-c2", "-c", "-a"], "cancelled")


def test_grandchildren_are_undone_in_order(world):
    @workflow
    async def plain() -> None:
        await put("a")
        await middle("m")
        await put("b")
        await fail()

    fails(world, plain())
    assert outside.log == [
        "+a", "+m-before", "+m", "+m2", "+m-after", "+b",
        "-b", "-m-after", "-m2", "-m", "-m-before", "-a",
    ]  # fmt: skip
    assert set(statuses(world).values()) == {"failed", "cancelled"}


def test_grandchildren_of_a_child_without_effects_of_its_own_are_undone(world):
    @workflow
    async def through() -> str:
        return await child("c")

    @workflow
    async def plain() -> None:
        await through()
        await fail()

    fails(world, plain())
    assert outside.log == ["+c", "+c2", "-c2", "-c"]


def test_concurrent_children_are_all_undone(world):
    @workflow
    async def plain() -> None:
        await asyncio.gather(child("c"), child("d", 20), put("a"))
        await fail()

    fails(world, plain())
    assert sorted(outside.undone) == ["-a", "-c", "-c2", "-d", "-d2"]
    assert outside.left == []
    assert outside.undone[:2] == ["-d2", "-d"], "it ended last"


def test_child_of_a_cancelled_parked_parent_is_undone(world):
    @workflow
    async def plain() -> None:
        await put("a")
        await child("c")
        await maybe("x")
        await asyncio.Future()  # something that can never come

    with pytest.raises(RunParked):
        world.run(plain())
    assert world.do(lambda app: app.cancel("run", "enough")) == "queued"
    with pytest.raises(RunCancelled):
        world.run(plain())
    assert outside.undone == ["-c2", "-c", "-a"]


def test_parked_child_is_cancelled_and_undone_with_its_parent(world):
    @workflow
    async def hangs() -> None:
        await book("c")
        await asyncio.Future()

    @workflow
    async def plain() -> None:
        await put("a")
        waiting = asyncio.create_task(hangs())
        await sleep(30)
        await fail()
        await waiting

    fails(world, plain())
    assert outside.log == ["+a", "+c", "-c", "-a"]
    assert statuses(world) == {"run": "failed", "run/hangs#1": "cancelled"}


def test_stuck_child_makes_its_parent_stuck(world):
    broken.append("parent")
    outside.broken.add("-c")
    with pytest.raises(RunParked) as caught:
        world.run(parent())
    assert caught.value.reason.startswith("stuck:")
    assert "run/child#1" in caught.value.reason
    assert statuses(world)["run/child#1"] == "parked"
    assert outside.undone == ["-b", "-c2"], "what is older than the child waits for it"
    outside.broken.clear()

    async def again(app):
        await app.retry("run/child#1")
        await app.retry("run")

    world.do(again)
    fails(world, parent(), "parent")
    assert outside.undone == ["-b", "-c2", "-c", "-a"]


def test_missing_child_has_nothing_to_undo(world):
    broken.append("parent")
    outside.broken.add("-b")
    with pytest.raises(RunParked):
        world.run(parent())
    world.store._db.execute("DELETE FROM runs WHERE id = 'run/child#1'")
    outside.broken.clear()
    world.do(lambda app: app.retry("run"))
    fails(world, parent(), "parent")
    assert outside.undone == ["-b", "-a"]


def test_children_are_not_pruned_while_their_parent_may_still_undo_them(world):
    broken.append("parent")
    outside.broken.add("-b")
    with pytest.raises(RunParked):
        world.run(parent())
    world.clock.advance(LONG)
    assert world.store.commit([Prune(world.clock())]) == [0]


@pytest.mark.parametrize("reached", ["+c2", "-b", "-c2", "-c", "-a"])
def test_next_process_undoes_the_remaining_children(world, reached):
    broken.append("parent")
    world.die(parent(), until=lambda: reached in outside.log)
    fails(world, parent(), "parent")
    assert [one for one in outside.log if one[0] != "?"] == [
        "+a",
        "h",
        "+c",
        "+c2",
        "+b",
        "-b",
        "-c2",
        "-c",
        "-a",
    ]


def test_child_that_ended_unnoticed_is_undone(world):
    """The parent dies, is cancelled before it learns of the end, and its code is not asked."""

    @workflow
    async def plain() -> None:
        await put("a")
        await child("c", 10)
        await sleep(LONG)

    world.die(plain(), after=8)  # the child sleeps

    async def finish(app):  # another process executes the child alone
        await (await app.start(child("c", 10), id="run/child#1")).result(timeout=LONG)

    world.do(finish)
    assert statuses(world)["run/child#1"] == "done"

    async def main(app):
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled):
            await (await app.start(plain(), id="run")).result(timeout=LONG)

    world.do(main)
    assert outside.log == ["+a", "+c", "+c2", "-c2", "-c", "-a"]


def test_child_is_undone_without_its_workflow_code(world):
    broken.append("parent")
    world.die(parent(), until=lambda: "-b" in outside.log)

    @workflow(name="parent")
    async def stranger() -> str:
        raise AssertionError

    fails(world, stranger(), "parent")
    assert outside.undone == ["-b", "-c2", "-c", "-a"]


def test_any_worker_of_a_fleet_undoes_children(file_world):
    broken.append("parent")
    known = [parent, child, harmless]

    async def main(app):
        settings = {"worker": True, "workflows": known, "ramp": 0, "poll": 0.5, "concurrency": 1}
        async with file_world.another(**settings), file_world.another(**settings):
            run = await app.submit(parent(), id="run")
            with pytest.raises(ValueError, match="parent"):
                await run.result(timeout=LONG)

    file_world.do(main)
    assert outside.log == ["+a", "h", "+c", "+c2", "+b", "-b", "-c2", "-c", "-a"]


def test_sync_parent_and_child_are_undone(world):
    @s.workflow
    def small() -> str:
        return "x"

    @s.workflow
    def plain() -> None:
        s.run(child("c"))
        s.run(small())
        raise LookupError

    with pytest.raises(LookupError):
        world.run(plain())
    assert outside.log == ["+c", "+c2", "-c2", "-c"]


# -- and retried


def test_retry_repeats_only_the_undone_children(world):
    broken.append("parent")
    fails(world, parent(), "parent")
    broken.clear()
    outside.log.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(parent()) == "child c"
    assert outside.log == ["+a", "+c", "+c2", "+b"]
    assert [len(set(outside.keys[what])) for what in ("+c", "+c2", "+a")] == [2, 2, 2]
    assert statuses(world) == {"run": "done", "run/child#1": "done", "run/harmless#1": "done"}
    assert world.replays(parent()) == "child c"


def test_retry_that_fails_again_undoes_the_children_again(world):
    broken.append("parent")
    fails(world, parent(), "parent")
    outside.log.clear()
    world.do(lambda app: app.retry("run"))
    fails(world, parent(), "parent")
    assert outside.log == ["+a", "+c", "+c2", "+b", "-b", "-c2", "-c", "-a"]
    assert outside.left == []
