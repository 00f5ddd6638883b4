"""Layer 2: steps under way end, no other step starts, and each run is released at its next boundary."""

import asyncio
import threading

import pytest
from drain_tools import act, begun, chain, drained, ended, last, one, sync_act

from outlast import Evicted, step, workflow
from outlast.store.commands import Claim, RegisterWorker
from support.waiting import WAIT_SECONDS


def test_a_step_under_way_is_recorded_and_no_other_starts(world):
    report, seconds = drained(world, chain())
    assert (begun, ended) == (["a"], ["a"])
    assert seconds == pytest.approx(4, abs=0.01), "no longer than the step"
    assert [entry.kind for entry in world.journal()] == ["step", "interruption"]
    assert (report.released, report.completed, report.left) == (1, 0, [])
    assert last(world).value is None or "drain: test" in str(last(world))
    world.restart()
    assert world.run(chain()) == ["a", "b", "c"]
    assert begun == ["a", "b", "c"], "nothing is done twice"


def test_a_grace_of_two_seconds_is_enough_for_short_steps(world):
    report, seconds = drained(world, chain(0.2), after=0.1, grace=2)
    assert (begun, ended, report.released, report.left) == (["a"], ["a"], 1, [])
    assert seconds == pytest.approx(0.1, abs=0.01)


def test_a_run_whose_workflow_ends_in_the_drain_is_done(world):
    report, _ = drained(world, one("x"))
    assert (world.status(), report.completed, report.released) == ("done", 1, 0)


def test_a_run_whose_workflow_fails_in_the_drain_has_failed(world):
    @workflow
    async def failing() -> None:
        await act("a", 5)
        raise ValueError("no")

    report, _ = drained(world, failing())
    assert (world.status(), report.completed) == ("failed", 1)


def test_a_released_run_is_claimed_before_new_work(world):
    drained(world, chain())
    world.restart()
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)
    assert row.interrupted is not None

    async def main(app):
        for number in range(3):
            await app.submit(one(f"new {number}"), id=f"new-{number}")
        store = app.store
        store.acquire_liveness("next")
        store.commit([RegisterWorker("next", "host", 1, 1e6)])
        return [row.id for row in store.commit([Claim("next", "t", workflows=("chain", "one"))])[0]]

    assert world.do(main) == ["run"]


def test_workflow_code_after_a_step_executes_before_the_release(world):
    """The workflow's own code between two steps executes before it goes."""
    seen = []

    @workflow
    async def flow() -> None:
        seen.append(await act("a", 5))
        await act("b")

    drained(world, flow())
    assert seen == ["a"]


def test_gathered_steps_under_way_end_and_no_other_starts(world):
    @workflow
    async def flow() -> list[str]:
        limit = asyncio.Semaphore(3)

        async def limited(number):
            async with limit:
                return await act(str(number), 5 + number)

        return list(await asyncio.gather(*[limited(number) for number in range(8)]))

    report, _ = drained(world, flow())
    assert (begun, ended) == (["0", "1", "2"], ["0", "1", "2"])
    assert (report.released, report.left) == (1, [])
    assert world.kinds() == ["step"] * 3 + ["interruption"]
    world.restart()
    assert world.run(flow()) == [str(number) for number in range(8)]
    assert len(begun) == 8


def test_a_task_group_starts_no_other_step(world):
    @workflow
    async def flow() -> list[str]:
        results = []

        async def two(label, seconds):
            results.append(await act(label, seconds))
            results.append(await act(label * 2, seconds))

        async with asyncio.TaskGroup() as group:
            group.create_task(two("x", 3))
            group.create_task(two("y", 6))
        return results

    _report, seconds = drained(world, flow())
    assert begun == ["x", "y"]
    assert seconds == pytest.approx(5, abs=0.01)
    world.restart()
    assert sorted(world.run(flow())) == ["x", "xx", "y", "yy"]
    assert len(begun) == 4


def test_a_loop_starts_no_other_step(world):
    @workflow
    async def flow() -> int:
        count = 0
        while count < 10:
            await act(str(count), 3)
            count += 1
        return count

    drained(world, flow())
    assert begun == ["0"]


def test_a_workflow_that_catches_everything_starts_no_other_step(world):
    @workflow
    async def flow() -> str:
        for number in range(10):
            try:
                await act(str(number), 3)
            except BaseException:
                pass
        return "end"

    drained(world, flow())
    assert begun == ["0"]
    assert world.status() == "queued"


def test_a_sync_workflow_starts_no_other_step(world):
    gate = threading.Event()

    @step
    def slow(label: str) -> str:
        begun.append(label)
        gate.wait(WAIT_SECONDS)
        ended.append(label)
        return label

    @workflow
    def flow() -> list[str]:
        return [slow("a"), slow("b")]

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        drain = asyncio.create_task(app.drain("test", grace=1e6))
        await asyncio.sleep(0)
        gate.set()
        return await drain

    report = world.do(main)
    assert (begun, ended) == (["a"], ["a"])
    assert (world.kinds(), report.released, report.left) == (["step", "interruption"], 1, [])
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_a_sync_workflow_that_ends_with_its_step_is_done(world):
    @workflow
    def flow() -> str:
        return sync_act("a")

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        return await app.drain("test", grace=1e6)

    report = world.do(main)
    assert (world.status(), report.completed) == ("done", 1)


def test_a_step_stops_at_its_next_inner_step(world):
    @step
    async def outer() -> list[str]:
        return [await act("a", 5), await act("b", 5)]

    @workflow
    async def flow() -> list[str]:
        return await outer()

    report, _ = drained(world, flow())
    assert (begun, report.released, report.left) == (["a"], 1, [])
    assert world.kinds() == ["inner", "interruption"]
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_a_sync_step_stops_at_its_next_inner_step(world):
    gate = threading.Event()

    @step
    def inner(label: str) -> str:
        begun.append(label)
        gate.wait(WAIT_SECONDS)
        return label

    @step
    def outer() -> list[str]:
        return [inner("a"), inner("b")]

    @workflow
    async def flow() -> list[str]:
        return await outer.aio()

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        drain = asyncio.create_task(app.drain("test", grace=1e6))
        await asyncio.sleep(0)
        gate.set()
        return await drain

    report = world.do(main)
    assert (begun, report.released, report.left) == (["a"], 1, [])
    assert world.kinds() == ["inner", "interruption"]
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_the_workflow_of_a_released_run_gets_evicted(world):
    seen = []

    @workflow
    async def flow() -> None:
        try:
            await act("a", 5)
            await act("b")
        except BaseException as error:
            seen.append((type(error), str(error)))
            raise

    drained(world, flow())
    assert seen == [(Evicted, "drain: test")]
