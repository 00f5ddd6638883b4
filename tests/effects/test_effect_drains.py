"""A drain waits for acts and units, and for nothing that cannot end in its time."""

import asyncio

import pytest
from breaking_step import broken
from outside import outside, put, work

from outlast import (
    effect,
    workflow,
)
from outlast.api.unit import unit
from outlast.execution import recording


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


# -- units


@effect(timeout=60, idempotent=True)
async def shut(what: str) -> str:
    outside.log.append(f"+{what}")
    return what


@shut.compensate
async def slowly_open(it: str | None, what: str) -> None:
    await asyncio.sleep(20)
    outside.log.append(f"-{what}")


@workflow
async def cut_short(steps: int = 0) -> str:
    """Time is up while the unit is being undone."""
    try:
        async with asyncio.timeout(5), unit("u"):
            await shut("gate")
            raise ValueError("no")
    except TimeoutError:
        pass
    for number in range(steps):
        await work(f"step {number}", 1.0)
    return await put("b")


def test_unit_cancelled_during_its_rollback_is_left_afterwards(world):
    assert world.run(cut_short()) == "put b"
    assert outside.log == ["+gate", "-gate", "+b"]
    assert world.replays(cut_short()) == "put b"


def test_cancelled_unit_does_not_delay_a_drain(world):
    async def main(app):
        await app.start(cut_short(1000), id="run")
        await asyncio.sleep(30)
        begun = len(outside.log)
        before = world.clock.elapsed
        await app.drain("test", grace=100)
        return world.clock.elapsed - before, len(outside.log) - begun

    seconds, begun = world.do(main)
    assert seconds < 5
    assert begun <= 1


# -- drains


@pytest.mark.parametrize("grace", [30, 300])
def test_drain_does_not_wait_for_a_run_that_needs_a_decision(world, grace):
    @effect(timeout=1, undo=None)
    async def post() -> str:
        raise ConnectionError("cut")

    async def steps() -> None:
        for number in range(3):
            await work(f"step {number}", 10)

    @workflow
    async def both() -> None:
        await asyncio.gather(post(), steps())

    async def main(app):
        await app.start(both(), id="run")
        await asyncio.sleep(8)  # by then nobody can tell
        before = world.clock.elapsed
        report = await app.drain("test", grace=grace)
        return world.clock.elapsed - before, report.left

    seconds, left = world.do(main)
    assert (seconds < 5, left) == (True, [])
    assert outside.log == ["step 0"], "it went on to its end, and no other was begun"
    assert world.status() == "parked"
    assert "post#1" in world.row().reason


@pytest.mark.parametrize("grace", [30, 300])
def test_drain_does_not_wait_for_an_effect_that_does_not_fit(world, grace):
    @effect(timeout=400, undo=None)
    async def slow() -> None:
        outside.log.append("slow")

    @workflow
    async def one() -> None:
        async with unit("u"):
            await work("first", 10)
            await slow()

    async def main(app):
        await app.start(one(), id="run")
        await asyncio.sleep(5)
        before = world.clock.elapsed
        report = await app.drain("test", grace=grace)
        return world.clock.elapsed - before, report.left

    seconds, left = world.do(main)
    assert (seconds < 10, left) == (True, [])
    assert world.status() == "queued"
    world.restart()
    world.run(one())
    assert outside.log == ["first", "slow"]


def test_effect_does_not_start_if_a_drain_began_during_its_intent(world, monkeypatch):
    """The drain may begin while the intent is written. Cut in its act, only a person could say whether it happened."""
    record = recording.record_and_wait

    async def recorded(execution, kind, key, **fields) -> None:
        await record(execution, kind, key, **fields)
        if not world.app.draining:
            world.app._shutdown.begin("test", grace=20)
            await asyncio.sleep(0.05)

    @effect(timeout=100, undo=None)
    async def slow() -> str:
        outside.log.append("slow")
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        await app.start(one(), id="run")
        await app.wait_drain()
        return (await app.drain()).left

    with monkeypatch.context() as slowly:
        slowly.setattr(recording, "record_and_wait", recorded)
        assert world.do(main) == []
    assert (outside.log, world.status(), world.kinds()) == (
        [],
        "queued",
        ["intent", "attempt", "interruption"],
    )
    world.restart()
    assert world.run(one()) == "slow"
    assert outside.log == ["slow"]


@pytest.mark.parametrize(
    ("comes", "kinds"),
    [("ok", ["intent", "step", "interruption"]), ("lost", ["intent", "attempt", "interruption"])],
)
def test_outcome_after_the_grace_is_recorded_and_the_run_released(world, comes, kinds):
    @effect(timeout=500, idempotent=True, undo=None)
    async def slow() -> str:
        outside.attempts["slow"] += 1
        await asyncio.sleep(100)
        if comes == "lost" and outside.attempts["slow"] == 1:
            raise ConnectionError(comes)
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        await app.start(one(), id="run")
        await asyncio.sleep(5)
        report = await app.drain("test", grace=10)
        assert [left.id for left in report.left] == ["run"]
        assert (await app.get(one, "run").info()).status == "running", "it acts"
        await asyncio.sleep(200)
        return (await app.get(one, "run").info()).status

    assert world.do(main) == "queued"
    assert world.kinds() == kinds
    world.restart()
    assert world.run(one()) == "slow"
    assert outside.attempts["slow"] == (1 if comes == "ok" else 2)
