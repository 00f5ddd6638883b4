"""A run that fails ends only when what its children did is undone."""

import asyncio

import pytest
from breaking_step import HOUR, LONG, breaks, broken
from outside import fail, outside, put, work

from outlast import (
    KEY,
    RunCancelled,
    RunDead,
    RunParked,
    StoreUnavailable,
    effect,
    sleep,
    workflow,
)
from outlast.testing.crash_points import Crash
from support.crash_points import crash_at_some


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


@effect(timeout=10, idempotent=True)
async def reserve(what: str, key: str = KEY) -> str:
    await asyncio.sleep(0.1)
    outside.apply(f"+{what}", key)
    return f"reserved {what}"


@reserve.compensate(retries=2)
async def give_up(it: str, what: str, key: str = KEY) -> None:
    await asyncio.sleep(0.1)
    outside.apply(f"-{what}", key)


@workflow
async def child(seconds: float = 30.0) -> str:
    said = await reserve("flight")
    await asyncio.sleep(seconds)
    await reserve("seat")
    return said


@workflow
async def family(*, own: bool) -> list[str]:
    """It fails beside a child that has done something, and goes on."""
    if own:
        await reserve("hotel")
    return await asyncio.gather(child(), breaks())


owns = pytest.mark.parametrize("own", [True, False], ids=["with effects of its own", "without"])


def statuses(world) -> dict[str, str]:
    infos = world.do(lambda app: app.runs())
    return {info.id: "undoing" if info.undoing else info.status for info in infos}


def fails(world, call) -> None:
    """Verify in an hour: a run that only waits has not ended by then."""

    async def main(app):
        with pytest.raises(ValueError, match="no"):
            await (await app.start(call, id="run")).result(timeout=HOUR)

    world.do(main)


def dies_once_written(world, call, written) -> None:
    """The plug is pulled right after the commit from which on `written()` is true."""
    store = world.store
    really = store.commit

    def commit(commands):
        outcomes = really(commands)
        if written():
            raise Crash
        return outcomes

    store.commit = store.try_commit = commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world), "_pull", _pull_and(world, store, type(world)._pull))
        world.die(call, after=LONG)


def _pull_and(world, store, pull):
    def both(_):
        del store.commit, store.try_commit
        pull(world)

    return both


# -- a parent fails: what of its children


def test_parent_does_not_end_while_its_children_are_unreadable(world):
    @workflow
    async def plain() -> None:
        await child(0.0)
        await fail()

    store, asked = world.store, []
    really = store.may_need_compensation

    def once_not(id):
        asked.append(id)
        if len(asked) == 1:
            raise StoreUnavailable("not now")
        return really(id)

    store.may_need_compensation = once_not
    with pytest.raises(StoreUnavailable):
        world.run(plain())
    assert world.status() == "queued"
    fails(world, plain())
    assert outside.undone == ["-seat", "-flight"]
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}


@owns
def test_failed_run_ends_only_when_its_child_is_undone(world, own):
    broken.append("breaks")
    fails(world, family(own=own))
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []
    assert "+seat" not in outside.log


@owns
def test_child_of_a_failing_run_is_not_completed_after_a_death(world, own):
    """The next life fails in replay, before it has come to its child."""
    broken.append("breaks")
    failed = [False]

    def written() -> bool:
        row = world._app.store.run("run")
        entries = world._app.store.journal(row.pk) if row is not None else []
        failed[0] = failed[0] or any(entry.kind == "step" and entry.error for entry in entries)
        return failed[0]

    dies_once_written(world, family(own=own), written)
    assert failed == [True]
    assert world.status() == "running"
    world.restart(1.0, worker=True, workflows=[family, child], poll=1.0)

    async def main(app):
        with pytest.raises(ValueError, match="no"):
            await (await app.start(family(own=own), id="run")).result(timeout=HOUR)
        left = list(outside.left)
        await asyncio.sleep(300)  # a worker takes whatever there is
        return left

    assert world.do(main) == []
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []
    assert "+seat" not in outside.log


def test_dead_letter_child_is_undone_with_its_parent(world):
    @workflow
    async def deadly() -> None:
        await put("flight")
        await work("dies", LONG)

    @workflow
    async def plain() -> None:
        await put("hotel")
        await deadly()

    world.restart(max_attempts=1)
    world.die(plain(), until=lambda: "dies" in outside.log)
    assert world.row("run/deadly#1").attempts_max == 1
    world.die(plain(), until=lambda: outside.log.count("dies") == 2, gap=HOUR)

    async def main(app):
        with pytest.raises(RunDead):
            await (await app.start(plain(), id="run")).result(timeout=HOUR)

    world.do(main)
    assert outside.undone == ["-flight", "-hotel"]
    assert statuses(world) == {"run": "failed", "run/deadly#1": "cancelled"}


def test_dead_letter_is_not_pruned_before_it_is_undone(world):
    @workflow
    async def deadly() -> None:
        await put("flight")
        await work("dies", LONG)

    world.restart(max_attempts=1)
    world.die(deadly(), until=lambda: "dies" in outside.log)
    world.die(deadly(), until=lambda: outside.log.count("dies") == 2, gap=HOUR)
    with pytest.raises(RunDead):
        world.run(deadly())
    world.clock.advance(LONG)
    assert world.do(lambda app: app.prune(HOUR)) == 0
    world.do(lambda app: app.cancel("run", "given up"))
    with pytest.raises(RunCancelled):
        world.run(deadly())
    assert outside.undone == ["-flight"]
    world.clock.advance(LONG)
    assert world.do(lambda app: app.prune(HOUR)) == 1


def test_grandchild_is_not_pruned_while_it_may_need_undoing(world):
    @workflow
    async def grandchild() -> None:
        await put("flight")

    @workflow
    async def middle() -> None:
        await grandchild()

    @workflow
    async def long() -> None:
        await middle()
        await sleep(LONG)
        await breaks()

    broken.append("breaks")

    async def main(app):
        run = await app.start(long(), id="run")
        await asyncio.sleep(LONG / 2)
        assert await app.prune(HOUR) == 0
        with pytest.raises(ValueError, match="no"):
            await run.result()

    world.do(main)
    assert outside.undone == ["-flight"]


@owns
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_restarted_program_undoes_a_child_that_no_worker_claims(world, writes, own):
    """It is no worker, and in that life it has not come to where it calls the child: it does not know its code."""
    broken.append("breaks")
    after: list[bool] = []

    def written() -> bool:
        row = world._app.store.run("run")
        if row is not None and row.undoing is not None:
            after.append(True)
        return len(after) > writes

    dies_once_written(world, family(own=own), written)
    assert world.row().undoing is not None
    world.restart(1.0)
    fails(world, family(own=own))
    assert statuses(world) == {"run": "failed", "run/child#1": "cancelled"}
    assert outside.left == []


@owns
def test_crash_of_a_failing_parent_leaves_nothing_behind(own):
    def look() -> None:
        assert outside.left == [], outside.log

    def fresh() -> None:
        outside.clear()
        broken.append("breaks")

    report = crash_at_some(family(own=own), every=5, fresh=fresh, check=look)
    assert report.error == "ValueError: no"
    assert report.crashes > 10


@owns
def test_retry_repeats_a_child_that_was_undone(world, own):
    broken.append("breaks")
    fails(world, family(own=own))
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert world.run(family(own=own)) == ["reserved flight", "fixed"]
    assert outside.left == ["hotel", "flight", "seat"][not own :]
    assert statuses(world) == {"run": "done", "run/child#1": "done"}
    assert world.replays(family(own=own)) == ["reserved flight", "fixed"]


def test_parent_writes_nothing_while_its_child_is_undone(world):
    @effect(timeout=1000, idempotent=True)
    async def lend() -> None:
        """Slow to take back."""

    @lend.compensate
    async def take_back(it: None) -> None:
        await asyncio.sleep(20)

    @workflow
    async def lends() -> None:
        await lend()

    @workflow
    async def plain() -> None:
        await lends()
        await fail()

    written: list[str] = []
    store, really = world.store, world.store.commit

    def commit(commands):
        written.extend(type(command).__name__ for command in commands)
        return really(commands)

    store.commit = commit
    store.try_commit = lambda commands: None  # then it is committed as any other
    fails(world, plain())
    assert written.count("UndoChild") <= 3
    assert written.count("Cancel") <= 3


def test_reason_of_a_stuck_parent_names_only_commands_that_help(world):
    @workflow
    async def plain() -> None:
        await child(0.0)
        await fail()

    outside.broken.add("-flight")
    with pytest.raises(RunParked) as caught:
        world.run(plain())
    reason = caught.value.reason
    assert "outlast decide" not in reason, "there is no effect of its own to decide on"
    assert "`outlast retry 'run/child#1'`" in reason
    assert "`outlast retry run`" in reason
    outside.broken.clear()

    async def as_told(app):
        await app.retry("run/child#1")
        await app.retry("run")

    world.do(as_told)
    fails(world, plain())
    assert outside.left == []
