"""`unit`: what a drain does not cut in two, in a run and outside."""

import asyncio

import pytest

import outlast
from outlast import BadName, Draining, Evicted, NotInRun, OutlastError, sleep, step, workflow
from outlast.api.unit import Unit, unit
from outlast.execution.execution_state import EndReason
from outlast.sync import sleep as sync_sleep
from outlast.testing import App

done: list = []
LONG = 10.0


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def act(label: str) -> str:
    await asyncio.sleep(LONG)
    done.append(label)
    return label


@step
def sync_act(label: str) -> str:
    done.append(label)
    return label


def counts(app):
    units = app._open.services.totals
    return units.committed, units.rolled_back


def test_drain_waits_for_a_unit_outside_any_run():
    async def main(app):
        async with app.unit("order"):
            drain = asyncio.create_task(app.drain("test"))
            await asyncio.sleep(LONG)
            assert not drain.done()
        report = await drain
        return report.left, report.units, counts(app)

    left, units, counted = App().do(main)
    assert (left, counted) == ([], (1, 0))
    assert (units["committed"], units["rolled_back"]) == (1, 0)


def test_unit_that_does_not_end_in_time_is_left():
    async def main(app):
        async with app.unit("order"):
            report = await app.drain("test", grace=5)
            return [(left.what, left.id) for left in report.left]

    assert App().do(main) == [("unit", "order")]


def test_unit_is_also_a_plain_context_manager_and_may_be_nested():
    async def main(app):
        with app.unit("outer"):
            async with app.unit("inner"):
                assert [one.name for one in app._open.active_scopes] == ["outer", "inner"]
        return counts(app), len(app._open.active_scopes)

    assert App().do(main) == ((2, 0), 0)


def test_exception_rolls_it_back_and_is_raised():
    async def main(app):
        with pytest.raises(ValueError):
            async with app.unit("outer"):
                with pytest.raises(LookupError):
                    async with app.unit("inner"):
                        raise LookupError
                raise ValueError
        return counts(app)

    assert App().do(main) == (0, 2)


@pytest.mark.parametrize("error", [Evicted("gone"), GeneratorExit()])
def test_unit_left_by_an_eviction_neither_commits_nor_rolls_back(error):
    async def main(app):
        with pytest.raises(type(error)):
            async with app.unit("order"):
                raise error
        return counts(app)

    assert App().do(main) == (0, 0)


def test_unit_cannot_be_entered_twice():
    async def main(app):
        with app.unit("order") as order, order:
            pass

    with pytest.raises(OutlastError, match="already entered"):
        App().do(main)


def test_its_name_must_be_printable():
    with pytest.raises(BadName):
        Unit("a\nb")


def test_outside_a_run_the_module_level_one_says_so():
    with pytest.raises(NotInRun, match=r"app\.unit"):
        unit("order")


# -- in a workflow


@workflow
async def orders() -> list[str]:
    async with unit("order"):
        first = await act("pay")
        second = await act("ship")
    return [first, second, await act("thank")]


def test_in_a_drain_the_steps_of_a_unit_go_on_to_its_end_and_no_further(world):
    async def main(app):
        await app.start(orders(), id="run")
        await asyncio.sleep(1)
        report = await app.drain("test")
        return report.left, counts(app)

    assert world.do(main) == ([], (1, 0))
    assert (done, world.status()) == (["pay", "ship"], "queued")
    world.restart()

    async def again(app):
        return await (await app.start(orders(), id="run")).result(), counts(app)

    assert world.do(again) == (["pay", "ship", "thank"], (0, 0)), (
        "what is replayed is not counted again"
    )
    assert done == ["pay", "ship", "thank"]


@workflow
async def shipping() -> str:
    return await act("ship")


async def ship(label: str) -> str:
    done.append(label)
    return label


@workflow
async def orders_of_several_runs(how: str) -> None:
    async with unit("order"):
        await act("pay")
        await (shipping() if how == "child" else outlast.map(ship, ["ship"]))


@pytest.mark.parametrize("how", ["child", "map"])
def test_what_has_a_run_of_its_own_begins_in_no_drain_and_the_unit_goes_on_elsewhere(world, how):
    async def main(app):
        await app.start(orders_of_several_runs(how), id="run")
        await asyncio.sleep(1)
        await app.drain("test")
        return counts(app)

    assert world.do(main) == (0, 0)
    assert (done, world.status()) == (["pay"], "queued")
    world.restart()

    async def again(app):
        await (await app.start(orders_of_several_runs(how), id="run")).result()
        return counts(app)

    assert world.do(again) == (1, 0)
    assert done == ["pay", "ship"]


@pytest.mark.parametrize("how", ["each", "map"])
def test_outside_a_run_a_loop_begins_in_no_drain_either_and_says_so(how):
    async def main(app):
        async with app.unit("order"):
            task = asyncio.create_task(app.drain("test"))
            await asyncio.sleep(1)
            with pytest.raises(Draining):
                if how == "map":
                    await app.map(ship, ["ship"], id="job")
                async for label in app.each(["ship"], id="job"):
                    done.append(label)
            done.append("the unit goes on")
        await task

    App().do(main)
    assert done == ["the unit goes on"]


def test_death_in_the_middle_of_it_is_none_of_its_ends(world):
    world.die(orders(), until=lambda: done == ["pay"])

    async def again(app):
        return await (await app.start(orders(), id="run")).result(), counts(app)

    assert world.do(again) == (["pay", "ship", "thank"], (1, 0))


def test_eviction_in_the_middle_of_it_counts_neither(world):
    seen = []

    async def main(app):
        await app.start(orders(), id="run")
        await asyncio.sleep(1)
        engine = app._open
        engine.in_flight.executions["run"].stop(EndReason.released("test"))
        await asyncio.sleep(0.001)
        seen.append((engine.services.totals.committed, engine.services.totals.rolled_back))

    world.do(main)
    assert seen == [(0, 0)]


def test_exception_in_a_workflow_rolls_it_back(world):
    @workflow
    async def flow() -> str:
        try:
            async with unit("order"):
                await act("pay")
                raise ValueError
        except ValueError:
            return await act("apologise")

    async def main(app):
        return await (await app.start(flow(), id="run")).result(), counts(app)

    assert world.do(main) == ("apologise", (0, 1))


def test_unit_that_sleeps_is_waited_for_too(world):
    @workflow
    async def flow() -> None:
        async with unit("order"):
            await sleep(LONG)
            await act("after")

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        return (await app.drain("test")).left

    assert world.do(main) == []
    assert done == ["after"]


def test_task_beside_a_unit_is_not_in_it(world):
    async def beside() -> None:
        await act("a")
        await act("b")

    @workflow
    async def flow() -> None:
        task = asyncio.create_task(beside())
        async with unit("order"):
            await act("pay")
            await act("ship")
        await task

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert sorted(done) == ["a", "pay", "ship"]


def test_app_unit_in_a_workflow_is_the_same(world):
    async def main(app):
        @workflow
        async def flow() -> None:
            async with app.unit("order"):
                await act("pay")
                await act("ship")
            await act("thank")

        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert done == ["pay", "ship"]


def test_in_a_sync_workflow_the_steps_of_a_unit_go_on_too(world):
    @workflow
    def flow() -> None:
        with unit("order"):
            act_sync("pay")
            act_sync("ship")
        act_sync("thank")

    def act_sync(label):
        sync_sleep(LONG)
        return sync_act(label)

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        report = await app.drain("test", grace=100)
        return report.left, counts(app)

    assert world.do(main) == ([], (1, 0))
    assert done == ["pay", "ship"]


# -- in a step


def test_in_a_step_it_is_waited_for_like_the_step(world):
    @step
    async def body() -> str:
        async with unit("order"):
            return await act("inner")

    @workflow
    async def flow() -> str:
        return await body()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        return (await app.drain("test")).left, counts(app)

    assert world.do(main) == ([], (1, 0))
    assert world.status() == "done"


def test_sync_step_has_it_in_its_thread(world):
    @step
    def body() -> str:
        with unit("order"):
            return "done"

    @workflow
    async def flow() -> str:
        return await body.aio()

    async def main(app):
        return await (await app.start(flow(), id="run")).result(), counts(app)

    assert world.do(main) == ("done", (1, 0))
