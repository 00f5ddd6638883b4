"""A submitted run is executed or released, whatever fails meanwhile."""

import asyncio
import threading

import pytest

from outlast import Outlast, RunParked, StoreUnavailable, effect, step, workflow
from outlast.engine.isolation import Isolation
from outlast.store.commands import Claim, Record, Sweep
from outlast.store.protocol import CommitUnknown
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async

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


async def wait_until_true(condition) -> None:
    """Wait for a condition that is a coroutine function."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():
            await asyncio.sleep(0.005)


def sweep(path) -> None:
    """Strike all workers off, as another process does when this one was stopped past its lease."""
    other = SQLiteStore(path)
    other.open()
    other._db.execute("DELETE FROM workers")
    other.commit([Sweep()])
    other.close()


def test_swept_worker_registers_again_once_for_concurrent_starts(tmp_path):
    async def main() -> None:
        async with Outlast(f"sqlite:///{tmp_path}/o.db") as app:
            lost = app._open.worker.id
            sweep(tmp_path / "o.db")
            runs = await asyncio.gather(*[app.start(one(f"{n}"), id=f"r{n}") for n in range(5)])
            assert [await run.result(timeout=WAIT_SECONDS) for run in runs] == [
                f"{n}" for n in range(5)
            ]
            assert app._open.worker.id != lost
            assert len(app._open.store.workers()) == 1

    asyncio.run(main())
    assert sorted(done) == [f"{n}" for n in range(5)]


def test_worker_that_registered_again_keeps_its_runs(tmp_path):
    def leases() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if "lease" in thread.name}

    before = leases()

    @step
    async def waits() -> str:
        done.append("a")
        await go.wait()
        return "a"

    @workflow
    async def flow() -> str:
        return await waits()

    async def main() -> None:
        nonlocal go
        go = asyncio.Event()
        async with Outlast(f"sqlite:///{tmp_path}/o.db", lease=6) as app:
            [old] = leases() - before
            sweep(tmp_path / "o.db")
            run = await app.start(flow(), id="run")
            await wait_until_async(lambda: not old.is_alive())
            go.set()
            assert await run.result(timeout=WAIT_SECONDS) == "a"
            assert len(app._open.store.workers()) == 1
            assert len(leases() - before) == 1

    go: asyncio.Event

    asyncio.run(main())
    assert done == ["a"]


def test_run_executes_although_its_starter_was_cancelled_during_submission(address):
    async def main() -> None:
        async with Outlast(address) as app:
            starter = asyncio.create_task(app.start(one("a"), id="run"))
            await asyncio.sleep(0)
            starter.cancel()
            await asyncio.wait([starter])

            async def ended() -> bool:
                return [info.status for info in await app.runs()] == ["done"]

            await wait_until_true(ended)
            assert await (await app.start(one("a"), id="run")).result(timeout=WAIT_SECONDS) == "a"

    asyncio.run(main())
    assert done == ["a"]


def test_child_is_cancelled_when_its_parent_ends_during_submission(address):
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
                assert (
                    await (await app.start(parent(), id=f"p{n}")).result(timeout=WAIT_SECONDS)
                    == "a"
                )

            async def all_ended() -> bool:
                return {info.status for info in await app.runs(workflow="child")} <= {"cancelled"}

            await wait_until_true(all_ended)
            assert app._open.in_flight.executions == {}

    asyncio.run(main())


def test_child_that_waits_for_a_suspect_does_not_start_after_its_parent_failed(world, monkeypatch):
    """Nobody would cancel it then, nor undo what it does: it was not there when its parent ended."""

    async def waits(isolation: Isolation, parent: str | None) -> None:
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

    monkeypatch.setattr(Isolation, "wait_until_over", waits)
    assert world.do(main) == ["run"]
    assert done == []


def test_step_is_repeated_after_the_program_cancels_its_task(world):
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
            assert gate.wait(WAIT_SECONDS)
            self.now -= 1
            return 1

        self.step = slow


def test_thread_step_is_repeated_only_after_its_cancelled_thread_ends(gate):
    slow = Slow(gate)

    @workflow
    async def waits() -> int:
        return await slow.step.aio()

    async def main() -> None:
        async with Outlast("memory:", close_timeout=0.05) as app:
            run = await app.start(waits(), id="run")
            await wait_until_async(lambda: slow.now == 1)
            execution = app._open.in_flight.executions["run"]
            bodies = list(execution.steps.tasks)
            for body in bodies:
                body.cancel()
            await asyncio.wait(bodies)
            await wait_until_async(lambda: execution.end_reason)
            assert await (await app.start(waits(), id="run")).info()
            gate.set()
            assert await run.result(timeout=WAIT_SECONDS) == 1

    asyncio.run(main())
    assert slow.most == 1


def test_spinning_run_is_parked_after_its_threads_end(gate, monkeypatch):
    monkeypatch.setattr("outlast.execution.delivery.CALLBACKS_MAX", 10_000)
    slow, fixed = Slow(gate), []

    @step
    async def until_slow_begins() -> None:
        await wait_until_async(lambda: slow.now == 1)

    @workflow
    async def spins() -> int:
        beside = asyncio.create_task(slow.step.aio())
        await until_slow_begins()
        while not fixed:
            await asyncio.sleep(0)
        return await beside

    async def main() -> None:
        async with Outlast("memory:", close_timeout=0.05) as app:
            run = await app.start(spins(), id="run")
            await wait_until_async(lambda: slow.now == 1)
            with pytest.raises(TimeoutError):
                await run.result(timeout=0.5)
            gate.set()
            with pytest.raises(RunParked, match="without waiting"):
                await run.result(timeout=WAIT_SECONDS)
            assert slow.now == 0
            fixed.append(1)
            await app.resume("run")
            assert await (await app.start(spins(), id="run")).result(timeout=WAIT_SECONDS) == 1

    asyncio.run(main())
    assert slow.most == 1


class Faulty:
    """The real store, which refuses batches with a command of this kind while `fault` is set."""

    def __init__(self, store, kind) -> None:
        self._store, self._kind = store, kind
        self.fault: Exception | None = None
        self.refused = 0
        self.said: list[str] = []

    def commit(self, commands):
        if self.fault is not None and any(isinstance(command, self._kind) for command in commands):
            self.refused += 1
            raise self.fault
        outcomes = self._store.commit(commands)
        self.said.append("committed")
        return outcomes

    def try_commit(self, commands):
        return None  # nothing is written on the loop

    def recover(self) -> None:
        if self.fault is not None:
            raise StoreUnavailable("still failing")
        self._store.recover()
        self.said.append("recovered")

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_run_is_claimed_once_the_failing_store_recovers(world):
    store = Faulty(world.open(), Claim)

    async def main(app) -> str:
        await app.submit(one("a"), id="run")
        store.fault = StoreUnavailable("locked")
        run = await app.start(one("a"), id="run")
        while store.refused < 3:
            await asyncio.sleep(0.01)
        store.fault = None
        return await run.result(timeout=1000)

    assert App(store, clock=world.clock, store_patience=0.02).do(main) == "a"
    store.close()


def test_nothing_is_acknowledged_after_an_unknown_commit_until_the_store_recovers(tmp_path):
    store = Faulty(SQLiteStore(tmp_path / "o.db"), Record)

    async def main() -> None:
        async with Outlast(store, store_patience=0.05) as app:
            store.fault = CommitUnknown("fsync failed")
            run = await app.start(one("a"), id="first")
            with pytest.raises(StoreUnavailable):
                await run.result(timeout=WAIT_SECONDS)
            store.said.clear()
            store.fault = None
            await wait_until_true(lambda: succeeds(app))

    async def succeeds(app: Outlast) -> bool:
        try:
            return await (await app.start(one("b"), id="second")).result() == "b"
        except StoreUnavailable:  # it has not recovered within its short patience
            return False

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


def test_run_that_ends_during_its_takeover_is_still_undone(tmp_path, monkeypatch):
    """The takeover looks for requests once it has begun a life. One that ends meanwhile, to be undone, was asked for in vain."""
    address = f"sqlite:///{tmp_path}/o.db"

    async def interrupted() -> None:
        async with Outlast(address) as app:
            await app.start(reserve_in_vain("room"), id="r")
            await wait_until_async(lambda: "a while" in done)
            await app.drain("a deploy")

    async def again() -> None:
        async with Outlast(address) as app:
            post = app._open.runs.requests
            look = post.poll_requests

            async def look_slowly() -> None:
                await wait_until_async(lambda: "r" not in app._open.in_flight.executions)
                await look()

            monkeypatch.setattr(post, "poll_requests", look_slowly)
            run = await app.start(reserve_in_vain("room"), id="r")
            with pytest.raises(ValueError, match="no use for it"):
                await run.result(timeout=WAIT_SECONDS)

    asyncio.run(interrupted())
    asyncio.run(again())
    assert done == ["+room", "a while", "and more", "-room"]
