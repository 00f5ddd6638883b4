"""Steps in threads that outlast their time in a drain: real threads, real time."""

import asyncio
import time

import pytest

from outlast import Outlast, progress, step, unit, workflow
from support.waiting import wait_until, wait_until_async

STOPS_STEPS_SOON = {"grace": 120, "checkpoint_reserve": 60, "exit_reserve": 59.6}
"""Steps are asked to stop after 0.1 s and have a minute to do so."""


seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/outlast.db"


def drained(address, call):
    """Drain a run on a real clock as soon as a step of it has begun, and return the report, the run and its journal."""

    async def main():
        async with Outlast(address, signals=0, **STOPS_STEPS_SOON) as app:
            layer.drain = app._shutdown
            run = await app.start(call, id="run")
            await wait_until_async(lambda: seen)
            report = await app.drain("test")
            return report, await run.info(), await app.journal("run")

    return asyncio.run(main())


def layer() -> str | None:
    return layer.drain.drain_phase.layer


def until_told_to_stop():
    """Wait, in a thread that does not ask, until steps are asked to stop."""
    wait_until(lambda: layer() == "checkpoint")
    time.sleep(0.05)


@step
def outlasts_its_time() -> int:
    seen.append("thread")
    until_told_to_stop()
    return 1


@step
async def second() -> int:
    seen.append("second")
    return 2


@pytest.mark.parametrize("nested", [False, True])
def test_a_unit_starts_no_step_after_its_time(nested):
    @workflow
    async def flow() -> None:
        async with unit("outer"):
            await outlasts_its_time.aio()
            if not nested:
                await second()
            async with unit("inner"):
                await second()

    report, info, journal = drained("memory:", flow())
    assert seen == ["thread"]
    assert (info.status, report.left) == ("queued", [])
    assert [entry.kind for entry in journal] == ["step", "interruption"]


def test_a_unit_starts_no_attempt_after_its_time():
    @step(retries=5, backoff=0.01)
    def flaky() -> None:
        seen.append("attempt")
        until_told_to_stop()
        raise ValueError("no")

    @step
    def other() -> None:
        until_told_to_stop()
        time.sleep(0.2)

    @workflow
    async def flow() -> None:
        async with unit("u"):
            await asyncio.gather(flaky.aio(), other.aio())

    report, _, _ = drained("memory:", flow())
    assert seen == ["attempt"]
    assert report.left == []


def test_an_inner_step_in_a_thread_is_kept_when_its_outer_step_is_stopped(file):
    @step
    async def outer() -> int:
        return await outlasts_its_time.aio()

    @workflow
    async def flow() -> int:
        return await outer()

    report, _, journal = drained(file, flow())
    assert report.checkpointed == 1
    assert [entry.kind for entry in journal] == ["inner", "interruption"]

    async def again():
        async with Outlast(file, signals=0) as app:
            return await (await app.start(flow(), id="run")).result()

    assert asyncio.run(again()) == 1
    assert seen == ["thread"], "it is not done twice"


def test_the_partial_value_of_a_stopped_sync_step_is_not_recorded():
    @step
    def crawl() -> int:
        got = 0
        with progress(int) as p:
            try:
                while got < 10_000:
                    got += 1
                    p.save(got)
                    seen.append(got)
                    time.sleep(0.02)
            finally:
                return got

    @workflow
    async def flow() -> int:
        return await crawl.aio()

    report, info, journal = drained("memory:", flow())
    assert (info.status, report.completed, report.checkpointed) == ("queued", 0, 1)
    assert [entry.kind for entry in journal] == ["interruption"]
