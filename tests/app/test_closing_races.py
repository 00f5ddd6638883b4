"""What is under way when the app closes: it ends, and nothing begins for a run that was given back."""

import asyncio
import signal
import sqlite3
import threading
from contextlib import asynccontextmanager, closing, suppress

import pytest

from outlast import Draining, Outlast, StoreUnavailable, step, workflow
from outlast.app.house import House
from outlast.app.items import Consumer
from outlast.define.workflow import Workflow
from outlast.store.verbs import Sweep

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work() -> int:
    done.append("begins")
    await asyncio.sleep(0.05)
    done.append("ends")
    return 1


@workflow
async def one() -> int:
    return await work()


def test_a_run_that_is_being_started_when_the_app_closes_does_not_begin_after_it(tmp_path):
    store = f"sqlite:///{tmp_path}/o.db"

    async def main() -> None:
        async with Outlast(store) as app:
            house = app._open
            starter = asyncio.create_task(app.start(one(), id="run"))
            await asyncio.sleep(0)
        await asyncio.wait([starter], timeout=10)
        assert starter.done()
        assert house.lives == {}
        async with Outlast(store) as app:
            assert await (await app.start(one(), id="run")).result(timeout=20) == 1

    asyncio.run(main())
    assert done == ["begins", "ends"]


def test_who_prunes_when_the_app_closes_is_told(address):
    @workflow
    async def nothing() -> None: ...

    async def main() -> None:
        async with Outlast(address) as app:
            ids = [f"r{n}" for n in range(500)]
            await asyncio.gather(*[app.submit(nothing(), id=id) for id in ids])
            await asyncio.gather(*[app.cancel(id) for id in ids])
            pruning = asyncio.create_task(app.prune(0, batch=1))
            await asyncio.sleep(0)
        await asyncio.wait([pruning], timeout=10)
        assert pruning.done()
        with suppress(StoreUnavailable):
            assert pruning.result() == len(ids)

    asyncio.run(main())


def test_what_is_asked_of_the_store_after_the_close_is_refused(address):
    async def main() -> None:
        async with Outlast(address) as app:
            house = app._open
        with pytest.raises(Draining, match="on its way out"):
            await asyncio.wait_for(house.start(one(), "run"), 10)

    asyncio.run(main())
    assert done == []


async def cancelled(block: asyncio.Task[None]) -> None:
    """As a time-out around the block does, while it is left."""
    block.cancel()
    with pytest.raises(asyncio.CancelledError):
        await block


async def until(true) -> None:
    while not true():
        await asyncio.sleep(0.001)


def give_up(house: House) -> None:
    """What the end of the process does for one that could not be left: its loop has ended before."""
    house.worker._stop()
    house._shut()


def hanging_until(begun: threading.Event, ends: threading.Event) -> Workflow[[], None]:
    @step
    def hangs() -> None:
        begun.set()
        ends.wait(20)

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    return hanging


@pytest.mark.parametrize("drain", [False, True])
def test_a_run_whose_step_executes_is_kept_when_the_block_is_cancelled_while_it_is_left(tmp_path, drain):
    """Given back, it would be executed by another process beside the thread that has not ended."""
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    hanging = hanging_until(begun, ends)

    async def block(app: Outlast) -> None:
        async with app:
            await app.start(hanging(), id="run")
            await until(begun.is_set)
            if drain:
                app._open.drain.begin("now", grace=2.0)

    async def main() -> None:
        app = Outlast(store, close_timeout=0.3)
        leaving = asyncio.create_task(block(app))
        await until(begun.is_set)
        house = app._open
        await until(lambda: house.drain.heard.done() if drain else house.closing)
        await cancelled(leaving)
        async with Outlast(store) as other:
            assert [run.status for run in await other.runs()] == ["running"]
            ends.set()
            await until(lambda: not house.hung)  # then it is given back
            assert await (await other.start(hanging(), id="run")).result(timeout=20) is None

    asyncio.run(main())


def test_signals_and_store_are_given_back_when_the_block_is_cancelled_in_its_last_moment(
    tmp_path, monkeypatch
):
    leave, before, threads = House.leave, signal.getsignal(signal.SIGTERM), set(threading.enumerate())

    async def left(house: House) -> None:
        task.cancel()
        await asyncio.sleep(0)
        await leave(house)

    monkeypatch.setattr(House, "leave", left)

    async def block() -> None:
        async with app:
            assert signal.getsignal(signal.SIGTERM) is not before

    async def main() -> None:
        nonlocal task
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert signal.getsignal(signal.SIGTERM) is before
        monkeypatch.undo()
        async with Outlast(f"sqlite:///{tmp_path}/o.db") as other:
            assert len(await other.workers()) == 1

    app = Outlast(f"sqlite:///{tmp_path}/o.db", signals=1)
    task: asyncio.Task[None]
    asyncio.run(main())
    assert "outlast-writer" not in {thread.name for thread in set(threading.enumerate()) - threads}


def test_a_lifespan_ends_also_when_the_block_is_cancelled_in_a_clean_up_of_its_drain(address):
    async def hangs() -> None:
        task.cancel()
        await asyncio.sleep(20)

    @asynccontextmanager
    async def living(_: Outlast):
        yield
        done.append("lifespan")

    async def block() -> None:
        async with Outlast(address, lifespan=living) as app:
            app.on_cleanup(hangs)
            app._open.drain.begin("now")

    async def main() -> None:
        nonlocal task
        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task

    task: asyncio.Task[None]
    asyncio.run(main())
    assert done == ["lifespan"]


def test_every_hook_is_called_when_the_block_is_cancelled_in_one_of_them_which_is_told(address):
    async def first() -> None:
        done.append("first")

    async def hangs() -> None:
        task.cancel()
        try:
            await asyncio.sleep(20)
        finally:
            done.append("told")

    async def block(drain: bool) -> None:
        async with app:
            app.on_cleanup(first)
            app.on_cleanup(hangs)
            if drain:
                await app.drain("test")

    async def main() -> None:
        nonlocal task
        for drain in (False, True):
            task = asyncio.create_task(block(drain))
            with pytest.raises(asyncio.CancelledError):
                await task
            assert done == ["told", "first"]
            done.clear()

    app = Outlast(address, signals=0)
    task: asyncio.Task[None]
    asyncio.run(main())


@pytest.mark.parametrize("how", ["its main function returns", "a second Ctrl-C ends it"])
def test_a_run_whose_step_executes_is_kept_when_the_loop_ends_while_the_app_is_left(tmp_path, how):
    """The end of a loop cancels every task that it finds."""
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    hanging = hanging_until(begun, ends)

    async def block(app: Outlast) -> None:
        async with app:
            await app.start(hanging(), id="run")
            await until(begun.is_set)

    async def main() -> None:
        app = Outlast(store, close_timeout=0.3, signals=0)
        leaving.append(asyncio.create_task(block(app)))
        await until(begun.is_set)
        house = app._open
        houses.append(house)
        await until(lambda: house.closing)
        if how == "a second Ctrl-C ends it":
            raise KeyboardInterrupt

    async def look() -> list[str]:
        async with Outlast(store) as other:
            return [run.status for run in await other.runs()]

    leaving, houses = list[asyncio.Task[None]](), list[House]()
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(main())
        assert asyncio.run(look()) == ["running"]
    finally:
        ends.set()
        give_up(*houses)


def test_a_block_is_left_when_a_drain_begins_as_its_loop_ends(address):
    async def block() -> None:
        async with app:
            await asyncio.sleep(60)

    async def main() -> None:
        blocks.append(asyncio.create_task(block()))
        await until(lambda: app._house is not None and app._house.working)
        app._open.drain.begin("test")  # it comes to the loop in the round in which this returns

    app, blocks = Outlast(address, signals=0), list[asyncio.Task[None]]()
    asyncio.run(main())
    assert app._house is None


@pytest.mark.parametrize("while_it", ["is closed", "is struck off"])
def test_whoever_leaves_while_the_store_is_away_may_be_cancelled(tmp_path, while_it):
    file, begun, ends = tmp_path / "o.db", threading.Event(), threading.Event()

    def hang(_: object) -> None:
        begun.set()
        ends.wait(20)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(2),
                Outlast(f"sqlite:///{file}", signals=0, store_patience=3600) as app,
            ):
                houses.append(app._open)
                if while_it == "is closed":
                    await app.queue("q").put(1)
                    tasks.append(asyncio.create_task(app.queue("q").consume(hang)))
                    await until(begun.is_set)
                    asyncio.get_running_loop().call_later(3, ends.set)
                other.execute("BEGIN IMMEDIATE")

    tasks, houses = list[asyncio.Task[None]](), list[House]()
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        asyncio.run(main())
    give_up(*houses)


@pytest.mark.parametrize("drain", [False, True])
def test_what_comes_after_a_hook_that_ends_the_program_is_done_all_the_same(address, drain):
    async def first() -> None:
        done.append("first")

    async def ends_it() -> None:
        raise SystemExit(4)

    @asynccontextmanager
    async def living(_: Outlast):
        yield
        done.append("lifespan")

    async def main() -> None:
        async with Outlast(address, signals=0, lifespan=living) as app:
            houses.append(app._open)
            app.on_cleanup(first)
            app.on_cleanup(ends_it)
            if drain:
                await app.drain("test")

    houses: list[House] = []
    with pytest.raises(SystemExit) as left:
        asyncio.run(main())
    assert left.value.code == 4
    assert done == ["first", "lifespan"]
    assert houses[0].worker._left


def test_an_each_that_ends_while_the_app_is_left_holds_up_nothing(tmp_path):
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        ends.wait(20)

    async def loop(app: Outlast) -> None:
        async for _ in app.each(["a"], id="each"):
            await asyncio.to_thread(hang)

    async def main() -> None:
        async def end() -> None:
            assert house.hung == {"each"}
            ends.set()
            await asyncio.wait([task])

        async with Outlast(store, close_timeout=0.5, signals=0) as app:
            house, task = app._open, asyncio.create_task(loop(app))
            app.on_cleanup(end)
            await until(begun.is_set)
        assert (house.hung, house.stays) == (set(), False)
        async with Outlast(store, signals=0) as other:
            assert len(await other.workers()) == 1

    asyncio.run(main())


def test_an_item_that_was_lost_and_claimed_anew_keeps_its_worker_until_both_handlers_have_ended(tmp_path):
    store, ends = f"sqlite:///{tmp_path}/o.db", [threading.Event(), threading.Event()]
    begun: list[int] = []

    def hang(_: object) -> None:
        begun.append(1)
        ends[len(begun) - 1].wait(20)

    async def main() -> None:
        async with Outlast(store, close_timeout=0.2, signals=0) as app:
            house, queue = app._open, app.queue("q")
            await queue.put(1, id="item")
            consuming = asyncio.create_task(queue.consume(hang))
            await until(lambda: len(begun) == 1)
            lost = house.worker.id
            with closing(sqlite3.connect(f"{tmp_path}/o.db", isolation_level=None)) as other:
                other.execute("DELETE FROM workers WHERE id = ?", (lost,))
            await house.writer.ask(Sweep())
            await house.worker.enlist(instead_of=lost)
            await until(lambda: len(begun) == 2)
        ends[0].set()
        await until(lambda: len([one for one in house.consumers for _ in one.under_way]) == 1)
        async with Outlast(store, signals=0) as other:
            assert [run.status for run in await other.runs(items=None)] == ["running"]
        ends[1].set()
        await asyncio.wait([consuming])
        async with asyncio.timeout(20):
            await until(lambda: not house.hung)

    try:
        asyncio.run(main())
    finally:
        for end in ends:
            end.set()


@pytest.mark.parametrize("kind", ["run", "item", "map", "each"])
def test_a_worker_that_stayed_is_struck_off_when_nothing_of_it_hangs_any_more(tmp_path, kind):
    store, begun, ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        ends.wait(20)

    @step
    def hangs() -> None:
        hang()

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    async def execute(app: Outlast) -> None:
        if kind == "run":
            await (await app.start(hanging(), id="run")).result()
        elif kind == "item":
            await app.queue("q").put(1)
            await app.queue("q").consume(hang)
        elif kind == "map":
            await app.map(hang, ["a"], id="map")
        else:
            async for _ in app.each(["a"], id="each"):
                await asyncio.to_thread(hang)

    async def workers() -> int:
        async with Outlast(store, signals=0) as other:
            return len(await other.workers()) - 1

    async def main() -> None:
        async with Outlast(store, close_timeout=0.2, signals=0) as app:
            task = asyncio.create_task(execute(app))
            await until(begun.is_set)
        assert await workers() == 1
        ends.set()
        await asyncio.wait([task])
        async with asyncio.timeout(20):
            while await workers():
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_consumers_that_wait_for_the_store_are_left_in_the_time_of_one(monkeypatch, address):
    close, times, tasks = Consumer.close, [], []

    async def closed(consumer: Consumer, timeout: float) -> set[str]:
        if asyncio.current_task() not in tasks:  # `consume` ends by itself, too
            times.append(timeout)
            await asyncio.sleep(0.02)
        return await close(consumer, timeout)

    async def main() -> None:
        async with Outlast(address, signals=0) as app:
            house = app._open
            tasks.extend(asyncio.create_task(app.queue(name).consume(print)) for name in "abc")
            await until(lambda: len(house.consumers) == 3)
            monkeypatch.setattr(Consumer, "close", closed)
            await house._close_consumers()
            monkeypatch.undo()
        await asyncio.wait(tasks)

    asyncio.run(main())
    assert len(times) == 3
    assert times == sorted(times, reverse=True)
    assert times[0] - times[2] > 0.03  # each has what those before it have left


def test_an_app_is_not_left_when_what_hung_ends_while_it_still_waits_for_an_item(tmp_path):
    """Struck off, its worker would have the item given to another beside the handler that has not ended."""
    store, ends, item_ends = f"sqlite:///{tmp_path}/o.db", threading.Event(), threading.Event()
    begun: set[str] = set()

    @step
    def hangs() -> None:
        begun.add("step")
        ends.wait(20)

    @workflow
    async def hanging() -> None:
        await hangs.aio()

    def handle(_: object) -> None:
        begun.add("item")
        item_ends.wait(20)

    async def main() -> None:
        async with Outlast(store, close_timeout=0.3) as app:
            house, queue = app._open, app.queue("q")
            await queue.put(1, id="item")
            consumer = asyncio.create_task(queue.consume(handle))
            await app.start(hanging(), id="run")
            await until(lambda: len(begun) == 2)

            async def end_what_hung() -> None:
                await until(lambda: house.hung == {"run"})  # from here on it waits for the item
                ends.set()

            ending = asyncio.create_task(end_what_hung())
        await ending
        async with Outlast(store) as other:
            found = {run.id: run.status for run in await other.runs(items=None)}
        assert found == {"run": "queued", "q/item": "running"}
        item_ends.set()
        await asyncio.wait([consumer])

    asyncio.run(main())
