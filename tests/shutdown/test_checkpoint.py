"""Layer 3: steps that will not end in time save their progress and are cancelled."""

import asyncio
import random

import pytest
from checkpoint_tools import TOLD, drained, lengthy, long, saver, saving, seen
from kubelet import LONG

from outlast import current, step, workflow
from outlast.api.context import progress
from outlast.store.commands import RecordDurations
from outlast.testing import App


def FLOW(workflow) -> str:
    return workflow.name


def test_a_step_without_progress_runs_until_the_reserve(world):
    report, seconds = drained(world, lengthy(), durations=[("lengthy", "long", [1000.0] * 50)])
    ((_, at, why),) = seen
    assert at == pytest.approx(1 + TOLD, abs=0.2)
    assert why == "drain: test; its time is up"
    assert seconds == pytest.approx(TOLD, abs=0.2), "nothing is left to wait for"
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)
    assert row.interrupted is not None, "ahead of new work"
    assert (report.checkpointed, report.released, report.left) == (1, 0, [])
    assert world.kinds() == ["interruption"]


def test_a_step_with_progress_that_will_not_end_in_time_is_checkpointed_at_once(world):
    report, seconds = drained(
        world, saver(), after=5.5, durations=[("saver", "saving", [1000.0] * 5)]
    )
    assert seconds < 0.2
    assert seen == [("from", None), ("cancelled", "drain: test; it will not end in the time left")]
    assert (report.checkpointed, report.left) == (1, [])
    world.restart()
    assert world.run(saver(20.0), id="other") == "end"
    seen.clear()
    world.die(saver(), after=1.5)
    assert seen == [("from", 5)], "the very last value was saved"


def test_a_step_with_progress_that_will_end_in_time_finishes(world):
    report, seconds = drained(world, saver(15.0), durations=[("saver", "saving", [15.0] * 5)])
    assert seconds == pytest.approx(14, abs=0.2)
    assert (world.status(), report.completed, report.checkpointed) == ("done", 1, 0)


def test_a_step_with_progress_and_unknown_duration_runs_until_the_reserve(world):
    _, seconds = drained(world, saver(), durations=[("saver", "saving", [1000.0] * 4)])
    assert seconds == pytest.approx(TOLD, abs=0.2)


def test_the_forecast_is_updated_as_time_passes(world):
    """Half of them end within the time left; once it has taken longer than those, none does."""
    _, seconds = drained(world, saver(), durations=[("saver", "saving", [10.0] * 4 + [1000.0] * 4)])
    assert seconds == pytest.approx(9, abs=0.2)


def test_durations_measured_by_other_processes_count(world):
    async def main(app):
        app.store.commit([RecordDurations(tuple(("saver", "saving", 1000.0) for _ in range(10)))])
        await app.start(saver(), id="run")
        await asyncio.sleep(5)
        began = app.clock()
        await app.drain("test")
        return app.clock() - began

    assert world.do(main) < 0.3


def test_each_reserve_is_at_most_a_quarter_of_a_short_grace(world):
    _, seconds = drained(world, lengthy(), grace=4)
    assert seconds == pytest.approx(4 - 1 - 1 - 0.3, abs=0.15)


def test_a_step_has_the_reserve_to_clean_up(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2.5)
            seen.append("cleaned")

    @workflow
    async def flow() -> None:
        await careful()

    report, seconds = drained(world, flow())
    assert seen == ["cleaned"]
    assert seconds == pytest.approx(TOLD + 2.5, abs=0.2)
    assert (report.checkpointed, report.left, report.not_checkpointed) == (1, [], [])


def test_progress_saved_while_a_step_cleans_up_is_kept(world):
    @step
    async def careful() -> None:
        async with progress(str) as p:
            seen.append(p.value)
            p.save("before")
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)
                p.save("while cleaning up")

    @workflow
    async def flow() -> None:
        await careful()

    drained(world, flow())
    world.restart()
    world.die(flow(), after=1)
    assert seen == [None, "while cleaning up"]


def test_a_value_returned_after_the_checkpoint_is_not_recorded(world):
    @step
    async def cut() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "half an answer"
        return "an answer"

    @workflow
    async def flow() -> str:
        return await cut()

    report, _ = drained(world, flow())
    assert (world.status(), world.kinds(), report.checkpointed) == ("queued", ["interruption"], 1)


def test_an_error_raised_after_the_checkpoint_is_no_attempt(world):
    @step(retries=1, backoff=0.001)
    async def cut() -> str:
        seen.append(current().attempt)
        try:
            await asyncio.sleep(1000 if len(seen) == 1 else 1)
        except asyncio.CancelledError:
            raise ConnectionError("the server hung up") from None
        return "an answer"

    @workflow
    async def flow() -> str:
        return await cut()

    drained(world, flow())
    assert world.kinds() == ["interruption"]
    world.restart()
    assert world.run(flow()) == "an answer"
    assert seen == [1, 1]


def test_other_steps_of_a_checkpointed_run_go_on(world):
    @workflow
    async def flow() -> list:
        return list(await asyncio.gather(saving(), long(15.0)))

    report, seconds = drained(world, flow(), durations=[(FLOW(flow), "saving", [1000.0] * 9)])
    assert seconds == pytest.approx(14, abs=0.2)
    assert ("cancelled", "drain: test; it will not end in the time left") in seen
    assert world.kinds() == ["step", "interruption"], "the one that could end did"
    assert (report.checkpointed, report.left) == (1, [])


def test_the_workflow_does_not_see_a_checkpoint_as_a_failure(world):
    @workflow
    async def flow() -> str:
        try:
            return await long()
        except Exception as error:
            seen.append(error)
            return "handled"

    drained(world, flow())
    assert [type(one) for one in seen] == [tuple]
    assert world.status() == "queued"


def test_a_workflow_can_cancel_a_step_that_cleans_up(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2.5)

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(1 + TOLD + 1):
                await careful()
        except TimeoutError:
            return "too slow"
        return "end"

    report, _ = drained(world, flow())
    assert report.left == []
    assert world.status() in ("done", "queued")
    world.restart()
    assert world.run(flow()) == "too slow"


def test_progress_is_written_at_once_in_a_checkpoint(world):
    world.settings = {"progress_interval": 1e6}
    drained(world, saver(), after=7.5)
    world.restart()
    world.die(saver(), after=0.5)
    assert seen[0] == ("from", None)
    assert seen[-1] == ("from", int(7.5 + TOLD))


@pytest.mark.parametrize("seed", range(40 if LONG else 6))
def test_progress_only_grows_over_drains(seed):
    """Whatever ends a life, and whenever: the next goes on from a value that was saved, never from an older one than a drain saw."""
    chance = random.Random(seed)

    @step(name="counting")
    async def counting() -> int:
        async with progress(int) as p:
            number = p.value or 0
            seen.append(number)
            while number < 40:
                await asyncio.sleep(chance.uniform(0.01, 0.4))
                number += 1
                p.save(number)
            return number

    @workflow(name="counted")
    async def counted() -> int:
        return await counting()

    app = App(seed=seed, progress_interval=0.3)
    last = 0
    for life in range(200):

        async def main(app):
            run = await app.start(counted(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=chance.uniform(0.0, 2.0))
            if waiting.done():
                return waiting.result()
            report = await app.drain("again", grace=1)
            assert report.left == []
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + life, progress_interval=0.3).do(main)
        if result is not None:
            break
        saved = list(app.store.progress(app.store.run("run").pk).values())
        assert int(saved[0]) >= last if saved else last == 0
        last = int(saved[0]) if saved else 0
    assert result == 40
    assert seen == sorted(seen)
