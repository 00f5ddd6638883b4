"""Cancelling a run: queued, running or waiting."""

import asyncio

import pytest

from outlast import RunCancelled, UnknownRun, WrongStatus, receive, sleep, step, workflow
from outlast.engine.request_poller import RequestPoller
from outlast.engine.store_client import StoreClient
from outlast.store.commands import Cancel

broken: set[str] = set()
done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    broken.clear()
    done.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    if label in broken:
        raise ValueError(label)
    return label


def cancelled_after(world, call, seconds, why="enough"):
    async def main(app):
        run = await app.start(call, id="run")
        await asyncio.sleep(seconds)
        status = await app.cancel("run", why)
        with pytest.raises(RunCancelled, match=why):
            await run.result(timeout=1e5)
        return status

    return world.do(main)


def test_a_queued_run_is_cancelled_at_once(world):
    @workflow
    async def one() -> str:
        return await work("x")

    async def main(app):
        await app.submit(one(), id="run")
        assert await app.cancel("run", "not wanted") == "cancelled"
        with pytest.raises(RunCancelled, match="not wanted"):
            await (await app.start(one(), id="run")).result(timeout=100)

    world.do(main)
    assert done == []
    assert world.kinds() == []


def test_a_running_run_is_cancelled_and_its_step_too(world):
    stopped = []

    @step
    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            stopped.append(world.clock.elapsed)
            raise

    @workflow
    async def one() -> None:
        await slow()

    assert cancelled_after(world, one(), 5) == "running"
    assert stopped == [pytest.approx(5, abs=1)]
    assert world.status() == "cancelled"
    assert world.kinds() == ["cancel", "step"]


@pytest.mark.parametrize(
    "wait", [lambda: sleep(1000), lambda: receive("x")], ids=["sleep", "receive"]
)
def test_a_waiting_run_is_cancelled(world, wait):
    @workflow
    async def one() -> None:
        await wait()

    cancelled_after(world, one(), 5)
    assert world.status() == "cancelled"
    assert world.clock.elapsed < 100


def test_cancelled_run_executes_finally_blocks_and_starts_no_step(world):
    seen = []

    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        finally:
            seen.append("finally")
            await work("never")

    cancelled_after(world, one(), 5)
    assert seen == ["finally"]
    assert done == []


def test_workflow_that_swallows_its_cancellation_is_still_cancelled(world):
    seen = []

    @workflow
    async def one() -> str:
        for _ in range(5):
            try:
                await work("again", 100)
            except asyncio.CancelledError as error:
                seen.append(str(error))
        return "I insist"

    cancelled_after(world, one(), 5)
    assert done == ["again"]
    assert len(seen) == 5
    assert world.status() == "cancelled"


def test_cancellation_carries_its_reason(world):
    seen = []

    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        except asyncio.CancelledError as error:
            seen.append(str(error))
            raise

    cancelled_after(world, one(), 5, "the budget is spent")
    assert seen == ["the budget is spent"]


def test_pending_cancellation_stops_the_next_life_before_it_starts_steps(world):
    @workflow
    async def one() -> str:
        return await work("slow", 100)

    world.die(one(), after=10)
    world.do(lambda app: app.cancel("run", "while dead"))
    done.clear()
    with pytest.raises(RunCancelled, match="while dead"):
        world.run(one())
    assert done == []


def test_cancelling_an_unknown_or_ended_run_is_refused(world):
    @workflow
    async def one() -> str:
        return await work("x")

    world.run(one())

    async def main(app):
        with pytest.raises(WrongStatus, match="done"):
            await app.cancel("run")
        with pytest.raises(UnknownRun):
            await app.cancel("nobody")

    world.do(main)


def test_second_cancellation_keeps_the_first_reason(world):
    @workflow
    async def one() -> None:
        try:
            await sleep(1000)
        finally:
            await asyncio.sleep(0)

    async def main(app):
        run = await app.start(one(), id="run")
        await asyncio.sleep(1)
        await asyncio.gather(
            app.cancel("run", "first"), app.cancel("run", "second"), return_exceptions=True
        )
        with pytest.raises(RunCancelled, match="first"):
            await run.result(timeout=100)

    world.do(main)
    assert world.kinds() == ["cancel"]


def test_a_workflow_that_raises_cancelled_error_by_itself_failed_and_was_not_cancelled(world):
    @workflow
    async def one() -> None:
        raise asyncio.CancelledError("of my own")

    with pytest.raises(Exception, match="the run was not cancelled"):
        world.run(one())
    assert world.status() == "failed"


def test_cancellation_during_a_finally_block_reaches_its_step(world):
    stopped = []

    @step
    async def tidy() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            stopped.append(1)
            raise

    @workflow
    async def one() -> None:
        try:
            raise ValueError("a bug")
        finally:
            await tidy()

    cancelled_after(world, one(), 5)
    assert stopped == [1]
    assert world.status() == "cancelled"


def test_crash_after_a_cancellation_does_not_revive_the_run(world):
    @step
    async def slow_to_stop() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(50)

    @workflow
    async def one() -> None:
        await slow_to_stop()

    tasks: list[asyncio.Task] = []

    async def cancel_and_wait() -> None:
        await asyncio.sleep(5)
        await world.app.cancel("run", "enough")
        await asyncio.sleep(10)

    def is_cancelled_and_not_ended() -> bool:
        if not tasks:
            tasks.append(asyncio.create_task(cancel_and_wait()))
        return tasks[0].done()

    world.die(one(), until=is_cancelled_and_not_ended)
    assert world.kinds() == ["cancel"]
    with pytest.raises(RunCancelled, match="enough"):
        world.run(one())
    assert world.executed == {}


def test_cancelling_one_run_leaves_its_neighbours_alone(world):
    @workflow
    async def one(label: str) -> str:
        return await work(label, 50)

    async def main(app) -> list:
        runs = [await app.start(one(str(n)), id=str(n)) for n in range(5)]
        await asyncio.sleep(5)
        await app.cancel("2")
        return await asyncio.gather(
            *[run.result(timeout=1000) for run in runs], return_exceptions=True
        )

    results = world.do(main)
    assert [r if isinstance(r, str) else type(r).__name__ for r in results] == [
        "0",
        "1",
        "RunCancelled",
        "3",
        "4",
    ]


@pytest.mark.parametrize("wanted_again", [False, True])
def test_cancellation_read_before_a_retry_does_not_cancel_the_retried_run(
    world, monkeypatch, wanted_again
):
    """The store may take its time to say what is wanted of the runs here; meanwhile one ends by it, and is retried."""
    requests, reads = RequestPoller._requests, []

    async def read(self, fn, *args):
        found = fn(*args)
        if getattr(fn, "__func__", None) is requests:
            reads.append(found)
            if len(reads) == 1:
                await asyncio.sleep(10)
        return found

    @workflow
    async def one() -> str:
        return await work("x", 100)

    async def main(app) -> str:
        await app.start(one(), id="run")
        await asyncio.sleep(1)
        app.store.commit([Cancel("run", "enough")])
        monkeypatch.setattr(StoreClient, "read", read)
        looking = asyncio.create_task(app._open.runs.requests.poll_requests())
        await asyncio.sleep(1)
        await app._open.runs.requests.poll_requests()
        await asyncio.sleep(1)
        assert app.store.run("run").status == "cancelled"
        await app.retry("run")
        run = await app.start(one(), id="run")
        await asyncio.sleep(1)
        if wanted_again:
            app.store.commit([Cancel("run", "really")])
        await looking
        return await run.result(timeout=1000)

    if wanted_again:
        with pytest.raises(RunCancelled, match="really"):
            world.do(main)
    else:
        assert world.do(main) == "x"
