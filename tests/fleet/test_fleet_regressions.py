"""What a review of the fleet broke once: each test is one way in which it did.

One process. On the virtual clock where order is what matters, in real time where threads are.
"""

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex

import pytest

from outlast import Draining, LeaseLost, Outlast, StoreUnavailable, receive, sleep, step, workflow
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import ITEM, Claim, Enlist, Leave, Release, Sweep, Wait
from outlast.testing import App
from outlast.values import plain

FAST = {"ramp": 0, "poll": 0.2, "heartbeat": 0.05, "close_timeout": 0.2, "lease": 30.0}
RARELY = {**FAST, "poll": 60.0}
"""Who is not woken comes far too late."""
SOON = 15.0
"""Real seconds for what must come about at once, however noisy the machine."""

begun: list = []
under_way: Counter = Counter()
most: Counter = Counter()
gates: dict = {}


@pytest.fixture(autouse=True)
def _fresh():
    for kept in (begun, under_way, most, gates):
        kept.clear()
    yield
    for gate in gates.values():  # no thread may outlive a test that failed
        gate.set()


# -- work


@step
async def note(label: str, seconds: float = 0.0) -> str:
    begun.append(label)
    under_way[label] += 1
    most[label] = max(most[label], under_way[label])
    try:
        await asyncio.sleep(seconds)
    finally:
        under_way[label] -= 1
    return label


@workflow
async def job(label: str, seconds: float = 0.0) -> str:
    return await note(label, seconds)


@step
async def pass_gate(label: str) -> str:
    begun.append(label)
    await gates[label].wait()
    return label


@workflow
async def gated(label: str) -> str:
    return await pass_gate(label)


@step
def block(label: str) -> str:
    """In a thread, which nothing can stop."""
    begun.append(label)
    under_way[label] += 1
    most[label] = max(most[label], under_way[label])
    most["runs"] = max(most["runs"], sum(1 for count in under_way.values() if count))
    gates[label].wait(60)
    under_way[label] -= 1
    return label


@workflow
async def blocked(label: str) -> str:
    return await block.aio(label)


@workflow
async def agent() -> None:
    """Always under way: it never leaves the hands of its worker."""
    number = 0
    while True:
        await note(f"turn {number}")
        number += 1
        await asyncio.sleep(0.02)


@workflow
async def nap(seconds: float) -> str:
    await sleep(seconds)
    return "slept"


async def _mind(call) -> str:
    return await call


@workflow
async def watcher(seconds: float) -> str:
    child = asyncio.create_task(_mind(nap(seconds)))
    while not child.done():
        await asyncio.sleep(0.5)
    return child.result()


@workflow
async def family() -> str:
    """Looks after its child itself, so that it is never released."""
    await pass_gate("family")
    child = asyncio.create_task(_mind(job("child")))
    while not child.done():
        await asyncio.sleep(0.05)
    return child.result()


@workflow
async def letter(label: str) -> str:
    await note(label)
    return await receive("go", str)


WORKFLOWS = [job, gated, blocked, agent, nap, watcher, family, letter]


def worker(store="memory:", **settings) -> Outlast:
    return Outlast(store, worker=True, workflows=WORKFLOWS, **{**FAST, **settings})


def virtual(**settings) -> App:
    return App(worker=True, workflows=WORKFLOWS, **{"ramp": 0, "new_share": 0, **settings})


async def until(condition, seconds: float = SOON) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about in {seconds} s"
        await asyncio.sleep(0.005)


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def die_elsewhere(app, *submissions) -> None:
    """Other workers had these in hand, and died with nothing recorded: they are suspects."""
    house, first, second = app._open, token_hex(4), token_hex(4)
    for other in (first, second):
        house.store.hold(other)
        await house.writer.ask(Enlist(other, "host", 1, 1e6))
    ids = tuple(submission.id for submission in submissions)
    for submission in submissions:
        await house.writer.ask(submission._replace(worker=first))
    house.store.let_go(first)
    # One behind the other, or this worker would take them.
    both = (Sweep(), Claim(second, token_hex(4), ids=ids))
    _, rows = await asyncio.gather(*map(house.writer.ask, both))
    assert len(rows) == len(ids)
    house.store.let_go(second)
    await house.writer.ask(Sweep(backoff=0.0))
    for id in ids:
        assert (await house.read(house.store.run, id)).is_suspect


async def until_idle(app, claimer) -> None:
    """It has seen all there is by now, and sleeps."""
    changes, ended, round = app._open.changes, [], claimer._round

    async def counted():
        pause = await round()
        ended.append(pause)
        return pause

    await until(lambda: not changes._coming)
    claimer._round = counted
    claimer.wake()
    await until(lambda: ended and not claimer._wake.is_set())


async def lose_the_worker(app) -> None:
    """It is struck off as if it were dead, and learns of it."""
    house = app._open
    old = house.worker.id
    await house.writer.ask(Leave(old))
    await house.worker.enlist(instead_of=old)
    assert house.worker.id != old


async def statuses(app, **query) -> dict[str, str]:
    return {info.id: info.status for info in await app.runs(**query)}


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("outlast")}


# -- one run, one life


def test_a_run_that_is_submitted_and_started_at_once_is_executed_once():
    async def main():
        async with worker(**RARELY) as app:
            house, loop, looked = app._open, asyncio.get_running_loop(), threading.Event()
            run, held, deliver = house.store.run, house.store.held, house.writer._deliver

            def claim_now():
                house.room.yielding.clear()
                house.claimer.wake()

            def run_once_claimed(id):
                """Who takes the run over looks when the claimer has it and does not know yet."""
                loop.call_soon_threadsafe(claim_now)
                deadline = time.monotonic() + SOON
                while (row := run(id)).worker is None and time.monotonic() < deadline:
                    time.sleep(0.001)
                house.store.run = run
                return row

            def held_looked_at(worker):
                found = held(worker)
                looked.set()
                return found

            def deliver_late(batch, outcomes):
                if any(isinstance(verb, Claim) and rows for (verb, _), rows in zip(batch, outcomes)):
                    looked.wait(SOON)
                    time.sleep(0.05)  # for what it does about it
                deliver(batch, outcomes)

            house.room.yielding.add("this test")  # nothing is claimed yet
            await app.submit(job("r", 0.1), id="r")
            house.store.run, house.store.held = run_once_claimed, held_looked_at
            house.writer._deliver = deliver_late
            started = await app.start(job("r", 0.1), id="r")
            assert await started.result(timeout=SOON) == "r"
            assert looked.is_set()
            await until(lambda: not house.room.hands and not house.claimer.hands)

    asyncio.run(main())
    assert begun == ["r"]


def test_no_new_life_begins_while_a_thread_of_the_old_one_executes_and_slots_are_kept():
    gates.update({label: threading.Event() for label in "abc"})

    async def main():
        async with worker(concurrency=2) as app:
            house = app._open
            first = await app.submit(blocked("a"), id="a")
            await until(lambda: begun == ["a"])
            await lose_the_worker(app)
            others = [await app.submit(blocked(label), id=label) for label in "bc"]
            # One slot is the old life's, and the other is enough to claim the run anew.
            await until(lambda: len(house.room.hands) == 2)
            assert [row.id for row in house.room.hands.values()] == ["a", "a"]
            assert begun == ["a"]
            for gate in gates.values():
                gate.set()
            assert [await run.result(timeout=SOON) for run in (first, *others)] == ["a", "b", "c"]
            await until(lambda: not house.room.hands)
            assert not house.claimer.hands

    asyncio.run(main())
    assert sorted(begun) == ["a", "a", "b", "c"], "the old life had lost the run: what it did is not recorded"
    assert most["a"] == 1
    assert most["runs"] <= 2


def test_a_worker_that_learns_of_its_death_from_a_refused_claim_lets_its_lives_fall():
    async def main(app):
        house = app._open
        run = await app.submit(job("long", 1000), id="long")
        await asyncio.sleep(1)
        (old,) = house.lives.values()
        await house.writer.ask(Leave(house.worker.id))
        assert await (await app.submit(job("short"))).result(timeout=5) == "short"
        assert old.over is not None
        assert {life.row.worker for life in house.lives.values()} <= {house.worker.id}
        return await run.result()

    assert virtual().do(main) == "long"
    assert sorted(begun) == ["long", "long", "short"]
    assert most["long"] == 1


# -- items are known by their fence


@pytest.mark.parametrize("word", ["ack", "nack"])
def test_a_late_word_on_an_item_that_was_lost_leaves_the_new_claim_of_it_alone(word):
    async def main(app):
        house, queue = app._open, app.queue("q")
        await queue.put(1, id="x")
        stale = await queue.claim()
        await lose_the_worker(app)
        fresh = await queue.claim(wait=1000)
        assert fresh.fence > stale.fence
        with pytest.raises(LeaseLost):
            await getattr(stale, word)()
        assert list(house.room.hands) == [fresh.fence]
        await house.sweeper.tidy()
        await fresh.ack()
        return await statuses(app, items=True), house.room.hands

    assert App().do(main) == ({"q/x": "done"}, {})


def test_a_handler_that_nacks_and_goes_on_does_not_disturb_the_next_attempt(caplog):
    async def main(app):
        house, attempts, second, first_ended = app._open, [], asyncio.Event(), asyncio.Event()

        async def handle(item):
            attempts.append(item.attempts)
            if item.attempts == 1:
                await item.nack(delay=0)
                await second.wait()
                return
            second.set()
            await first_ended.wait()
            await ticks(10)
            assert list(house.room.hands) == [item.fence]
            await house.sweeper.tidy()  # what nobody had in hand would be given back
            await asyncio.sleep(100)

        async def handler(item):
            try:
                await handle(item)
            finally:
                first_ended.set()

        await app.queue("q").put(1, id="x")
        consumer = asyncio.create_task(app.queue("q").consume(handler))
        await asyncio.sleep(1000)
        assert not house.room.hands
        assert not next(iter(house.consumers)).claimer.hands
        consumer.cancel()
        await asyncio.wait([consumer])
        return attempts, await statuses(app, items=True)

    assert App(ramp=0).do(main) == ([1, 2], {"q/x": "done"})
    assert caplog.text == "", "nothing is said of it twice"


def test_an_item_whose_claim_is_answered_after_its_worker_was_lost_is_not_begun_under_the_old_fence():
    async def main(app):
        house, handled, stale = app._open, [], []
        acquire = house.intake.acquire

        async def too_late(verb):
            outcome = await acquire(verb)
            if isinstance(verb, Claim) and outcome and not stale:
                stale.extend(row.fence for row in outcome)
                await lose_the_worker(app)
            return outcome

        house.intake.acquire = too_late
        await app.queue("q").put(1, id="x")
        consumer = asyncio.create_task(
            app.queue("q").consume(lambda item: handled.append(item.fence), concurrency=1)
        )
        await asyncio.sleep(100)
        consumer.cancel()
        await asyncio.wait([consumer])
        assert not house.room.hands
        return len(handled), handled[0] > stale[0], await statuses(app, items=True)

    assert App(ramp=0).do(main) == (1, True, {"q/x": "done"})


@pytest.mark.parametrize("turns", range(7))
def test_a_claim_that_is_cancelled_leaves_its_item_to_the_next(turns):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="x")
        claim = asyncio.create_task(queue.claim(wait=5))
        await ticks(turns)
        claim.cancel()
        await asyncio.wait([claim])
        if not claim.cancelled():  # it was quicker
            await claim.result().nack(delay=0)
        item = await queue.claim(wait=5)
        assert item is not None, "it was left in nobody's hands"
        assert list(app._open.room.hands) == [item.fence]

    App().do(main)


# -- consumers that stop


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_consumer_that_is_cancelled_while_a_thread_handles_an_item_loses_nothing(cancels):
    gate = gates["handler"] = threading.Event()
    before = our_threads()

    def handle(item):
        begun.append(item.attempts)
        gate.wait(60)

    async def main():
        async with Outlast("memory:", **FAST) as app:
            house = app._open
            await app.queue("q").put(1, id="x")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await until(lambda: begun)
            for _ in range(cancels):
                consumer.cancel()
                await ticks(3)
            await asyncio.wait([consumer], timeout=SOON)
            assert consumer.cancelled()
            assert len(house.room.hands) == 1, "a thread still has it"
            await house.sweeper.tidy()
            gate.set()
            await until(lambda: not house.room.hands and not house.consumers)
            await house.writer.ask(Wait(0, 0, ()))  # what was said before is written
            assert await statuses(app, items=True) == {"q/x": "done"}
            assert await app.queue("q").claim() is None
            assert not house.hung
        await until(lambda: our_threads() <= before)

    asyncio.run(main())
    assert begun == [1]


def test_a_consumer_that_is_cancelled_before_outlast_closes_still_acks_what_a_thread_ends(tmp_path):
    gate, store = gates.setdefault("handler", threading.Event()), f"sqlite:///{tmp_path}/outlast.db"

    def handle(item):
        begun.append(item.attempts)
        gate.wait(60)

    async def main():
        async with Outlast(store, **{**FAST, "close_timeout": SOON}) as app:
            house = app._open
            await app.queue("q").put(1, id="x")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await until(lambda: begun)
            consumer.cancel()
            await ticks(3)

            async def end_it():
                await until(lambda: house.closing)
                gate.set()

            ending = asyncio.create_task(end_it())
        await asyncio.wait([consumer, ending], timeout=SOON)
        assert consumer.cancelled()
        assert not house.hung
        async with Outlast(store, **FAST) as app:
            assert await statuses(app, items=True) == {"q/x": "done"}
            assert len(await app.workers()) == 1

    asyncio.run(main())
    assert begun == [1]


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_consumer_that_is_cancelled_gives_back_what_stops_and_acks_what_ends(cancels):
    async def handle(item):
        begun.append(item.id)
        if item.id == "stops":
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(1)
        else:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)

    async def main(app):
        house = app._open
        await app.queue("q").put_many([1, 2], ids=["stops", "ends"])
        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        assert len(begun) == 2
        for _ in range(cancels):
            consumer.cancel()
            await asyncio.sleep(0.1)
        await asyncio.wait([consumer])
        await asyncio.sleep(10)
        assert not house.room.hands
        assert not house.consumers
        return await statuses(app, items=True)

    assert App(ramp=0).do(main) == {"q/stops": "queued", "q/ends": "done"}


def test_a_handler_that_raises_what_is_no_exception_has_failed_like_any_other():
    class Stop(BaseException):
        pass

    async def handle(item):
        begun.append(item.id)
        if item.id != "good":
            raise Stop

    async def main(app):
        house = app._open
        await app.queue("q").put_many([1, 2, 3], ids=["a", "b", "good"])
        consumer = asyncio.create_task(app.queue("q").consume(handle, concurrency=1))
        await asyncio.sleep(100)
        assert not house.room.hands
        assert not next(iter(house.consumers)).claimer.hands
        consumer.cancel()
        await asyncio.wait([consumer])
        return await statuses(app, items=None)

    assert App(ramp=0, max_attempts=2).do(main) == {"q/a": "dead", "q/b": "dead", "q/good": "done"}
    assert sorted(begun) == ["a", "a", "b", "b", "good"]


# -- suspects


def test_nothing_is_claimed_or_started_beside_a_suspect_until_it_records_something():
    app = virtual(suspect_patience=50.0)

    async def prepare(app):
        await die_elsewhere(app, app._open.submission(gated("suspect"), "suspect"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        while not begun:
            await asyncio.sleep(0.1)
        await app.queue("q").put("item")
        submitted = await app.submit(job("submitted"))
        starting = asyncio.create_task(app.start(job("started")))
        assert await app.queue("q").claim(wait=20) is None
        assert (begun, list(app._open.lives)) == (["suspect"], ["suspect"])
        gates["suspect"].set()
        await app.get(gated, "suspect").result()
        assert (await app.queue("q").claim(wait=1)).payload == "item"
        assert await submitted.result(timeout=1) == "submitted"
        assert await (await starting).result(timeout=1) == "started"

    app.do(main)


def test_what_is_started_waits_for_a_suspect_no_longer_than_its_patience():
    app = virtual(suspect_patience=50.0)

    async def prepare(app):
        await die_elsewhere(app, app._open.submission(gated("suspect"), "suspect"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        while not begun:
            await asyncio.sleep(0.1)
        start = app.clock()
        assert await (await app.start(job("started"))).result() == "started"
        return app.clock() - start

    assert app.do(main) == pytest.approx(50, abs=1)


def test_a_suspect_whose_parent_waits_for_it_comes_in_beside_it_at_once():
    async def main():
        gates["family"] = asyncio.Event()
        async with worker(suspect_patience=1000.0) as app:
            house = app._open
            run = await app.submit(family(), id="family")
            await until(lambda: begun == ["family"])
            child = house.submission(job("child"), "family/job#1")
            await die_elsewhere(app, child._replace(parent="family"))
            gates["family"].set()
            assert await run.result(timeout=SOON) == "child"
            assert await statuses(app) == {"family": "done", "family/job#1": "done"}
            await until(lambda: not house.room.hands)
            assert house.room.alone is None

    asyncio.run(main())
    assert begun == ["family", "child"]


def test_a_suspect_comes_in_beside_others_in_the_end_where_no_hands_get_empty():
    async def main():
        async with worker(suspect_patience=0.05) as app:
            house = app._open
            await app.submit(agent(), id="agent")
            await until(lambda: "turn 0" in begun)
            await die_elsewhere(app, house.submission(job("suspect"), "suspect"))
            await until(lambda: house.room.yielding)
            late = await app.submit(job("late"))
            assert await app.get(job, "suspect").result(timeout=SOON) == "suspect"
            assert await late.result(timeout=SOON) == "late"
            await until(lambda: not house.room.yielding)
            assert list(house.lives) == ["agent"]

    asyncio.run(main())
    assert begun.index("suspect") < begun.index("late"), "nothing is claimed while it makes room"


def test_a_run_that_was_submitted_beside_a_suspect_item_is_claimed_when_the_item_has_ended():
    async def main():
        gate = asyncio.Event()

        async def handle(item):
            begun.append(item.id)
            await gate.wait()

        async with worker(**RARELY) as app:
            house = app._open
            submission = house.new("q/x", ITEM, plain.encode(1), queue="q")
            await die_elsewhere(app, submission)
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await until(lambda: begun == ["x"])
            assert house.room.alone in house.room.hands
            run = await app.submit(job("run"))
            await until_idle(app, house.claimer)
            assert begun == ["x"]
            gate.set()
            assert await run.result(timeout=SOON) == "run"
            consumer.cancel()
            await asyncio.wait([consumer])

    asyncio.run(main())


# -- limits, and who is woken


def test_a_full_queue_does_not_keep_a_parent_from_its_sleeping_child():
    async def main(app):
        await app.queue("default").limit(concurrency=1)
        run = await app.submit(watcher(20.0), id="watcher")
        return await run.result(timeout=1000)

    assert virtual().do(main) == "slept"


def test_a_run_that_ends_makes_room_in_its_queue_for_the_next_at_once():
    async def main():
        gates["first"] = asyncio.Event()
        async with worker(**RARELY) as app:
            await app.queue("default").limit(concurrency=1)
            first = await app.start(gated("first"))
            await until(lambda: begun == ["first"])
            second = await app.submit(job("second"))
            await until_idle(app, app._open.claimer)
            gates["first"].set()
            await first.result(timeout=SOON)
            assert await second.result(timeout=SOON) == "second"

    asyncio.run(main())
    assert begun == ["first", "second"]


def test_an_ack_makes_room_in_its_queue_for_other_processes_at_once(tmp_path):
    async def handle(item):
        begun.append(item.payload)

    async def main():
        store = f"sqlite:///{tmp_path}/outlast.db"
        async with Outlast(store, **RARELY) as one, Outlast(store, **RARELY) as other:
            await one.queue("q").limit(concurrency=1)
            await one.queue("q").put_many([1, 2])
            item = await one.queue("q").claim()
            consumer = asyncio.create_task(other.queue("q").consume(handle))
            await until(lambda: other._open.consumers)
            await until_idle(other, next(iter(other._open.consumers)).claimer)
            assert begun == []
            await item.ack()
            await until(lambda: begun == [2])
            consumer.cancel()
            await asyncio.wait([consumer])

    asyncio.run(main())


def test_what_comes_due_behind_thousands_of_others_is_not_late():
    async def main(app):
        await app.queue("elsewhere").put_many(list(range(3500)), delay=10)
        start = app.clock()
        run = await app.submit(job("x"), delay=11)
        await run.result()
        return app.clock() - start

    assert virtual().do(main) == pytest.approx(11, abs=0.1)


def test_an_item_that_comes_due_between_two_looks_is_not_late():
    async def main(app):
        queue, store = app.queue("q"), app._open.store
        look = store.look

        def slow(*args):
            app.clock.advance(1)
            return look(*args)

        store.look = slow
        await queue.put(1, delay=0.5)
        await asyncio.sleep(0.1)  # the bell has rung
        start = app.clock()
        item = await queue.claim(wait=1000)
        assert item.payload == 1
        return app.clock() - start

    assert App().do(main) < 5


class SlowToTell(SQLiteStore):
    """Whoever asks it what has come since the messages that he knows waits for the answer."""

    def messages(self, run, after=0):
        if after:
            time.sleep(0.5)
        return super().messages(run, after)


def test_a_run_does_not_fall_asleep_again_over_the_message_that_woke_it(tmp_path):
    """It came with the message. What a slow store still says of later ones is not waited for by who puts it to sleep."""

    async def main():
        store = SlowToTell(tmp_path / "outlast.db")
        async with worker(store, **{**RARELY, "linger": 0.05}) as app:
            run = await app.submit(letter("x"), id="r")
            while (await run.info()).status != "waiting":
                await asyncio.sleep(0.01)
            await app.send("r", "go", "hello")
            assert await run.result(timeout=SOON) == "hello"

    asyncio.run(main())


def test_where_it_is_the_turn_of_new_work_the_other_slots_are_filled_too():
    app = virtual(concurrency=4, new_share=0.2)

    async def prepare(app):
        for label in "abcd":
            run = await app.submit(job(label, 100), id=label)
            (row,) = await app._open.writer.ask(Claim(app._open.worker.id, label, ids=(run.id,)))
            await app._open.writer.ask(Release(row.pk, row.fence, "deploy"))
        await app.submit(job("new", 100), id="new")

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        app._open.claimer.slots._claims = 4
        await asyncio.sleep(10)
        return begun[0], sorted(app._open.lives)

    assert app.do(main) == ("new", ["a", "b", "c", "new"])


# -- journals


def test_a_journal_that_cannot_be_read_parks_its_run_and_harms_no_neighbour(tmp_path):
    store, parked = f"sqlite:///{tmp_path}/outlast.db", []
    ids = [f"r{number}" for number in range(4)]

    async def main():
        async with worker(store) as app:
            await app.submit_many([letter(id) for id in ids], ids=ids)
            await until(lambda: len(begun) == 4)
            for id in ids:  # taken, and then on record
                while (await app.get(letter, id).info()).waiting_for != ("go",):
                    await asyncio.sleep(0.005)
        db = sqlite3.connect(tmp_path / "outlast.db")
        bad = "UPDATE entries SET value = CAST(x'ff' AS TEXT) WHERE kind = 'step' AND run = (SELECT pk FROM runs WHERE id = 'r0')"
        assert db.execute(bad).rowcount == 1
        db.commit()
        db.close()
        async with worker(store, on_parked=lambda info: parked.append(info.id)) as app:
            house = app._open
            for id in ids:
                await app.send(id, "go", "went")
            assert [await app.get(letter, id).result(timeout=SOON) for id in ids[1:]] == ["went"] * 3
            await until(lambda: parked == ["r0"] and not house.room.hands)
            assert not house.claimer.hands
            info = await app.get(letter, "r0").info()
            assert info.status == "parked"
            assert "journal cannot be read" in info.reason

    asyncio.run(main())
    assert sorted(begun) == ids


# -- opening and closing


def test_an_open_that_is_cancelled_leaves_no_thread_and_no_file_open(tmp_path):
    before = our_threads()

    def files() -> list[str]:
        found = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.append(str(link.readlink()))
        return [path for path in found if str(tmp_path) in path]

    async def main():
        for turns in (0, 1, 2, 3, 4, None):
            app = Outlast(f"sqlite:///{tmp_path}/outlast.db", **FAST)
            opening = asyncio.create_task(app.__aenter__())
            await ticks(turns or 0)
            while turns is None and not any(thread.name == "outlast-writer" for thread in our_threads()):
                await asyncio.sleep(0)  # until the store is open, and the worker enlists
            opening.cancel()
            await asyncio.wait([opening], timeout=SOON)
            if not opening.cancelled():
                await app.__aexit__()
            await until(lambda: our_threads() <= before and not files())
        async with worker(f"sqlite:///{tmp_path}/outlast.db") as app:
            assert await (await app.submit(job("x"))).result(timeout=SOON) == "x"

    asyncio.run(main())


def test_a_close_that_is_cancelled_still_leaves_the_lifespan_and_the_store(tmp_path):
    before, seen = our_threads(), []

    @asynccontextmanager
    async def lifespan(_):
        seen.append("open")
        try:
            yield
        finally:
            seen.append("closed")

    async def main():
        started, stopping = asyncio.Event(), asyncio.Event()

        @step
        async def hold_on() -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                stopping.set()
                await asyncio.sleep(0.1)

        @workflow(name="held")
        async def held() -> None:
            await hold_on()

        store = f"sqlite:///{tmp_path}/outlast.db"

        async def program():
            async with Outlast(store, worker=True, workflows=[held], lifespan=lifespan, **FAST) as app:
                await app.submit(held(), id="held")
                await started.wait()

        task = asyncio.create_task(program())
        await asyncio.wait_for(stopping.wait(), SOON)
        task.cancel()  # as a second Ctrl-C does
        await asyncio.wait([task], timeout=SOON)
        assert task.cancelled()
        assert seen == ["open", "closed"]
        await until(lambda: our_threads() <= before)
        async with Outlast(store, **FAST) as app:
            (info,) = await app.runs()
            assert (info.status, info.worker, info.deaths) == ("queued", None, 0)
            assert len(await app.workers()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(8))
def test_who_waits_for_an_item_when_outlast_closes_is_told_that_it_drains(turns):
    async def main():
        async with Outlast("memory:", **FAST) as app:
            claim = asyncio.create_task(app.queue("q").claim(wait=60))
            consumer = asyncio.create_task(app.queue("p").consume(print))
            await ticks(1 + turns)
        await asyncio.wait([claim, consumer], timeout=SOON)
        with pytest.raises(Draining):
            claim.result()
        assert consumer.done()
        with suppress(StoreUnavailable, asyncio.CancelledError):
            assert consumer.result() is None

    asyncio.run(main())


@pytest.mark.parametrize("where", ["entering", "leaving"])
def test_a_lifespan_that_fails_gives_back_what_was_started_in_it(tmp_path, where):
    before, store = our_threads(), f"sqlite:///{tmp_path}/outlast.db"

    @asynccontextmanager
    async def lifespan(app):
        await app.start(job("x", 60), id="x")
        await until(lambda: begun == ["x"])
        if where == "entering":
            raise RuntimeError("no pool")
        yield
        raise RuntimeError("no pool")

    async def main():
        with pytest.raises(RuntimeError, match="no pool"):
            async with worker(store, lifespan=lifespan):
                pass
        await until(lambda: our_threads() <= before)
        async with Outlast(store, **FAST) as app:
            (info,) = await app.runs()
            assert (info.status, info.worker, info.deaths) == ("queued", None, 0)
            assert len(await app.workers()) == 1

    asyncio.run(main())


def test_a_run_that_was_started_in_the_lifespan_of_a_worker_is_released_when_it_waits():
    @asynccontextmanager
    async def lifespan(app):
        await app.start(letter("early"), id="letter")
        yield

    async def main(app):
        await asyncio.sleep(100)
        assert not app._open.room.hands
        assert await statuses(app) == {"letter": "waiting"}
        await app.send("letter", "go", "went")
        return await app.get(letter, "letter").result(timeout=1)

    assert virtual(lifespan=lifespan).do(main) == "went"


@pytest.mark.parametrize("what", ["run", "item"])
def test_an_idle_worker_whose_claim_is_refused_claims_at_once_under_its_new_id(what):
    async def main(app):
        sent = []

        async def handle(item):
            sent.append(item.payload)

        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1)
        app.store.commit([Leave(app._open.worker.id)])  # taken for dead, and it does not know yet
        start = app.clock()
        if what == "run":
            assert await (await app.submit(job("x"))).result() == "x"
        else:
            await app.queue("q").put("x")
            while not sent:
                await asyncio.sleep(0.01)
        consumer.cancel()
        await asyncio.wait([consumer])
        return app.clock() - start

    assert App(worker=True, workflows=[job], ramp=0).do(main) < 1
