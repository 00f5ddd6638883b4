"""How a process loses a run: it closes, its lease is lost, its store fails. The run is not harmed by any of it."""

import asyncio
import sqlite3

import pytest

from outlast import Evicted, Outlast, StoreBroken, StoreUnavailable, current, receive, sleep, step, workflow
from outlast.store.protocol import CommitUnknown
from outlast.store.verbs import Claim, Enlist, Record, Sweep
from outlast.testing import App

done: list[str] = []
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()
    seen.clear()


@step(retries=3)
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(f"{label} {current().attempt}")
    await asyncio.sleep(seconds)
    return label


@workflow
async def report() -> list[str]:
    try:
        return [await work("a"), await work("slow", 100)]
    except BaseException as error:
        seen.append(type(error))
        raise


# -- closing


def test_closing_gives_the_run_back_as_an_interruption_which_costs_nothing(world):
    async def main(app) -> None:
        await app.start(report(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    row = world.row()
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("queued", None, 0, 1)
    assert world.kinds() == ["step", "interruption"]
    assert seen == [Evicted]
    world.restart()
    assert world.run(report()) == ["a", "slow"]
    assert done == ["a 1", "slow 1", "slow 1"], "an interruption uses up no attempt"


def test_closing_cancels_the_body_that_is_under_way(world):
    stopped = []

    @step
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append(1)
            raise

    @workflow
    async def one() -> None:
        await slow()

    async def main(app) -> None:
        await app.start(one(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert stopped == [1]


def test_another_process_goes_on_where_the_first_one_closed(file_world):
    async def main(app) -> list[str]:
        async with file_world.another() as first:
            await first.start(report(), id="run")
            await asyncio.sleep(10)
            second = await app.start(report(), id="run")
        return await second.result(timeout=1000)

    assert file_world.do(main) == ["a", "slow"]
    assert done == ["a 1", "slow 1", "slow 1"]
    assert file_world.row().deaths == 0


def test_who_waits_for_a_run_when_the_app_closes_is_told(world):
    async def main(app) -> None:
        run = await app.start(report(), id="run")
        seen.append(asyncio.create_task(run.result()))
        await asyncio.sleep(10)

    async def outer() -> None:
        async with world.app as app:
            await main(app)
        with pytest.raises((StoreUnavailable, asyncio.CancelledError)):
            await seen[-1] if isinstance(seen[-1], asyncio.Task) else await seen[0]

    world.clock.run(outer())
    assert world.status() == "queued"


def test_a_finally_at_closing_records_nothing_and_starts_no_step(world):
    @workflow
    async def tidy() -> None:
        try:
            await sleep(1000)
        finally:
            try:
                await work("tidy")
            except BaseException as error:
                seen.append(type(error))
                raise

    async def main(app) -> None:
        await app.start(tidy(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert seen == [Evicted]
    assert done == []
    assert world.kinds() == ["interruption"]


def test_a_workflow_that_swallows_its_eviction_records_nothing_more(world):
    @workflow
    async def greedy() -> str:
        for _ in range(3):
            try:
                await work("x", 1000)
            except BaseException as error:
                seen.append(type(error))
        return "done, I say"

    async def main(app) -> None:
        await app.start(greedy(), id="run")
        await asyncio.sleep(10)

    world.do(main)
    assert set(seen) == {Evicted}
    assert world.status() == "queued"
    assert world.kinds() == ["interruption"]


# -- losing the lease


def steal(world, app, id="run") -> int:
    """Another worker sweeps and claims, as if the first one's lease had run out. Its fence."""
    other = world.open()
    other.hold("thief")
    other.commit([Enlist("thief", "elsewhere", 1, 1e6)])
    other._db.execute("UPDATE workers SET lease_until = 0 WHERE id = ?", (app._house.worker,))
    swept = other.commit([Sweep()])[0]
    assert swept == [id]
    row = other.commit([Claim("thief", "t", ids=(id,))])[0][0]
    return row.fence


def test_a_life_whose_run_was_taken_is_evicted_once_and_records_nothing_stale(world):
    async def main(app) -> None:
        await app.start(report(), id="run")
        await asyncio.sleep(10)
        fence = steal(world, app)
        await asyncio.sleep(200)  # the slow step ends here: its record is refused
        assert seen == [Evicted]
        row = app.store.run("run")
        assert (row.worker, row.fence) == ("thief", fence)
        assert [entry.kind for entry in app.store.journal(row.pk)] == ["step", "death"]

    world.do(main)


def test_a_stale_result_never_reaches_the_journal_of_the_new_life(world):
    async def main(app) -> list[str]:
        run = await app.start(report(), id="run")
        await asyncio.sleep(10)
        fence = steal(world, app)
        row = app.store.run("run")
        app.store.commit(
            [
                Record(
                    row.pk,
                    3,
                    fence,
                    "step",
                    "work#2",
                    app.store.now(),
                    args='{"label":"slow","seconds":100}',
                    value='"by the thief"',
                )
            ]
        )
        await asyncio.sleep(200)
        app.store._db.execute("UPDATE workers SET lease_until = 0 WHERE id = 'thief'")
        app.store.commit([Sweep()])
        return await run.result(timeout=1000)

    assert world.do(main) == ["a", "by the thief"]
    values = [entry.value for entry in world.journal() if entry.kind == "step"]
    assert values == ['"a"', '"by the thief"']


def test_a_run_lost_by_a_jump_of_the_clock_goes_on_in_the_same_process(file_world):
    async def main(app) -> list[str]:
        run = await app.start(report(), id="run")
        await asyncio.sleep(10)
        other = file_world.open()
        other._db.execute("UPDATE workers SET lease_until = 0")
        other.commit([Sweep()])
        other.close()
        return await run.result(timeout=1000)

    assert file_world.do(main) == ["a", "slow"]
    assert file_world.row().deaths == 1
    assert [k for k in file_world.kinds() if k == "step"] == ["step", "step"]


# -- a store that fails


class Failing:
    """The real store, which fails while `fault` is set. No mock: what it does not refuse, it does."""

    def __init__(self, store) -> None:
        self._store = store
        self.fault: Exception | None = None

    def commit(self, verbs):
        if self.fault is not None:
            raise self.fault
        return self._store.commit(verbs)

    def recover(self) -> None:
        if self.fault is not None:
            raise StoreUnavailable("still failing")
        self._store.recover()

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.parametrize(
    "fault",
    [
        StoreUnavailable("the disk is full"),
        CommitUnknown("lost"),
        StoreBroken("corrupt"),
        sqlite3.OperationalError("odd"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_store_that_fails_in_the_middle_is_told_to_who_waits_and_the_run_is_resumable(world, fault):
    failing = Failing(world.open())
    app = App(failing, clock=world.clock, store_patience=0.02, close_timeout=1.0)

    async def main(app) -> None:
        run = await app.start(report(), id="run")
        await asyncio.sleep(10)
        failing.fault = fault
        with pytest.raises((StoreUnavailable, StoreBroken)):
            await run.result(timeout=1e5)
        assert done == ["a 1", "slow 1"]

    app.do(main)
    failing.fault = None
    row = failing.run("run")
    assert row.status in ("running", "queued")
    done.clear()
    world.clock.advance(1000)
    assert App(failing, clock=world.clock).run(report(), id="run") == ["a", "slow"]
    assert done == ["slow 1"]
    if world.folder is not None or world._app is None:
        failing.close()


def test_a_store_that_fails_for_a_moment_is_not_noticed(world):
    failing = Failing(world.open())
    app = App(failing, clock=world.clock, store_patience=20)
    failures = []
    commit = failing.commit

    def sometimes(verbs):
        if len(failures) < 3 and any(isinstance(verb, Record) for verb in verbs):
            failures.append(1)
            raise StoreUnavailable("locked")
        return commit(verbs)

    failing.commit = sometimes
    assert app.run(report(), id="run") == ["a", "slow"]
    assert len(failures) == 3
    failing.close()


# -- in real time, with threads


def test_closing_and_starting_again_in_real_time(tmp_path):
    @workflow
    async def waits() -> str:
        return await receive("word", str)

    store = f"sqlite:///{tmp_path}/real.db"

    async def main() -> str:
        async with Outlast(store, heartbeat=0.05) as first:
            await first.start(waits(), id="run")
        async with Outlast(store, heartbeat=0.05) as first, Outlast(store, heartbeat=0.05) as second:
            run = await first.start(waits(), id="run")
            joined = await second.start(waits(), id="run")
            await second.send("run", "word", "hello")
            results = await asyncio.gather(run.result(timeout=20), joined.result(timeout=20))
            assert len(set(results)) == 1
            return results[0]

    assert asyncio.run(main()) == "hello"


def test_fifty_runs_in_real_time_each_end_once(address):
    @workflow
    async def many(n: int) -> list[str]:
        return await asyncio.gather(*[work(f"{n}-{m}") for m in range(5)])

    async def main() -> None:
        async with Outlast(address) as app:
            runs = [await app.start(many(n), id=f"r{n}") for n in range(50)]
            results = await asyncio.gather(*[run.result(timeout=60) for run in runs])
            assert results == [[f"{n}-{m}" for m in range(5)] for n in range(50)]

    asyncio.run(main())
    assert len(done) == 250
