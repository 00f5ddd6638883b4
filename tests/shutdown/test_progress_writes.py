"""When progress is written, and what it costs."""

import asyncio
import time
from itertools import pairwise

import pytest

from outlast import Outlast, current, step, workflow
from outlast.api.context import progress
from outlast.store.address import store_at
from outlast.store.commands import SaveProgress
from outlast.testing import App
from support.processes import Program
from support.waiting import WAIT_SECONDS

seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


def saves(app) -> list:
    """Every Save that is written from now on."""
    written, put = [], app._open.services.store.enqueue
    clock = getattr(app, "clock", time.monotonic)

    def watched(command, done, **fields):
        if isinstance(command, SaveProgress):
            written.append((command, clock()))
        put(command, done, **fields)

    app._open.services.store.enqueue = watched
    return written


def stored(folder) -> int:
    store = store_at(f"sqlite:///{folder / 'outlast.db'}")
    store.open()
    try:
        row = store.run("run")
        return int(next(iter(store.progress(row.pk).values()), 0)) if row else 0
    finally:
        store.close()


def test_writes_are_throttled(world):
    @step
    async def chatty() -> int:
        async with progress(int) as p:
            for number in range(1000):
                p.save(number)
                await asyncio.sleep(0.01)
            return 1

    @workflow
    async def flow() -> int:
        return await chatty()

    async def main(app):
        written = saves(app)
        await (await app.start(flow(), id="run")).result()
        return written

    world.settings = {"progress_interval": 1.0}
    written = world.do(main)
    assert 10 <= len(written) <= 13, "ten seconds, one a second, and the last"
    times = [at for _, at in written]
    assert all(later - earlier > 0.99 for earlier, later in pairwise(times[:-1]))
    assert written[-1][0].value == "999"


def test_no_second_write_starts_before_the_first_is_durable():
    @step
    async def chatty() -> int:
        async with progress(int) as p:
            for number in range(300):
                p.save(number)
                await asyncio.sleep(0.01)
            return 1

    @workflow
    async def flow() -> int:
        return await chatty()

    async def main(app):
        under_way, most, count, put = 0, 0, 0, app._open.services.store.enqueue

        def slow(command, done, **fields):
            nonlocal under_way, most, count
            if not isinstance(command, SaveProgress):
                return put(command, done, **fields)
            under_way, count = under_way + 1, count + 1
            most = max(most, under_way)

            def later(command, outcome):
                nonlocal under_way
                under_way -= 1
                done(command, outcome)

            app._open.loop.call_later(1.0, put, command, later)

        app._open.services.store.enqueue = slow
        await (await app.start(flow(), id="run")).result()
        return most, count

    most, count = App(progress_interval=0.001).do(main)
    assert most == 1
    assert 3 <= count <= 5


def test_a_thread_can_save_often(address):
    @step
    def busy() -> int:
        with progress(int) as p:
            for number in range(5000):
                p.save(number)
            return p.value

    @workflow
    async def flow() -> int:
        return await busy.aio()

    async def main():
        async with Outlast(address, signals=0, progress_interval=0.01) as app:
            return await (await app.start(flow())).result(timeout=WAIT_SECONDS)

    assert asyncio.run(main()) == 4999


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_save_costs_microseconds_of_cpu_time_for_a_text_of_any_size(size):
    @step
    async def chatty() -> float:
        text, count = "x" * size, 20_000
        async with progress(str) as p:
            began = time.thread_time()
            for _ in range(count):
                p.save(text)
            return (time.thread_time() - began) / count

    @workflow
    async def flow() -> float:
        return await chatty()

    assert App().run(flow()) < 100e-6, "of CPU time; it takes a third of a microsecond"


def test_saves_of_many_steps_are_committed_together(tmp_path):
    written: list = []

    @step
    async def one(number: int) -> None:
        key, value = current().step, 0
        async with progress(int) as p:
            while sum(command.key == key for command, _ in written) < 5:
                value += 1
                p.save(value)
                await asyncio.sleep(0.05)

    @workflow
    async def flow() -> None:
        await asyncio.gather(*[one(number) for number in range(200)])

    async def main():
        async with Outlast(
            f"sqlite:///{tmp_path}/outlast.db", signals=0, progress_interval=0.02
        ) as app:
            nonlocal written
            written = saves(app)
            run = await app.start(flow())
            batches = app._open.writer.batches
            await run.result(timeout=WAIT_SECONDS)
            return len(written), app._open.writer.batches - batches

    count, batches = asyncio.run(main())
    assert count >= 1000
    assert batches < count / 4


def test_progress_is_kept_after_sigkill(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """if True:
        import asyncio
        from outlast import progress, run, step, workflow

        @step
        async def count() -> int:
            async with progress(int) as p:
                print("from", p.value, flush=True)
                while True:
                    p.save((p.value or 0) + 1)
                    await asyncio.sleep(0.001)

        @workflow
        async def flow() -> int:
            return await count()

        run(flow(), id="run", progress_interval=0.02)
        """
    )
    first = []
    for _ in range(2):
        with Program.python(program, folder=tmp_path) as process:
            first.append(process.wait_for_line("from ").split()[-1])
            before = stored(tmp_path)
            process.wait_until(lambda before=before: stored(tmp_path) >= before + 20)
        first.append(stored(tmp_path))
    assert first[0] == "None"
    assert [int(one) for one in first[2::2]] == first[1:-1:2], (
        "each life begins with what was written last"
    )
