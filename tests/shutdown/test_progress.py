"""Progress: what a step saves of itself, over attempts, lives and deaths."""

import asyncio
import contextvars
import threading

import pytest

from outlast import Evicted, Outlast, current, step, workflow
from outlast.api.context import progress
from outlast.store.address import store_at
from support.waiting import WAIT_SECONDS

seen: list = []


@pytest.fixture(autouse=True)
def _clear():
    seen.clear()


@step
async def tokens(count: int, pause: float = 1.0) -> str:
    async with progress(str) as p:
        text = p.value or ""
        seen.append(text)
        while len(text) < count:
            await asyncio.sleep(pause)
            text += "x"
            p.save(text)
        return text


@workflow
async def write(count: int = 10) -> str:
    return await tokens(count)


def stored(folder) -> int:
    store = store_at(f"sqlite:///{folder / 'outlast.db'}")
    store.open()
    try:
        row = store.run("run")
        return int(next(iter(store.progress(row.pk).values()), 0)) if row else 0
    finally:
        store.close()


def test_a_step_continues_from_its_progress_after_a_death(world):
    world.die(write(), after=5.5)
    assert world.run(write()) == "x" * 10
    assert seen == ["", "xxxxx"]


def test_a_step_continues_after_several_deaths(world):
    for _ in range(4):
        world.die(write(), after=2.5)
    assert world.run(write()) == "x" * 10
    assert [len(text) for text in seen] == [0, 2, 4, 6, 8]


def test_a_step_continues_after_the_program_was_closed(world):
    async def main(app):
        await app.start(write(), id="run")
        await asyncio.sleep(5.5)

    world.do(main)
    world.restart()
    assert world.run(write()) == "x" * 10
    assert seen == ["", "xxxxx"]


def test_an_attempt_continues_where_the_last_one_failed(world):
    @step(retries=3, backoff=0.001)
    async def flaky() -> list[int]:
        async with progress(list[int]) as p:
            done = p.value or []
            seen.append(list(done))
            for number in range(len(done), 4):
                p.save([*range(number + 1)])
                if number == 1 and current().attempt == 1:
                    raise ValueError
            return p.value

    @workflow
    async def flow() -> list[int]:
        return await flaky()

    assert world.run(flow()) == [0, 1, 2, 3]
    assert seen == [[], [0, 1]], "the very last value, though it was not written yet"


def test_an_attempt_in_a_thread_continues_where_the_last_one_failed(world):
    @step(retries=3, backoff=0.001)
    def flaky() -> int:
        with progress(int) as p:
            seen.append(p.value)
            for number in range(5):
                p.save(number)
                if number == 2 and current().attempt == 1:
                    raise ValueError
            return p.value

    @workflow
    async def flow() -> int:
        return await flaky.aio()

    assert world.run(flow()) == 4
    assert seen == [None, 2]


def test_an_attempt_continues_where_the_last_one_timed_out(world):
    @step(retries=1, backoff=0.001, timeout=5)
    async def slow() -> str:
        return await tokens.fn(8)

    @workflow
    async def flow() -> str:
        return await slow()

    assert world.run(flow()) == "x" * 8
    assert [len(text) for text in seen] in ([0, 4], [0, 5])


def test_progress_of_an_ended_run_is_deleted(world):
    world.run(write(3))
    assert world.store.progress(world.row().pk) == {}


def test_a_retried_run_repeats_its_failed_step_without_progress(world):
    """Progress ends with the run: what a step saved before it failed for good may be why it did."""

    @step
    async def fails_once() -> str:
        async with progress(str) as p:
            seen.append(p.value)
            p.save("half")
            if len(seen) == 1:
                raise ValueError
            return "whole"

    @workflow
    async def flow() -> str:
        return await fails_once()

    with pytest.raises(ValueError):
        world.run(flow())

    async def main(app):
        await app.retry("run")
        return await (await app.start(flow(), id="run")).result()

    assert world.do(main) == "whole"
    assert seen == [None, None]


def test_inner_steps_have_progress_of_their_own(world):
    @step
    async def part(name: str) -> str:
        async with progress(str) as p:
            seen.append((name, p.value))
            p.save(f"part {name}")
            await asyncio.sleep(5)
            return name

    @step
    async def whole() -> str:
        async with progress(str) as p:
            seen.append(("whole", p.value))
            p.save("whole")
            await asyncio.sleep(1)
            return await part("a") + await part("b")

    @workflow
    async def flow() -> str:
        return await whole()

    world.die(flow(), after=8)
    assert world.run(flow()) == "ab"
    assert seen == [
        ("whole", None),
        ("a", None),
        ("b", None),
        ("whole", "whole"),
        ("b", "part b"),
    ]


def test_an_inner_step_does_not_end_the_progress_of_its_outer_step(world):
    """A drain has the outer one's last value written, also after an inner one's block was left."""

    @step
    async def part() -> str:
        async with progress(str) as p:
            p.save("part")
            return "part"

    @step
    async def whole() -> str:
        async with progress(str) as p:
            seen.append(p.value)
            p.save("first")
            await part()
            p.save("second")
            p.save("third")
            await asyncio.sleep(1000)
            return "end"

    @workflow
    async def flow() -> str:
        return await whole()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(0.2)
        (body,) = app._open.in_flight.executions["run"].steps.tasks.values()
        assert body.can_save
        await app.drain("test", grace=4)
        return app.store.progress(app.store.run("run").pk)

    world.settings = {"progress_interval": 1e6}
    stored = {
        key.rpartition(".")[2]: value for key, value in world.do(main).items() if "/" not in key
    }
    assert stored == {"whole#1": '"third"'}


def test_progress_of_an_inner_step_is_found_by_the_first_attempt_of_the_next_life(world):
    """Attempts of an inner step are counted from one in every life."""

    @step(retries=5, backoff=0.001)
    async def part() -> str:
        async with progress(int) as p:
            seen.append((current().attempt, p.value))
            if len(seen) < 3:
                raise ValueError
            p.save(len(seen))
            await asyncio.sleep(10)
            return "part"

    @step
    async def whole() -> str:
        return await part()

    @workflow
    async def flow() -> str:
        return await whole()

    world.die(flow(), after=5)
    assert seen == [(1, None), (2, None), (3, None)]
    world.die(flow(), after=5)
    assert world.run(flow()) == "part"
    assert seen[3:] == [(1, 3), (1, 4)]


def test_a_save_of_a_past_attempt_is_refused(world):
    """A thread that the first attempt left behind."""
    errors, go, saved = [], threading.Event(), threading.Event()

    @step(retries=1, backoff=0.001)
    async def leaky() -> str:
        async with progress(str) as p:
            if current().attempt == 1:
                p.save("first")

                def late():
                    go.wait(WAIT_SECONDS)
                    try:
                        p.save("stale")
                    except BaseException as error:
                        errors.append(type(error))
                    saved.set()

                context = contextvars.copy_context()
                threading.Thread(target=context.run, args=(late,)).start()
                raise ValueError
            seen.append(p.value)
            p.save("second")
            go.set()
            saved.wait(WAIT_SECONDS)
            await asyncio.sleep(5)
            return p.value

    @workflow
    async def flow() -> str:
        return await leaky()

    async def main(app):
        run = await app.start(flow(), id="run")
        while not saved.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        return app.store.progress(app.store.run("run").pk), await run.result()

    stored, result = world.do(main)
    assert (errors, seen, result) == ([Evicted], ["first"], "second")
    assert list(stored.values()) == ['"second"']


def test_progress_of_a_failed_attempt_is_kept_after_a_death(world):
    """It failed, waits for its next attempt, and its process dies in the pause."""

    @step(retries=1, backoff=50, backoff_max=50)
    async def flaky() -> str:
        async with progress(str) as p:
            seen.append(p.value)
            for text in ("a", "ab", "abc"):
                p.save(text)
            if current().attempt == 1:
                raise ValueError
            return p.value

    @workflow
    async def flow() -> str:
        return await flaky()

    world.die(flow(), after=5)
    assert world.run(flow()) == "abc"
    assert seen == [None, "abc"]


def test_a_thread_left_behind_by_an_inner_step_saves_nothing():
    """The inner step has a first attempt in each attempt of the outer one: its number alone does not tell them apart."""
    errors, go, over = [], threading.Event(), threading.Event()

    def work() -> str:
        with progress(str) as p:
            seen.append(p.value)
            if len(seen) == 1:
                p.save("first")
                go.wait(WAIT_SECONDS)
                try:
                    p.save("stale")
                except BaseException as error:
                    errors.append(type(error))
                over.set()
            elif len(seen) == 2:
                p.save("second")
                go.set()
                over.wait(WAIT_SECONDS)
                raise ValueError
            return "end"

    @step(name="part", timeout=2)  # it must save something before, on any machine
    def times_out() -> str:
        return work()

    @step(name="part")
    def takes_its_time() -> str:
        return work()

    @step(retries=5, backoff=0.001)
    async def whole() -> str:
        return await (takes_its_time if seen else times_out).aio()

    @workflow
    async def flow() -> str:
        return await whole()

    async def main():
        async with Outlast("memory:", signals=0, progress_interval=0.001) as app:
            return await (await app.start(flow())).result(timeout=WAIT_SECONDS)

    assert asyncio.run(main()) == "end"
    assert errors == [Evicted]
    assert seen == [None, "first", "second"]


@pytest.mark.parametrize("sync", [False, True])
def test_progress_saved_after_the_block_is_there_for_the_next_attempt(world, sync):
    def work():
        with progress(str) as p:
            seen.append(p.value)
            p.save("whole")
        if current().attempt == 1:
            p.save("no good")
            raise ValueError

    @step(retries=1, backoff=0)
    def in_thread() -> None:
        work()

    @step(retries=1, backoff=0)
    async def on_loop() -> None:
        work()

    @workflow
    async def flow() -> None:
        await (in_thread.aio() if sync else on_loop())

    world.settings = {"progress_interval": 1e6}
    world.run(flow())
    assert seen == [None, "no good"]
