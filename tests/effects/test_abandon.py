"""`abandon_after`: a run that has begun and that nobody takes up for too long, though somebody could, is not gone on with but undone."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from outside import book, outside, put, work

from outlast import Abandoned, OutlastError, receive, sleep, workflow
from outlast.store.verbs import Renew
from outlast.testing import App

HOUR = 3600.0
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
            await app._open.writer.ask(Renew(app._open.worker.id, LEASE))
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


def test_a_run_that_nobody_takes_up_for_too_long_is_undone_and_fails_as_abandoned():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, HOUR)
        with pytest.raises(Abandoned) as caught:
            await run.result(timeout=2 * HOUR)
        return caught.value, await run.info()

    error, info = alone(main)
    assert outside.log == ["+a", "+b", "busy", "-b", "-a"]
    assert (error.id, info.status) == ("run", "failed")
    assert HOUR - 60 < error.seconds < HOUR
    assert "outlast retry run" in str(error)


def test_a_run_that_is_taken_up_in_time_goes_on():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, 60)
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "arrived"
    assert outside.undone == []


def test_as_long_as_it_waits_it_is_not_abandoned_however_long_that_is():
    async def main(app):
        run = await begun(app, asks())
        await asyncio.sleep(HOUR)
        await app.send("run", "answer", "yes")
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "yes"


def test_a_message_makes_it_claimable_and_from_then_on_it_counts():
    async def main(app):
        run = await begun(app, asks())
        await in_the_way(app, HOUR)
        await asyncio.sleep(HOUR - 30)
        await app.send("run", "answer", "yes")
        first = await run.result(timeout=2 * HOUR)
        other = await begun(app, asks(), "other")
        outside.log.clear()
        await app.submit(busy(HOUR), id="busy again")
        await asyncio.sleep(10)
        await app.send("other", "answer", "yes")
        with pytest.raises(Abandoned):
            await other.result(timeout=2 * HOUR)
        return first

    assert alone(main) == "yes"
    assert outside.log == ["busy", "-a"]


def test_a_workflow_without_it_is_never_abandoned():
    async def main(app):
        run = await begun(app, patient(30))
        await in_the_way(app, HOUR)
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "arrived"


def test_a_run_that_has_not_begun_is_never_abandoned():
    async def main(app):
        await in_the_way(app, HOUR)
        run = await app.submit(trip(), id="run")
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "arrived"


def test_one_that_was_asked_to_end_is_cancelled_not_abandoned():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, HOUR)
        await app.cancel("run", "enough")
        with pytest.raises(OutlastError, match="was cancelled: enough"):
            await run.result(timeout=2 * HOUR)

    alone(main)
    assert outside.undone == ["-b", "-a"]


def test_whoever_starts_it_by_its_id_has_it_gone_on_with():
    """Somebody wants it after all."""

    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, HOUR)
        await asyncio.sleep(HOUR / 2)
        await app.start(trip(30), id="run")
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "arrived"


# -- the fleet


def test_a_fleet_that_was_away_abandons_nothing(world):
    """Nobody could have taken it: everybody was gone."""

    async def first(app):
        await begun(app, trip(30))

    async def second(app):
        async with alive(app):
            return await app.get(trip, "run").result(timeout=2 * HOUR)

    world.restart(**SETTINGS, workflows=WORKFLOWS)
    world.do(first)
    world.restart(after=HOUR, **SETTINGS, workflows=WORKFLOWS)
    assert world.do(second) == "arrived"
    assert outside.undone == []


def test_a_store_that_was_away_abandons_nothing(world):
    """The worker is the same, and was there all the time; but nobody reached the store."""

    async def main(app):
        run = await begun(app, trip(30))
        async with alive(app):
            await in_the_way(app, 60)
        world.clock.advance(HOUR)
        async with alive(app):
            return await run.result(timeout=2 * HOUR)

    world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    assert world.do(main) == "arrived"


def test_after_an_outage_its_time_begins_anew(world):
    async def main(app):
        async with alive(app):
            run = await begun(app, trip(30))
            await in_the_way(app, 50)
        world.clock.advance(HOUR)
        async with alive(app):
            await asyncio.sleep(1)
            await app.submit(busy(50), id="again", priority=1)
            return await run.result(timeout=2 * HOUR)

    world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    assert world.do(main) == "arrived"


def test_a_worker_that_does_not_know_the_workflow_could_not_have_taken_it(file_world):
    async def main(app):
        async with alive(app):
            await begun(app, trip(30))
        await app.drain("test")
        return await asyncio.sleep(0)

    async def stranger(app):
        async with alive(app):
            await app.submit(busy(HOUR), id="busy")
            await asyncio.sleep(HOUR / 2)
            knows = {**SETTINGS, "workflows": WORKFLOWS}
            async with file_world.another(**knows) as other, alive(other):
                return await other.get(trip, "run").result(timeout=2 * HOUR)

    file_world.restart(**SETTINGS, workflows=WORKFLOWS)
    file_world.do(main)
    file_world.restart(**SETTINGS, workflows=[busy])
    assert file_world.do(stranger) == "arrived"


def test_what_a_worker_left_behind_is_abandoned_if_the_others_are_too_busy_for_too_long(file_world):
    async def main(app):
        async with alive(app):
            await app.submit(busy(HOUR), id="busy")
            await asyncio.sleep(5)
            leaves = {**SETTINGS, "workflows": WORKFLOWS}
            async with file_world.another(**leaves) as other, alive(other):
                run = await app.submit(trip(HOUR / 4), id="run")
                while "+b" not in outside.log:
                    await asyncio.sleep(0.5)
                await asyncio.sleep(1)
            with pytest.raises(Abandoned):
                await run.result(timeout=2 * HOUR)

    file_world.restart(**SETTINGS, workflows=WORKFLOWS, concurrency=1)
    file_world.do(main)
    assert outside.log == ["busy", "+a", "+b", "-b", "-a"]


# -- and then


def test_an_abandoned_run_can_be_retried_and_does_everything_anew():
    async def main(app):
        run = await begun(app, trip(30))
        await in_the_way(app, HOUR)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * HOUR)
        await app.retry("run")
        return await run.result(timeout=2 * HOUR)

    assert alone(main) == "arrived"
    assert outside.left == ["a", "b"]
    assert len(set(outside.keys["+a"])) == 2


def test_an_abandoned_run_with_an_open_effect_has_it_resolved(file_world):
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
            await app.submit(busy(HOUR), id="again", priority=1)
            with pytest.raises(Abandoned):
                await app.get(acts, "run").result(timeout=2 * HOUR)

    file_world.restart(**SETTINGS, workflows=[acts, busy], concurrency=1)
    file_world.do(main)
    assert outside.log == ["+first", "busy", "busy", "?x", "-first"]


def test_the_children_of_an_abandoned_run_are_undone_with_it():
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
        await in_the_way(app, HOUR)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * HOUR)

    alone(main, workflows=[parent, child, busy])
    assert outside.log == ["+c", "busy", "-c"]


def test_one_without_effects_fails_as_abandoned_too():
    @workflow(abandon_after=60)
    async def plain() -> str:
        await work("x")
        await sleep(30)
        return "arrived"

    async def main(app):
        run = await begun(app, plain())
        await in_the_way(app, HOUR)
        with pytest.raises(Abandoned):
            await run.result(timeout=2 * HOUR)

    alone(main, workflows=[plain, busy])
