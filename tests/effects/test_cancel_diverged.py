"""A run that cannot be replayed can still be cancelled: its compensations are in the journal, and need no replay."""

import asyncio
import os
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import count

import pytest
from outside import book, outside, put, work
from teller import bank, hold, pay

from outlast import RunCancelled, RunParked, sleep, workflow
from outlast.store.commands import Cancel, Settle
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import crash_everywhere
from outlast.testing.store_images import empty_file
from support.crash_points import crash_at_some

LONG = "OUTLAST_TEST_KILLS" in os.environ
LATER = 1e5


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


def version(body):
    return workflow(name="changing")(body)


async def before() -> None:
    await book("a")
    await put("b")
    await sleep(LATER)


async def changed() -> None:
    await put("b")
    await sleep(LATER)


async def harmless() -> None:
    await work("a")
    await sleep(LATER)


def diverged(world, body=before) -> None:
    """A run whose code was changed: it is parked."""
    world.die(version(body)(), after=50)
    with pytest.raises(RunParked):
        world.run(version(changed)())


def test_diverged_run_can_be_resumed_and_cancelled(world):
    diverged(world)

    async def main(app):
        await app.resume("run")
        assert await app.cancel("run", "give it up") == "queued"
        run = await app.start(version(changed)(), id="run")
        with pytest.raises(RunCancelled, match="give it up"):
            await run.result(timeout=LATER)

    world.do(main)
    row = world.row()
    assert (row.status, row.reason, row.undoing) == ("cancelled", "give it up", None)
    assert outside.log == ["+a", "+b", "-b", "-a"]


def test_diverged_run_with_nothing_to_undo_ends_as_cancelled(world):
    diverged(world, harmless)

    async def main(app):
        await app.resume("run")
        await app.cancel("run", "give it up")
        run = await app.start(version(changed)(), id="run")
        with pytest.raises(RunCancelled, match="give it up"):
            await run.result(timeout=LATER)

    world.do(main)
    assert (world.row().status, world.row().reason) == ("cancelled", "give it up")
    assert "undoing" not in world.kinds()


def test_run_that_diverges_while_being_cancelled_is_not_parked(world):
    """It was claimed before the request came, and learns of it when it would park."""
    world.die(version(before)(), after=50)
    store, asked = world.store, []
    commit = store.commit

    def cancel_first(commands):
        if not asked and any(isinstance(command, Settle) for command in commands):
            asked.append(commit([Cancel("run", "give it up")]))
        return commit(commands)

    store.commit = cancel_first
    with pytest.raises(RunCancelled, match="give it up"):
        world.run(version(changed)())
    assert asked == [["running"]]
    assert outside.log == ["+a", "+b", "-b", "-a"]


def test_retry_with_the_old_code_continues_a_cancelled_run(world):
    diverged(world, harmless)

    async def give_up(app):
        await app.resume("run")
        await app.cancel("run", "give it up")
        run = await app.start(version(changed)(), id="run")
        with pytest.raises(RunCancelled):
            await run.result(timeout=LATER)

    world.do(give_up)
    world.restart()
    world.do(lambda app: app.retry("run"))
    assert world.run(version(harmless)()) is None
    assert outside.log == ["a"]


# -- crashes


async def paid() -> None:
    await pay("a")
    await hold("b")
    await asyncio.gather(child_of("c"), sleep(LATER))


async def changed_since() -> None:
    await hold("b")


@workflow(name="child of changing")
async def child_of(who: str) -> None:
    await pay(who)
    await sleep(LATER)


@pytest.mark.parametrize("every_life", [False, True] if LONG else [False])
def test_crash_during_cancellation_undoes_each_effect_once(file_world, tmp_path, every_life):
    bank.__init__()
    file_world.settings = {
        "max_attempts": 1_000
    }  # it is no fault of the run's that it dies so often
    file_world.die(version(paid)(), id="crash", after=5)
    with pytest.raises(RunParked):
        file_world.run(version(changed_since)(), id="crash")
    file_world.do(lambda app: app.resume("crash"))
    file_world.do(lambda app: app.cancel("crash", "give it up"))
    file_world.close()
    done, places = list(bank.log), count()
    assert bank.order == ["+a", "+b", "+c"]

    def place():
        path = empty_file(tmp_path / f"story-{next(places)}.db")
        with (
            closing(sqlite3.connect(tmp_path / "world.db")) as prepared,
            closing(sqlite3.connect(path)) as copy,
        ):
            prepared.backup(copy)
        return lambda clock: SQLiteStore(path, clock=clock, heartbeat=0.001)

    def fresh():
        bank.log[:] = done

    def check():
        assert Counter(bank.order) == Counter(["+a", "+b", "+c", "-a", "-b", "-c"]), bank.log
        assert bank.order[3:] == ["-c", "-b", "-a"], bank.log

    options = {"store": place, "fresh": fresh, "check": check, "every_life": every_life}
    call = version(changed_since)()
    if LONG and not every_life:
        report = crash_everywhere(call, **options)
    else:
        report = crash_at_some(call, every=7 + every_life, every_act=2, **options)
    assert report.error is not None and "was cancelled: give it up" in report.error
    assert report.crashes > 5
