"""A store that fails during a run: waiters get an error, the run is resumable."""

import asyncio
import sqlite3

import pytest

from outlast import Outlast, StoreBroken, StoreUnavailable, current, step, workflow
from outlast.engine.direct_claim import HeldElsewhereNotice
from outlast.store.commands import Record, RegisterWorker, Submit
from outlast.store.protocol import CommitUnknown
from outlast.store.rows import RunRow
from outlast.testing import App
from support.waiting import wait_until_async

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


class Failing:
    """The real store, which fails while `fault` is set. No mock: what it does not refuse, it does."""

    def __init__(self, store) -> None:
        self._store = store
        self.fault: Exception | None = None

    def commit(self, commands):
        if self.fault is not None:
            raise self.fault
        return self._store.commit(commands)

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
def test_store_failure_reaches_the_waiter_and_the_run_is_resumable(world, fault):
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


def test_short_store_failure_is_not_noticed(world):
    failing = Failing(world.open())
    app = App(failing, clock=world.clock, store_patience=20)
    failures = []
    commit = failing.commit

    def sometimes(commands):
        if len(failures) < 3 and any(isinstance(command, Record) for command in commands):
            failures.append(1)
            raise StoreUnavailable("locked")
        return commit(commands)

    failing.commit = sometimes
    assert app.run(report(), id="run") == ["a", "slow"]
    assert len(failures) == 3
    failing.close()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StoreUnavailable("away"), "Could not look for dead workers"),
        (TypeError("damaged"), "Failed to look for dead workers"),
    ],
)
def test_long_store_failure_is_logged_at_growing_intervals(world, caplog, error, line):
    failing = Failing(world.open())

    def away():
        raise error

    async def main(app) -> None:
        failing.dead_workers = away
        await asyncio.sleep(100)
        del failing.dead_workers

    App(failing, clock=world.clock, worker=True, workflows=[report]).do(main)
    said = [record for record in caplog.records if line in record.getMessage()]
    assert 3 <= len(said) <= 8
    failing.close()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), TypeError("damaged")])
def test_run_is_claimed_although_the_sweep_keeps_failing(world, caplog, error):
    other = world.open()
    other.acquire_liveness("other")
    other.commit([RegisterWorker("other", "host", 1, 5.0)])
    other.commit([Submit("run", report.name, "{}", "t", "00" * 16, worker="other")])
    failing = Failing(other)

    def away():
        raise error

    async def main(app) -> list[str]:
        failing.dead_workers = away
        run = await app.start(report(), id="run")
        await asyncio.sleep(30)
        del failing.dead_workers
        other.release_liveness("other")
        return await run.result()

    assert App(failing, clock=world.clock).do(main) == ["a", "slow"]
    said = [record for record in caplog.records if "take over run" in record.getMessage()]
    assert 2 <= len(said) <= 6
    failing.close()


def test_waiting_for_a_run_of_another_process_is_logged_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("outlast.engine.direct_claim.NOTICE_AFTER_SECONDS", 0.05)
    looks, log_if_late = [], HeldElsewhereNotice.log_if_late

    def looked(notice: HeldElsewhereNotice, row: RunRow) -> None:
        log_if_late(notice, row)
        looks.append(row)

    monkeypatch.setattr(HeldElsewhereNotice, "log_if_late", looked)

    def said() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        return [message for message in messages if "is held by worker" in message]

    async def main() -> None:
        store = f"sqlite:///{tmp_path}/o.db"
        async with Outlast(store, poll=0.05) as first, Outlast(store, poll=0.05) as second:
            await first.start(report(), id="run")
            await second.start(report(), id="run")
            await wait_until_async(said)
            before = len(looks)
            await wait_until_async(lambda: len(looks) > before + 5)

    asyncio.run(main())
    (message,) = said()
    assert message.startswith("Run run is held by worker ")
