"""Steps that ignore their cancellation."""

import asyncio

import pytest
from checkpoint_tools import OVER, drained, lengthy, seen

from outlast import sleep, step, workflow
from outlast.shutdown.report import DrainReport
from outlast.store.commands import Claim, RegisterWorker


def test_a_step_that_swallows_its_cancellation_keeps_its_run_until_it_ends(world):
    @step
    async def stubborn() -> str:
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                seen.append("swallowed")
        return "end"

    @workflow
    async def flow() -> str:
        return await stubborn()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        began = app.clock()
        report = await app.drain("test")
        seconds = app.clock() - began
        left = [(one.what, one.id, one.step.rpartition(".")[2], one.why) for one in report.left]
        not_checkpointed = list(report.not_checkpointed)
        store = app.store
        held = store.run("run")
        store.acquire_liveness("other")
        store.commit([RegisterWorker("other", "host", 1, 1e6)])
        claimed = store.commit([Claim("other", "t", ids=("run",))])[0]
        await asyncio.sleep(200)
        after = store.run("run")
        return seconds, left, not_checkpointed, held, claimed, after

    seconds, left, not_checkpointed, held, claimed, after = world.do(main)
    assert seconds == pytest.approx(OVER, abs=0.2)
    assert left == [("run", "run", "stubborn#1", "it was asked to stop and did not")]
    assert len(not_checkpointed) == 1
    assert (held.status, held.worker is None, claimed) == ("running", False, []), (
        "no other worker may have it"
    )
    assert (after.status, after.worker) == ("queued", None), "once it has ended it is anybody's"
    assert world.kinds() == ["interruption"], "what it returned was cut short"
    assert "swallowed" in seen


def test_a_hung_step_left_behind_at_close_is_in_the_report(world):
    @step
    async def stubborn() -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("swallowed")

    @workflow
    async def flow() -> None:
        await stubborn()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        app._shutdown.begin("test")

    world.do(main)
    (drain,) = world.store.drains(10)
    report = DrainReport.of(drain)
    assert [(one.what, one.id) for one in report.left] == [("run", "run")]
    assert world.status() == "running", "it still executes"


def test_a_hung_run_does_not_hold_up_the_others(world):
    @step
    async def stubborn() -> None:
        for _ in range(30):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                pass

    @workflow
    async def hanging() -> None:
        await stubborn()

    @workflow
    async def nap() -> None:
        await sleep(10_000)

    async def main(app):
        await app.start(hanging(), id="hangs")
        await app.start(nap(), id="sleeps")
        await app.start(lengthy(10.0), id="ends")
        await asyncio.sleep(1)
        report = await app.drain("test")
        return report, {id: app.store.run(id).status for id in ("hangs", "sleeps", "ends")}

    report, statuses = world.do(main)
    assert statuses == {"hangs": "running", "sleeps": "waiting", "ends": "done"}
    assert (report.waiting, report.completed, len(report.left)) == (1, 1, 1)


def test_a_swallowed_cancellation_is_not_repeated(world):
    """It may need an await of its own to clean up."""

    @step
    async def cleans() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
            seen.append("cleaned")

    @workflow
    async def flow() -> None:
        await cleans()

    report, _ = drained(world, flow())
    assert (seen, report.left, report.checkpointed) == (["cleaned"], [], 1)


def test_hurry_leaves_at_once_and_releases_what_it_can(world):
    async def main(app):
        await app.start(lengthy(), id="run")
        await asyncio.sleep(1)
        app._shutdown.begin("test")
        await asyncio.sleep(1)
        app._shutdown._drain_steps.expedite()

    world.do(main)
    assert world.clock() - world.clock.start < 3
    row = world.row()
    assert (row.status, row.worker, row.deaths) == ("queued", None, 0)
