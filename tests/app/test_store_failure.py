"""A store that fails in the middle of a run: who waits is told, and the run is resumable."""

import asyncio
import sqlite3

import pytest

from outlast import StoreBroken, StoreUnavailable, current, step, workflow
from outlast.store.protocol import CommitUnknown
from outlast.store.verbs import Record
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
