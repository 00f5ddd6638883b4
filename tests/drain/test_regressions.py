"""What a review and a trial of the drain found broken once, in one process. Each is a promise that stays kept."""

import asyncio
import gc
import logging
import signal
import sqlite3
import sys
import threading
import time
from contextlib import closing, suppress

import pytest

from outlast import Draining, Outlast, StoreUnavailable, progress, step, unit, workflow
from outlast import sync as blocking
from outlast.app.room import Room
from outlast.replay.bodies import Body
from outlast.store.address import store_at
from outlast.store.verbs import Ack, Record
from outlast.testing import App

GRACE = 1.6
"""Where threads need real time: steps are told to stop after 0.5 s, and must have after 0.9 s."""
seen: list = []


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path}/outlast.db"


def until(true, seconds=20.0):
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def drained(address, call, *, grace=GRACE):
    """A run on a real clock, drained as soon as a step of it says that it has begun: the report, the run's row and journal."""

    async def main():
        async with Outlast(address, signals=0, grace=grace) as app:
            layer.drain = app._open.drain
            run = await app.start(call, id="run")
            while not seen:
                await asyncio.sleep(0.005)
            report = await app.drain("test")
            return report, await run.info(), await app.journal("run")

    return asyncio.run(main())


def layer() -> str | None:
    return layer.drain.layer


def until_told_to_stop():
    """In a thread: until steps are told to stop, of which it knows nothing."""
    until(lambda: layer() == "checkpoint")
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


# -- charged, started or done again


def test_a_handler_that_lets_draining_out_uses_up_no_attempt():
    app = App(max_attempts=1)

    async def main(app):
        async def handle(_):
            await app.wait_drain()
            await app.queue("next").put({"x": 1})

        await app.queue("q").put({"n": 1}, id="one")
        consuming = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        report = await app.drain("test")
        consuming.cancel()
        return report

    report = app.do(main)
    row = app.store.run("q/one")
    assert (row.status, row.failures, row.worker) == ("queued", 0, None)
    assert (report.completed, report.checkpointed, report.left) == (0, 1, [])


def test_an_item_that_was_handled_is_acked_when_its_worker_drains_and_not_only_with_the_next_claim(
    monkeypatch,
):
    """What is acked is committed with the next claim. A drain that begins while the claimer looks leaves no such claim."""
    looking, may_go_on = threading.Event(), threading.Event()

    async def main():
        async with Outlast("memory:", signals=0, grace=20) as app:
            queue, store = app.queue("q"), app._open.store
            both, handled, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
            look = store.look

            def look_slowly(*asked):
                if both.is_set():
                    looking.set()
                    may_go_on.wait(20)
                return look(*asked)

            async def handle(item):
                seen.append(item.payload)
                if len(seen) == 2:
                    both.set()
                await (handled if item.payload == "quick" else end).wait()

            monkeypatch.setattr(store, "look", look_slowly)
            await queue.put_many(["quick", "slow"], ids=["quick", "slow"])
            consuming = asyncio.create_task(queue.consume(handle))
            await asyncio.to_thread(looking.wait, 20)
            handled.set()
            await asyncio.sleep(0.01)
            draining = asyncio.create_task(app.drain("test"))
            await app.wait_drain()
            async with asyncio.timeout(10):
                while store.run("q/quick").status != "done":
                    await asyncio.sleep(0.005)
            assert store.run("q/slow").status == "running"
            end.set()
            may_go_on.set()
            await draining
            await consuming

    try:
        asyncio.run(main())
    finally:
        may_go_on.set()


def test_a_hook_is_called_to_its_end_for_an_item_that_fails_in_the_drain_however_long_its_commit_takes(file):
    """Its consumer may be a task that nobody awaits."""

    async def on_dead(info):
        await asyncio.sleep(0.1)
        seen.append(info.id)

    async def main():
        async with Outlast(file, signals=0, grace=20, max_attempts=1, on_dead=on_dead) as app:
            begun, fail = asyncio.Event(), asyncio.Event()

            async def handle(_):
                begun.set()
                await fail.wait()
                raise ValueError("cut")

            await app.queue("q").put("work", id="one")
            consuming = asyncio.create_task(app.queue("q").consume(handle))
            await begun.wait()
            app._open.drain.begin("test")
            await app.wait_drain()
            await app._open.drain._coordinated.wait()
            other = sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            fail.set()
            async with asyncio.timeout(10):
                await asyncio.shield(app._open.drain.over)
            asyncio.get_running_loop().call_later(0.3, other.close)
            return consuming

    asyncio.run(main())
    assert seen == ["q/one"]


async def comes(true):
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


async def held_up(app, file):
    """Its writer waits with a batch until the connection is closed; the task that it was given by."""
    other = sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    written = app._open.writer.verbs
    busy = asyncio.create_task(app.queue("another").put("keeps the writer busy"))
    await comes(lambda: app._open.writer.verbs > written)
    return other, busy


@pytest.mark.parametrize(
    "acked_by", ["its consumer", "its handler, which gives up waiting", "a task of its handler"]
)
def test_an_item_whose_ack_waits_for_the_writer_is_not_given_back_by_a_drain_that_overtakes_it(
    file, acked_by
):
    """It was handled: whoever got it next would do it again."""

    async def main():
        async with Outlast(file, signals=0, grace=20) as app:
            house, begun, end, acks = app._open, asyncio.Event(), asyncio.Event(), []

            async def handle(item):
                seen.append(item.payload)
                begun.set()
                await end.wait()
                if acked_by != "its consumer":
                    acks.append(asyncio.create_task(item.ack()))
                    await asyncio.sleep(0)
                if acked_by == "its handler, which gives up waiting":
                    acks[0].cancel()

            await app.queue("q").put("work", id="one")
            consuming = asyncio.create_task(app.queue("q").consume(handle))
            await begun.wait()
            other, busy = await held_up(app, file)
            end.set()
            await comes(lambda: any(isinstance(verb, Ack) for verb, _ in list(house.writer._queue)))
            await comes(lambda: not house.drain.view())  # the handler has ended
            house.drain.begin("test")
            await comes(lambda: house.writer._urgent)
            other.close()
            await busy
            await asyncio.shield(house.drain.over)
            await consuming
            await comes(lambda: house.store.run("q/one").status == "done")
            await comes(lambda: not house.room.begun)

    asyncio.run(main())


def test_an_item_whose_handler_did_not_wait_for_its_ack_is_dropped_when_the_store_did_not_take_it():
    """Else a drain would count it as one that has begun, for ever."""

    async def main(app):
        async def handle(item):
            acks.append(asyncio.create_task(item.ack()))
            await asyncio.sleep(0)

        def refuse(verb, heard):
            if isinstance(verb, Ack):
                loop.call_later(1.0, heard, verb, StoreUnavailable("it is away"))
            else:
                put(verb, heard)

        house, acks, loop = app._open, [], asyncio.get_running_loop()
        put, house.writer.put = house.writer.put, refuse
        await app.queue("q").put("work", id="one")
        consuming = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(0.5)
        assert (len(house.room.begun), house.room.hands) == (1, {})
        await asyncio.sleep(0.6)
        assert house.room.begun == set()
        assert [str(ack.exception()) for ack in acks] == ["it is away"]
        house.writer.put = put
        consuming.cancel()
        await asyncio.wait([consuming])

    App().do(main)


def test_an_item_of_map_that_is_done_is_not_called_again_when_the_map_is_cancelled_and_a_drain_overtakes_that(
    file,
):
    async def main():
        async with Outlast(file, signals=0, grace=20) as app:
            house, begun, end = app._open, asyncio.Event(), asyncio.Event()

            async def work(item):
                seen.append(item)
                begun.set()
                await end.wait()

            mapping = asyncio.create_task(app.map(work, ["a"], id="m"))
            await begun.wait()
            other, busy = await held_up(app, file)
            end.set()
            await comes(lambda: any(isinstance(verb, Record) for verb, _ in list(house.writer._queue)))
            mapping.cancel()
            await asyncio.wait([mapping])
            house.drain.begin("test")
            await comes(lambda: house.writer._urgent)
            other.close()
            await busy
            await asyncio.shield(house.drain.over)
        async with Outlast(file, signals=0) as app:
            await app.map(work, ["a"], id="m")

    asyncio.run(main())
    assert seen == ["a"]


def test_a_consumer_ends_with_a_drain_that_another_thread_began_as_its_last_handler_ended():
    """Between the beginning and the loop's hearing of it: nothing of it was under way then, and it was forgotten before it was told to claim nothing more."""

    async def main():
        async with Outlast("memory:", signals=0, grace=20) as app:

            async def handle(item):
                await item.ack()
                beginning = threading.Thread(target=app._open.drain.begin, args=("test",))
                beginning.start()
                beginning.join()
                seen.append(item.payload)

            await app.queue("q").put("work")
            async with asyncio.timeout(10):
                await app.queue("q").consume(handle)

    asyncio.run(main())
    assert seen == ["work"]


def test_who_waits_for_a_run_of_another_process_hears_of_a_signal_that_comes_after_the_drain():
    """As after a preStop command. It would look again at the next poll, which may be longer than the pod has."""

    @workflow
    async def elsewhere() -> None:
        return

    async def main():
        async with Outlast("memory:", poll=60) as app:
            run = await app.submit(elsewhere(), queue="elsewhere")
            waiting = asyncio.create_task(run.result())
            await app.drain("a preStop command", grace=0.1)
            await asyncio.sleep(0.1)  # its grace is over
            assert not waiting.done()
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Draining, match="another's"):
                await asyncio.wait_for(waiting, 10)

    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("the program's own handler"))
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["the program's own handler"]


@pytest.mark.parametrize("nested", [False, True])
def test_no_step_of_a_unit_starts_after_its_time(nested):
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


def test_no_attempt_of_a_unit_begins_after_its_time():
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


def test_an_inner_step_in_a_thread_that_ends_whole_is_kept_although_the_outer_one_was_told_to_stop(file):
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


def test_the_cut_answer_of_a_sync_step_that_swallows_its_end_is_no_result():
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


# -- what is nobody's run


def test_an_item_of_each_that_a_drain_cuts_is_left_and_one_that_ends_in_it_is_completed():
    async def main(app):
        async def loop(id, seconds):
            async for _ in app.each(["one", "two"], id=id):
                await asyncio.sleep(seconds)

        loops = [asyncio.create_task(loop("cut", 1000)), asyncio.create_task(loop("ends", 5))]
        await asyncio.sleep(1)
        report = await app.drain("test", grace=30)
        for task in loops:
            task.cancel()
        return report, await asyncio.gather(*loops, return_exceptions=True)

    report, (_, ended) = App().do(main)
    assert [(one.what, one.id) for one in report.left] == [("each", "cut")]
    assert report.completed == 1
    assert isinstance(ended, Draining)


def test_what_a_thread_still_executes_of_each_and_map_is_given_to_nobody_when_the_block_is_left(file):
    gate = threading.Event()

    def slow(item):
        seen.append(item)
        gate.wait(20)

    def go_through(app):
        with suppress(Exception):  # nobody is there any more when it ends
            for item in app.each(["one"], id="each"):
                slow(item)

    def map_all(app):
        with suppress(Exception):
            app.map(slow, ["two"], id="map")

    with blocking.Outlast(file, signals=0, grace=1.0) as app:
        threads = [threading.Thread(target=one, args=(app,), daemon=True) for one in (go_through, map_all)]
        for thread in threads:
            thread.start()
        until(lambda: len(seen) == 2)
        app.drain("test")
    try:
        with blocking.Outlast(file, signals=0) as app:
            assert None not in {run.worker for run in app.runs()}
    finally:
        gate.set()
        for thread in threads:
            thread.join(20)


def test_what_still_executes_of_each_when_the_block_is_left_is_in_the_report_once(file):
    async def main():
        end = asyncio.Event()

        async def loop(app):
            async for _ in app.each(["one"], id="loop"):
                while not end.is_set():
                    with suppress(asyncio.CancelledError):
                        await end.wait()

        async with Outlast(file, signals=0, grace=1.0) as app:
            going = asyncio.create_task(loop(app))
            await asyncio.sleep(0.1)
            await app.drain("test")
        async with Outlast(file, signals=0) as app:
            (report,) = await app.drains()
        end.set()
        await asyncio.gather(going, return_exceptions=True)
        return report

    assert [(one.what, one.id) for one in asyncio.run(main()).left] == [("each", "loop")]


@pytest.mark.parametrize("kind", ["each", "map"])
def test_a_batch_that_a_drain_refuses_at_its_very_beginning_is_given_back(monkeypatch, kind):
    """The drain looks at what has begun just before it is refused, and keeps it."""

    def begin(self, fence):
        self.begun.add(fence)
        app._open.drain.begin("test")
        self.begun.discard(fence)
        return False

    async def main(app):
        monkeypatch.setattr(Room, "begin", begin)

        async def loop():
            if kind == "map":
                await app.map(second, ["a"], id="batch")
            async for _ in app.each(["a"], id="batch"):
                seen.append("item")

        with pytest.raises(Draining):
            await loop()
        await app.drain()
        await asyncio.sleep(0.3)
        return app.store.run("batch"), dict(app._open.room.hands)

    app = App()
    row, hands = app.do(main)
    assert (row.status, row.worker, hands, seen) == ("queued", None, {}, [])


# -- what a drain leaves behind


def test_drains_side_by_side_leave_the_switch_interval_as_it_was():
    before = sys.getswitchinterval()

    async def main():
        for _ in range(15):
            async with (
                Outlast("memory:", signals=0) as a,
                Outlast("memory:", signals=0) as b,
                Outlast("memory:", signals=0) as c,
            ):
                await asyncio.gather(a.drain(), b.drain(), c.drain())
            assert sys.getswitchinterval() == pytest.approx(before)

    try:
        asyncio.run(main())
    finally:
        sys.setswitchinterval(before)


def test_a_step_that_has_ended_leaves_nothing_for_the_collector():
    @workflow
    async def flow() -> None:
        for _ in range(50):
            await second()

    async def main(app):
        await (await app.start(flow(), id="run")).result()
        return bodies()

    def bodies() -> int:
        return sum(isinstance(one, Body) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = bodies()  # other tests may have left some that hang
        assert App().do(main) - before < 25, "of 50"
    finally:
        gc.enable()


def test_a_block_with_an_http_server_is_left_in_time_although_the_default_executor_is_full():
    gate = threading.Event()

    late = threading.Timer(6, gate.set)
    late.start()

    async def main():
        async with Outlast("memory:", http="127.0.0.1:0", grace=GRACE) as app:
            loop = asyncio.get_running_loop()
            waiting = [loop.run_in_executor(None, gate.wait, 20) for _ in range(40)]
            began = time.monotonic()
            await app.drain("test")
        seconds = time.monotonic() - began
        late.cancel()
        gate.set()
        await asyncio.gather(*waiting)
        return seconds

    assert asyncio.run(main()) < 5


@pytest.mark.parametrize(("turns", "late"), [(0, 0.0), (1, 0.0), (0, 0.1)])
def test_a_drain_that_begins_while_the_block_is_left_comes_to_its_end(file, turns, late):
    async def main():
        app = Outlast(file, signals=0, grace=GRACE)
        await app.__aenter__()
        house, close = app._open, app._open.close
        start = house.drain._start
        house.drain._start = lambda: asyncio.get_running_loop().call_later(late, start)  # a loop that is busy

        async def drain_and_close(why):
            house.drain.begin("SIGTERM, say")
            for _ in range(turns):
                await asyncio.sleep(0)
            await close(why)

        house.close = drain_and_close
        await app.__aexit__()
        return house.worker.id, house.drain

    worker, drain = asyncio.run(main())
    assert (drain.over.done(), drain.report.worker) == (True, worker)
    with closing(store_at(file)) as store:
        store.open()
        assert [(row.worker, row.ended is not None) for row in store.drains()] == [(worker, True)]
        assert store.workers() == []


def test_a_block_that_is_left_long_after_its_drain_strikes_its_worker_off(world, caplog):
    @workflow
    async def flow() -> int:
        return await second()

    async def main(app):
        await (await app.start(flow(), id="run")).result()
        await app.drain("test", grace=30)
        await asyncio.sleep(1000)
        assert len(app.store.workers()) == 1

    with caplog.at_level(logging.WARNING, "outlast"):
        world.do(main)
    assert [record.getMessage() for record in caplog.records] == []
    assert world.store.workers() == []
