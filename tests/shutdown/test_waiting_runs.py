"""Runs, consumers and programs that wait for something when a drain begins."""

import asyncio

import pytest
from drain_tools import WORKFLOWS, act, begun, chain, drained, ended, letter, nap, one, worker

from outlast import Draining, sleep, step, workflow


def test_a_sleeping_run_is_released_at_once_as_waiting(world):
    report, seconds = drained(world, nap(60.0))
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("waiting", None, 0)
    assert (report.waiting, report.released, report.left, seconds) == (
        1,
        0,
        [],
        pytest.approx(0, abs=0.01),
    )
    assert row.due == pytest.approx(world.clock() + 59, abs=1)
    world.restart()
    assert world.run(nap(60.0)) == "woken"


def test_twenty_drains_in_a_row_do_not_dead_letter_a_sleeping_run():
    app = worker(interruptions_max=3)

    async def submit(app):
        await app.submit(nap(1e6), id="run")

    app.do(submit)
    for _ in range(20):

        async def main(app):
            await app.start(nap(1e6), id="run")
            await asyncio.sleep(1)
            assert app.store.run("run").status in ("running", "waiting")
            await app.drain("deploy")

        worker(app.store, clock=app.clock, interruptions_max=3).do(main)
    row = app.store.run("run")
    assert (row.status, row.interruptions, row.deaths) == ("waiting", 0, 0)


def test_a_run_waiting_for_a_message_is_released_as_waiting(world):
    report, _ = drained(world, letter())
    assert (world.status(), report.waiting) == ("waiting", 1)
    world.restart()

    async def main(app):
        run = await app.start(letter(), id="run")
        await app.send("run", "go", "hello")
        return await run.result()

    assert world.do(main) == "hello"


def test_a_message_sent_in_the_drain_makes_its_run_due(world):
    async def main(app):
        await app.start(letter(), id="run")
        await asyncio.sleep(1)
        await app.start(one("keeps the drain going", 20.0), id="slow")
        await asyncio.sleep(0.1)
        drain = asyncio.create_task(app.drain("test"))
        await app.send("run", "go", "hello")
        await drain
        return app.store.run("run")

    row = world.do(main)
    assert row.due <= world.clock()
    assert row.status in ("waiting", "queued", "done")


def test_a_parent_and_its_waiting_child_are_released(world):
    @workflow
    async def parent() -> str:
        return await nap(60.0)

    report, _ = drained(world, parent())
    assert (report.waiting, report.released, report.left) == (2, 0, [])
    assert (world.status(), world.status("run/nap#1")) == ("waiting", "waiting")
    world.restart()
    assert world.run(parent()) == "woken"


def test_a_parent_is_woken_by_a_child_that_ends_in_the_drain(world):
    @workflow
    async def parent() -> str:
        return "child said " + await one("child", 8.0)

    report, _ = drained(world, parent())
    assert (report.waiting, report.completed, report.left) == (1, 1, [])
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("waiting", None, 0)
    assert row.due <= world.clock(), "the child's end has made it due"
    world.restart()
    assert world.run(parent()) == "child said child"
    assert begun == ["child"]


def test_waiting_runs_are_released_first(world):
    async def main(app):
        await app.start(chain(), id="busy")
        await app.start(nap(60.0), id="asleep")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(0.05)
        early = app.store.run("asleep").status, app.store.run("busy").status
        await drain
        return early

    assert world.do(main) == ("waiting", "running")


def test_a_run_that_sleeps_beside_a_step_waits_when_the_step_has_ended(world):
    @workflow
    async def flow() -> list:
        return list(await asyncio.gather(act("a", 5), sleep(60)))

    report, _ = drained(world, flow())
    assert (world.status(), report.waiting, ended) == ("waiting", 1, ["a"])
    world.restart()
    assert world.run(flow()) == ["a", None]


def test_a_sleep_that_ends_in_the_drain_starts_nothing(world):
    @workflow
    async def flow() -> list:
        async def later():
            await sleep(3)
            return await act("late")

        return list(await asyncio.gather(act("a", 6), later()))

    report, _ = drained(world, flow())
    assert begun == ["a"]
    assert (world.status(), report.released) == ("queued", 1)
    world.restart()
    assert world.run(flow()) == ["a", "late"]


def test_a_waiting_claim_raises_draining_at_once(world):
    async def main(app):
        waiting = asyncio.create_task(app.queue("q").claim(wait=1e6))
        await asyncio.sleep(1)
        await app.drain("test")
        began = app.clock()
        with pytest.raises(Draining):
            await waiting
        return app.clock() - began

    assert world.do(main) < 1


def test_an_idle_consumer_returns(world):
    async def main(app):
        consuming = asyncio.create_task(app.queue("q").consume(print))
        await asyncio.sleep(1)
        await app.drain("test")
        return await asyncio.wait_for(consuming, 1)

    assert world.do(main) is None


def test_step_that_waits_for_its_own_drain_fails(world):
    async def main(app):
        @step
        async def suicidal() -> None:
            await app.drain("enough")

        @workflow
        async def flow() -> None:
            await suicidal()

        await app.start(flow(), id="run")
        await app.wait_drain()
        return await app.drain()

    report = world.do(main)
    assert (report.checkpointed, report.left, report.reason) == (1, [], "enough")


@pytest.mark.parametrize("end", ["waiting", "queued"])
def test_the_next_life_of_a_parent_continues_its_child(world, end):
    """Only the parent's next life takes up the child."""

    @workflow
    async def parent() -> str:
        return "child said " + (await nap(50.0) if end == "waiting" else str(await chain()))

    report, _ = drained(world, parent())
    assert report.left == []
    world.restart()

    async def main(app):
        return await asyncio.wait_for((await app.start(parent(), id="run")).result(), 200)

    assert world.do(main).startswith("child said")


def test_a_waiting_result_comes_from_the_next_worker(file_world):
    async def main(app):
        run = await app.start(chain(), id="run")
        waiting = asyncio.create_task(app.result("run"))
        also = asyncio.create_task(run.result())
        await asyncio.sleep(1)
        await app.drain("test")
        await asyncio.sleep(1)
        assert not waiting.done()
        async with file_world.another(worker=True, workflows=WORKFLOWS, ramp=0) as other:
            assert await asyncio.wait_for(other.result("run"), 1000) == ["a", "b", "c"]
            return await asyncio.wait_for(waiting, 100), await asyncio.wait_for(also, 100)

    assert file_world.do(main) == (["a", "b", "c"], ["a", "b", "c"])
    assert begun == ["a", "b", "c"]


def test_a_waiting_result_comes_from_a_run_that_ends_in_the_drain(world):
    async def main(app):
        run = await app.start(one("x"), id="run")
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(1)
        await app.drain("test")
        return await asyncio.wait_for(waiting, 1)

    assert world.do(main) == "x"
