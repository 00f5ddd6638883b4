"""No run is left behind: what was submitted here is executed here, or given back, whatever happens meanwhile."""

import asyncio
import threading
import time

import pytest

from outlast import Outlast, RunParked, StoreUnavailable, effect, step, workflow
from outlast.app.house import House
from outlast.record.writer import InlineWriter
from outlast.store.protocol import CommitUnknown
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Claim, Record, Sweep
from outlast.testing import App, VirtualClock

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    return label


@workflow
async def one(label: str, seconds: float = 0.0) -> str:
    return await work(label, seconds)


async def comes_about(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"it did not come about in {seconds} s"
        await asyncio.sleep(0.005)


def sweep(path) -> None:
    """As another process does when this one was stopped past its lease."""
    other = SQLiteStore(path)
    other.open()
    other._db.execute("UPDATE workers SET lease_until = 0")
    other.commit([Sweep()])
    other.close()


def test_a_worker_that_was_taken_for_dead_comes_back_once_however_many_ask(tmp_path):
    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path}/o.db") as app:
            sweep(tmp_path / "o.db")
            runs = await asyncio.gather(*[app.start(one(f"{n}"), id=f"r{n}") for n in range(5)])
            assert [await run.result(timeout=20) for run in runs] == [f"{n}" for n in range(5)]
            assert len(app._open.store.workers()) == 1

    asyncio.run(main())
    assert sorted(done) == [f"{n}" for n in range(5)]


def test_a_worker_that_came_back_keeps_its_runs_when_its_old_lease_is_found_lost(tmp_path):
    def leases() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if "lease" in thread.name}

    before = leases()

    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path}/o.db", lease=0.8, heartbeat=0.1) as app:
            sweep(tmp_path / "o.db")
            run = await app.start(one("a", 1.0), id="run")
            assert await run.result(timeout=20) == "a"
            assert len(app._open.store.workers()) == 1
            assert len(leases() - before) == 1

    asyncio.run(main())
    assert done == ["a"]


def test_a_run_whose_starter_is_cancelled_while_it_is_submitted_is_executed_all_the_same(address):
    async def main() -> None:
        async with Outlast(address) as app:
            starter = asyncio.create_task(app.start(one("a"), id="run"))
            await asyncio.sleep(0)
            starter.cancel()
            await asyncio.wait([starter])

            async def ended() -> bool:
                return [info.status for info in await app.runs()] == ["done"]

            await comes_about(ended)
            assert await (await app.start(one("a"), id="run")).result(timeout=20) == "a"

    asyncio.run(main())
    assert done == ["a"]


def test_a_child_whose_parent_ends_while_it_is_submitted_is_cancelled(address):
    @workflow
    async def child() -> None:
        await asyncio.sleep(3600)

    @workflow
    async def parent() -> str:
        beside = asyncio.create_task(child())
        return await work("a") if not beside.done() else "odd"

    async def main() -> None:
        async with Outlast(address) as app:
            for n in range(10):
                assert await (await app.start(parent(), id=f"p{n}")).result(timeout=20) == "a"

            async def all_ended() -> bool:
                return {info.status for info in await app.runs(workflow="child")} <= {"cancelled"}

            await comes_about(all_ended)
            assert app._open.lives == {}

    asyncio.run(main())


def test_a_child_that_waits_for_a_suspect_does_not_begin_when_its_parent_has_failed_meanwhile(
    world, monkeypatch
):
    """Nobody would cancel it then, nor undo what it does: it was not there when its parent ended."""

    async def waits(house: House, parent: str | None) -> None:
        await asyncio.sleep(5 if parent is not None else 0)

    @step
    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError

    @workflow
    async def parent() -> None:
        await asyncio.gather(fails(), one("child"))

    async def main(app) -> list[str]:
        with pytest.raises(ValueError):
            await (await app.start(parent(), id="run")).result()
        await asyncio.sleep(20)
        return [run.id for run in await app.runs()]

    monkeypatch.setattr(House, "_while_a_suspect_is_alone", waits)
    assert world.do(main) == ["run"]
    assert done == []


def test_a_step_whose_task_the_program_cancels_is_executed_again(world):
    @step
    async def unlucky() -> int:
        done.append("unlucky")
        if len(done) == 1:
            asyncio.current_task().cancel()
        await asyncio.sleep(0)
        return len(done)

    @workflow
    async def tries() -> int:
        return await unlucky()

    async def main(app) -> int:
        return await (await app.start(tries(), id="run")).result(timeout=100)

    assert world.do(main) == 2
    assert world.kinds()[-1] == "step"


@pytest.fixture
def gate():
    """What a step in a thread waits for. Open at the end, so that no thread is left."""
    gate = threading.Event()
    yield gate
    gate.set()


class Slow:
    """A step in a thread: how many execute now, and how many did at most."""

    def __init__(self, gate: threading.Event) -> None:
        self.now = self.most = 0

        @step
        def slow() -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            assert gate.wait(30)
            self.now -= 1
            return 1

        self.step = slow

    async def begun(self) -> bool:
        return self.now == 1


def test_a_step_in_a_thread_whose_task_the_program_cancels_is_executed_again_after_its_thread(gate):
    slow = Slow(gate)

    @workflow
    async def waits() -> int:
        return await slow.step.aio()

    async def main() -> None:
        async with Outlast("memory:", close_timeout=0.05) as app:
            run = await app.start(waits(), id="run")
            await comes_about(slow.begun)
            for body in list(app._open.lives["run"].bodies):
                body.cancel()
            await asyncio.sleep(0.2)  # longer than close_timeout, which has no part in this
            assert await (await app.start(waits(), id="run")).info()
            gate.set()
            assert await run.result(timeout=20) == 1

    asyncio.run(main())
    assert slow.most == 1


def test_a_run_is_parked_when_its_threads_have_ended_so_that_no_step_executes_twice_at_once(
    gate, monkeypatch
):
    monkeypatch.setattr("outlast.replay.delivery.CALLBACKS_MAX", 10_000)
    slow, mended = Slow(gate), []

    @workflow
    async def spins() -> int:
        beside = asyncio.create_task(slow.step.aio())
        await asyncio.sleep(0.1)
        while not mended:
            await asyncio.sleep(0)
        return await beside

    async def main() -> None:
        async with Outlast("memory:", close_timeout=0.05) as app:
            run = await app.start(spins(), id="run")
            await comes_about(slow.begun)
            with pytest.raises(TimeoutError):
                await run.result(timeout=0.5)
            gate.set()
            with pytest.raises(RunParked, match="without waiting"):
                await run.result(timeout=20)
            assert slow.now == 0
            mended.append(1)
            await app.resume("run")
            assert await (await app.start(spins(), id="run")).result(timeout=20) == 1

    asyncio.run(main())
    assert slow.most == 1


class Faulty:
    """The real store, which refuses batches with a verb of this kind while `fault` is set."""

    def __init__(self, store, kind) -> None:
        self._store, self._kind = store, kind
        self.fault: Exception | None = None
        self.said: list[str] = []

    def commit(self, verbs):
        if self.fault is not None and any(isinstance(verb, self._kind) for verb in verbs):
            raise self.fault
        outcomes = self._store.commit(verbs)
        self.said.append("committed")
        return outcomes

    def try_commit(self, verbs):
        return None  # nothing is written on the loop

    def recover(self) -> None:
        if self.fault is not None:
            raise StoreUnavailable("still failing")
        self._store.recover()
        self.said.append("recovered")

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_a_run_that_cannot_be_taken_up_while_the_store_fails_is_taken_up_when_it_answers_again(world):
    store = Faulty(world.open(), Claim)

    async def main(app) -> str:
        await app.submit(one("a"), id="run")
        store.fault = StoreUnavailable("locked")
        run = await app.start(one("a"), id="run")
        await asyncio.sleep(10)
        store.fault = None
        return await run.result(timeout=1000)

    assert App(store, clock=world.clock, store_patience=0.02).do(main) == "a"
    store.close()


def test_after_a_commit_of_unknown_end_nothing_is_acknowledged_before_the_store_has_recovered(tmp_path):
    store = Faulty(SQLiteStore(tmp_path / "o.db"), Record)

    async def main() -> None:
        async with Outlast(store, store_patience=0.05) as app:
            store.fault = CommitUnknown("fsync failed")
            run = await app.start(one("a"), id="first")
            with pytest.raises(StoreUnavailable):
                await run.result(timeout=20)
            store.said.clear()
            store.fault = None
            assert await (await app.start(one("b"), id="second")).result(timeout=20) == "b"

    asyncio.run(main())
    assert store.said[:2] == ["recovered", "committed"]


@effect(timeout=5)
async def reserve(what: str) -> str:
    done.append(f"+{what}")
    return what


@reserve.compensate
async def free(_: str | None, what: str) -> None:
    done.append(f"-{what}")


@workflow
async def reserve_in_vain(what: str) -> str:
    await reserve(what)
    await work("a while", 0.2)
    await work("and more")
    raise ValueError("no use for it")


def test_a_life_that_is_over_before_its_adoption_is_wanted_back_all_the_same(tmp_path, monkeypatch):
    """Adoption looks for requests once it has begun a life. One that ends meanwhile, to be undone, was asked for in vain."""
    address = f"sqlite:///{tmp_path}/o.db"

    async def interrupted() -> None:
        async with Outlast(address) as app:
            await app.start(reserve_in_vain("room"), id="r")
            await comes_about(lambda: asyncio.sleep(0, "a while" in done))
            await app.drain("a deploy")

    async def again() -> None:
        async with Outlast(address) as app:
            post = app._open.post
            look = post.look_for_requests

            async def look_slowly() -> None:
                await comes_about(lambda: asyncio.sleep(0, "r" not in app._open.lives))
                await look()

            monkeypatch.setattr(post, "look_for_requests", look_slowly)
            run = await app.start(reserve_in_vain("room"), id="r")
            with pytest.raises(ValueError, match="no use for it"):
                await run.result(timeout=20)

    asyncio.run(interrupted())
    asyncio.run(again())
    assert done == ["+room", "a while", "and more", "-room"]


@pytest.mark.parametrize("said", ["ack", "nack"])
def test_an_item_that_was_acked_or_nacked_is_out_of_hand_also_if_who_did_was_cancelled_meanwhile(said):
    """It is written all the same: a drain does not wait for it, and whoever is to hear of a dead letter does."""
    dead: list[str] = []

    async def main(app) -> None:
        house, queue = app._open, app.queue("q")
        await queue.put(1, id="item")
        item = await queue.claim()
        saying = asyncio.create_task(getattr(item, said)())
        await asyncio.sleep(0)  # it is on its way to the store
        saying.cancel()
        await asyncio.wait([saying])
        assert saying.cancelled()
        await asyncio.sleep(1)
        assert app.store.run("q/item").status == ("done" if said == "ack" else "dead")
        assert (house.room.hands, house.room.by_hand) == ({}, set())
        assert (await app.drain()).left == []

    App(max_attempts=1, on_dead=lambda run: dead.append(run.id)).do(main)
    assert dead == ([] if said == "ack" else ["q/item"])


@pytest.mark.parametrize("drains", [True, False])
def test_an_app_is_left_when_it_is_known_what_came_of_its_last_item_and_the_hook_has_ended(
    monkeypatch, drains
):
    """The store takes its time to write that it is a dead letter, and nobody else will tell of it."""
    flush, told = InlineWriter._flush, []

    async def on_dead(run) -> None:
        await asyncio.sleep(1)
        told.append(run.id)

    async def handle(_) -> None:
        await asyncio.sleep(5)
        raise ValueError

    async def main() -> None:
        async with App(clock=clock, max_attempts=1, on_dead=on_dead) as app:
            await app.queue("q").put(1, id="item")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await asyncio.sleep(1)
            monkeypatch.setattr(InlineWriter, "_flush", lambda self: self._loop.call_later(0.1, flush, self))
            if drains:
                app._open.drain.begin("now")
                await asyncio.shield(app._open.drain.over)
            else:
                await asyncio.sleep(4.01)  # it has failed, and that is on its way to the store
                consumer.cancel()
        assert told == ["q/item"]
        await asyncio.wait([consumer])

    clock = VirtualClock()
    clock.run(main())


def test_an_item_whose_handler_lets_out_a_cancellation_that_nobody_asked_for_has_failed(world):
    """As of something that it has awaited: taken for the consumer's end it would be handled again and again, uncounted."""

    async def handle(item) -> None:
        done.append(item.attempts)
        await cut

    async def main(app) -> None:
        nonlocal cut
        cut = asyncio.get_running_loop().create_future()
        cut.cancel("cut")
        await app.queue("q").put(1, id="item")
        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1000)
        consumer.cancel()

    cut: asyncio.Future[None]
    world.settings = {"max_attempts": 3}
    world.do(main)
    assert done == [1, 2, 3]
    row = world.row("q/item")
    assert (row.status, row.failures, row.interruptions) == ("dead", 3, 0)
    assert "CancelledError('cut')" in row.reason
