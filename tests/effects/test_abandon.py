"""A started run that no worker claims within `abandon_after` is undone."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from outside import book, outside, put, work

from outlast import Abandoned, OutlastError, receive, sleep, workflow
from outlast.store.commands import Renew
from outlast.testing import App

LONG_SECONDS = 900.0
LEASE = 30.0
SETTINGS = {
    "worker": True,
    "ramp": 0,
    "new_share": 0,
    "poll": 5.0,
    "heartbeat": 5.0,
    "lease": LEASE,
    "linger": 1.0,
}


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


@workflow(abandon_after=60)
async def trip(seconds: float = 10.0) -> str:
    await book("a")
    await put("b")
    await sleep(seconds)
    await work("late")
    return "arrived"


@workflow(abandon_after=60)
async def asks() -> str:
    await book("a")
    return await receive("answer", str)


@workflow
async def patient(seconds: float = 10.0) -> str:
    await book("a")
    await sleep(seconds)
    return "arrived"


@workflow
async def busy(seconds: float) -> str:
    return await work("busy", seconds)


WORKFLOWS = [trip, asks, patient, busy]


@asynccontextmanager
async def alive(app):
    """Its lease is renewed, as a thread does in real time."""

    async def renew() -> None:
        while True:
            await app._open.writer.execute(Renew(app._open.worker.id, LEASE))
            await asyncio.sleep(LEASE / 6)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()


def alone(main, **settings):
    """With one worker, which is alive all the time."""

    async def lives(app):
        async with alive(app):
            return await main(app)

    return App(**{**SETTINGS, "workflows": WORKFLOWS, "concurrency": 1, **settings}).do(lives)


async def begun(app, call, id: str = "run"):
    """It has done what it does first, waits, and is in nobody's hands."""
    run = await app.submit(call, id=id)
    while (await run.info()).status != "waiting":
        await asyncio.sleep(0.5)
    return run


async def in_the_way(app, seconds: float) -> None:
    """The only slot is taken for so long."""
    await app.submit(busy(seconds), id="busy")
    while "busy" not in outside.log:
        await asyncio.sleep(0.1)


def test_run_that_is_not_claimed_in_time_is_undone_and_fails():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, LONG_SECONDS)
        with pytest.raises(Abandoned) as caught:
            await run.result(timeout=2 * LONG_SECONDS)
        return caught.value, await run.info()

    error, info = alone(main)
    assert outside.log == ["+a", "+b", "busy", "-b", "-a"]
    assert (error.id, info.status) == ("run", "failed")
    assert LONG_SECONDS - 60 < error.seconds < LONG_SECONDS
    assert "outlast retry run" in str(error)


def test_run_that_is_claimed_in_time_continues():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, 60)
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "arrived"
    assert outside.undone == []


def test_waiting_run_is_never_abandoned():
    async def main(app):
        run = await begun(app, asks())
        await asyncio.sleep(LONG_SECONDS)
        await app.send("run", "answer", "yes")
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "yes"


def test_time_to_abandon_starts_when_a_message_arrives():
    async def main(app):
        run = await begun(app, asks())
        await in_the_way(app, LONG_SECONDS)
        await asyncio.sleep(LONG_SECONDS - 30)
        await app.send("run", "answer", "yes")
        first = await run.result(timeout=2 * LONG_SECONDS)
        other = await begun(app, asks(), "other")
        outside.log.clear()
        await app.submit(busy(LONG_SECONDS), id="busy again")
        await asyncio.sleep(10)
        await app.send("other", "answer", "yes")
        with pytest.raises(Abandoned):
            await other.result(timeout=2 * LONG_SECONDS)
        return first

    assert alone(main) == "yes"
    assert outside.log == ["busy", "-a"]


def test_workflow_without_abandon_after_is_never_abandoned():
    async def main(app):
        run = await begun(app, patient(30))
        await in_the_way(app, LONG_SECONDS)
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "arrived"


def test_run_that_has_not_started_is_never_abandoned():
    async def main(app):
        await in_the_way(app, LONG_SECONDS)
        run = await app.submit(trip(), id="run")
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "arrived"


def test_cancelled_run_is_not_abandoned():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, LONG_SECONDS)
        await app.cancel("run", "enough")
        with pytest.raises(OutlastError, match="was cancelled: enough"):
            await run.result(timeout=2 * LONG_SECONDS)

    alone(main)
    assert outside.undone == ["-b", "-a"]


def test_starting_the_run_by_its_id_continues_it():
    """Submit it again: its result is wanted after all."""

    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, LONG_SECONDS)
        await asyncio.sleep(LONG_SECONDS / 2)
        await app.start(trip(30), id="run")
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "arrived"


# -- the fleet


def test_fleet_that_was_down_abandons_nothing(world):
    """Nobody could have taken it: everybody was gone."""

    async def first(app):
        await begun(app, trip(30))

    async def second(app):
        async with alive(app):
            return await app.get(trip, "run").result(timeout=2 * LONG_SECONDS)

    world.restart(**SETTINGS, workflows=WORKFLOWS)
    world.do(first)
    world.restart(after=LONG_SECONDS, **SETTINGS, workflows=WORKFLOWS)
    assert world.do(second) == "arrived"
    assert outside.undone == []


def test_store_that_was_down_abandons_nothing(world):
    """The worker is the same, and was there all the time; but nobody reached the store."""

    async def main(app):
        run = await begun(app, trip(30))
        async with alive(app):
            await in_the_way(app, 60)
        world.clock.advance(LONG_SECONDS)
        async with alive(app):
            return await run.result(timeout=2 * LONG_SECONDS)

    world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    assert world.do(main) == "arrived"


def test_time_to_abandon_restarts_after_an_outage(world):
    async def main(app):
        async with alive(app):
            run = await begun(app, trip(30))
            await in_the_way(app, 50)
        world.clock.advance(LONG_SECONDS)
        async with alive(app):
            await asyncio.sleep(1)
            await app.submit(busy(50), id="again", priority=1)
            return await run.result(timeout=2 * LONG_SECONDS)

    world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    assert world.do(main) == "arrived"


def test_worker_without_the_workflow_does_not_count(file_world):
    async def main(app):
        async with alive(app):
            await begun(app, trip(30))
        await app.drain("test")
        return await asyncio.sleep(0)

    async def stranger(app):
        async with alive(app):
            await app.submit(busy(LONG_SECONDS), id="busy")
            await asyncio.sleep(LONG_SECONDS / 2)
            knows = {**SETTINGS, "workflows": WORKFLOWS}
            async with file_world.another(**knows) as other, alive(other):
                return await other.get(trip, "run").result(timeout=2 * LONG_SECONDS)

    file_world.restart(**SETTINGS, workflows=WORKFLOWS)
    file_world.do(main)
    file_world.restart(**SETTINGS, workflows=[busy])
    assert file_world.do(stranger) == "arrived"


def test_run_of_a_dead_worker_is_abandoned_if_others_stay_busy(file_world):
    async def main(app):
        async with alive(app):
            await app.submit(busy(LONG_SECONDS), id="busy")
            await asyncio.sleep(5)
            leaves = {**SETTINGS, "workflows": WORKFLOWS}
            async with file_world.another(**leaves) as other, alive(other):
                run = await app.submit(trip(LONG_SECONDS / 4), id="run")
                while "+b" not in outside.log:
                    await asyncio.sleep(0.5)
                await asyncio.sleep(1)
            with pytest.raises(Abandoned):
                await run.result(timeout=2 * LONG_SECONDS)

    file_world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    file_world.do(main)
    assert outside.log == ["busy", "+a", "+b", "-b", "-a"]


# -- and then


def test_retry_of_an_abandoned_run_repeats_everything():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, LONG_SECONDS)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * LONG_SECONDS)
        await app.retry("run")
        return await run.result(timeout=2 * LONG_SECONDS)

    assert alone(main) == "arrived"
    assert outside.left == ["a", "b"]
    assert len(set(outside.keys["+a"])) == 2


def test_open_effect_of_an_abandoned_run_is_resolved(file_world):
    """Its worker dies in an act, and nobody has time for it."""

    @workflow(abandon_after=60)
    async def acts() -> str:
        await put("first")
        return await book("x", 5.0)

    file_world.restart(lease=LEASE)
    file_world.die(acts(), until=lambda: outside.attempts["x"] == 1)

    async def main(app):
        async with alive(app):
            await in_the_way(app, 60)
            await asyncio.sleep(1)
            await app.submit(busy(LONG_SECONDS), id="again", priority=1)
            with pytest.raises(Abandoned):
                await app.get(acts, "run").result(timeout=2 * LONG_SECONDS)

    file_world.restart(**SETTINGS, workflows=[acts, busy], concurrency=1)
    file_world.do(main)
    assert outside.log == ["+first", "busy", "busy", "?x", "-first"]


def test_children_of_an_abandoned_run_are_undone():
    @workflow
    async def child() -> str:
        return await book("c")

    @workflow(abandon_after=60)
    async def parent() -> str:
        await child()
        await sleep(30)
        return "arrived"

    async def main(app):
        run = await begun(app, parent())
        await in_the_way(app, LONG_SECONDS)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * LONG_SECONDS)

    alone(main, workflows=[parent, child, busy])
    assert outside.log == ["+c", "busy", "-c"]


def test_run_without_effects_fails_as_abandoned():
    @workflow(abandon_after=60)
    async def plain() -> str:
        await work("x")
        await sleep(30)
        return "arrived"

    async def main(app):
        run = await begun(app, plain())
        await in_the_way(app, LONG_SECONDS)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * LONG_SECONDS)

    alone(main, workflows=[plain, busy])
