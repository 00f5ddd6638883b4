"""What a step leaves behind, and what fails, cannot change what viewers were shown."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from publish_tools import published, text_of

import outlast.sync
from outlast import Evicted, Outlast, publish, sleep, step, workflow
from outlast.store.commands import Release
from outlast.store.rows import RunQuery

log: list = []


@pytest.fixture(autouse=True)
def empty():
    log.clear()


@pytest.mark.parametrize("publishes", [False, True])
def test_task_that_a_step_left_behind_publishes_nothing(world, publishes):
    @step
    async def leaves() -> str:
        async def later() -> None:
            await asyncio.sleep(5)
            try:
                await publish("answer", "stale")
            except Evicted as error:
                log.append(error)

        log.append(asyncio.create_task(later()))
        if publishes:
            await publish("answer", "good")
        return "good"

    @workflow
    async def flow() -> str:
        text = await leaves()
        await sleep(20)
        return text

    assert world.run(flow()) == "good"
    assert published(world) == (["good"] if publishes else None)
    assert isinstance(log[1], Evicted)


def test_task_of_a_failed_attempt_cannot_replace_what_the_next_one_publishes(world):
    @step(retries=1, backoff=3)
    async def leaves() -> str:
        log.append(1)
        if len(log) == 1:

            async def later() -> None:
                await asyncio.sleep(1)
                try:
                    await publish("answer", "stale")
                except Evicted:
                    log.append("refused")

            log[0] = asyncio.create_task(later())
            await publish("answer", "first")
            raise ValueError("again")
        await publish("answer", "good")
        return "good"

    @workflow
    async def flow() -> str:
        return await leaves()

    assert world.run(flow()) == text_of(world) == "good"
    assert log[1] == "refused"


def test_many_threads_of_a_step_publish(address):
    """Each value arrives once, and the values of each thread are in order."""

    @step
    def many() -> int:
        barrier = threading.Barrier(8)

        def write(thread: int) -> None:
            barrier.wait(30)
            for number in range(200):
                outlast.sync.publish("answer", [thread, number])

        with ThreadPoolExecutor(8) as pool:
            for thread in [pool.submit(copy_context().run, write, n) for n in range(8)]:
                thread.result()
        return 1600

    @workflow
    async def flow() -> int:
        return await many.aio()

    async def main():
        async with Outlast(address, signals=0, publish_interval=0.001) as app:
            await app.start(flow(), id="r")
            values = [
                event.value async for event in app.watch("r", "answer") if event.kind == "data"
            ]
            assert sorted(values) == [[thread, n] for thread in range(8) for n in range(200)]
            for thread in range(8):
                assert [n for by, n in values if by == thread] == list(range(200))

    asyncio.run(main())


def test_write_that_the_store_refuses_ends_the_execution_and_not_the_run(world):
    @step
    async def speaks() -> str:
        log.append(1)
        async with publish("answer") as out:
            for word in ("a", "b", "c"):
                await out.write(f"{len(log)}{word}")
                await asyncio.sleep(1)
                if len(log) == 1 and word == "a":
                    # As if another process had considered this one dead.
                    row = world.row()
                    release = Release(row.pk, row.fence, "taken", interrupted=True, failed=False)
                    world.store.commit([release])
        return "".join(f"{len(log)}{word}" for word in "abc")

    @workflow
    async def flow() -> str:
        return await speaks()

    assert world.run(flow()) == text_of(world) == "2a2b2c"


def test_child_publishes_to_its_own_run(world):
    @step
    async def says(word: str) -> str:
        await publish("answer", word)
        return word

    @workflow
    async def child() -> str:
        return await says("child")

    @workflow
    async def parent() -> str:
        await says("parent")
        return await child()

    assert world.run(parent()) == "child"
    assert published(world) == ["parent"]
    (below,) = world.store.runs(RunQuery(parent="run"))
    assert published(world, id=below.id) == ["child"]


def test_drain_in_the_middle_of_a_step_keeps_what_it_published(world):
    @step
    async def speaks() -> str:
        log.append(1)
        async with publish("answer") as out:
            await out.write("first ")
            if len(log) == 1:
                await asyncio.sleep(1e6)
            await out.write("second")
        return "first second"

    @workflow
    async def flow() -> str:
        return await speaks()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(5)
        await app.drain("a deploy")

    world.do(main)
    assert published(world) == ["first "]
    world.restart()
    assert world.run(flow()) == text_of(world) == "first second"
