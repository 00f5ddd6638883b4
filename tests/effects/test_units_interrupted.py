"""Units that are cancelled, sync units, and rollbacks that outlive a process."""

import asyncio

import pytest
from outside import book, outside, say, sput, work
from units_tools import ends_alike, order

from outlast import KEY, OutlastError, RunCancelled, RunParked, effect, sleep, workflow
from outlast import sync as s
from outlast.api.unit import unit

LONG = 1e5


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


# -- leaving by cancellation


@workflow
async def in_time(seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            async with unit("order"):
                await book("a")
                await book("b")
                await sleep(LONG)
    except TimeoutError:
        await work("after")
        return "timed out"
    return ""


@pytest.mark.parametrize(
    ("seconds", "log"),
    [(0.0, ["after"]), (60.0, ["+a", "+b", "-b", "-a", "after"])],
    ids=["at once", "in between"],
)
def test_timeout_around_a_unit_undoes_it(world, seconds, log):
    ends_alike(world, in_time(seconds), "timed out")
    assert outside.log == log


def test_timeout_does_not_cut_a_rollback(world):
    @workflow
    async def one() -> str:
        try:
            async with asyncio.timeout(6.0):
                async with unit("order"):
                    await book("a")
                    await book("b")
                    raise ValueError
        except TimeoutError:
            return "timed out"
        except ValueError:
            return "value"
        return ""

    ends_alike(world, one(), "timed out")
    assert outside.log == ["+a", "+b", "-b", "-a"]


def test_repeated_cancellation_does_not_cut_a_rollback(world):
    async def inner() -> None:
        async with unit("order"):
            await book("a")
            await book("b")
            await sleep(LONG)

    @workflow
    async def one() -> str:
        task = asyncio.create_task(inner())
        await sleep(10)
        for _ in range(3):
            task.cancel()
            await sleep(0.5)
        with pytest.raises(asyncio.CancelledError):
            await task
        return "cancelled"

    ends_alike(world, one(), "cancelled")
    assert outside.log == ["+a", "+b", "-b", "-a"]


def test_cancelled_run_undoes_its_unit_once(world):
    @workflow
    async def one() -> None:
        await book("before")
        async with unit("order"):
            await book("a")
            await sleep(LONG)

    async def main(app):
        run = await app.start(one(), id="run")
        await asyncio.sleep(30)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=LONG)

    world.do(main)
    assert outside.log == ["+before", "+a", "-a", "-before"]
    kinds = world.kinds()
    assert kinds.index("undoing") < world.keys().index("undo:book#2")


def test_run_that_is_cancelled_in_the_middle_of_a_rollback_is_undone_to_the_end(world):
    async def main(app):
        run = await app.start(order(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=LONG)

    world.do(main)
    assert outside.undone == ["-c", "-b", "-a", "-before"]


# -- in a sync workflow


@s.workflow
def sync_order(then: str = "fail") -> str:
    sput("before")
    try:
        with s.unit("order"):
            sput("a")
            sput("b")
            if then == "fail":
                raise ValueError("no")
    except ValueError:
        sput("after")
        return "rolled back"
    if then == "late":
        raise LookupError
    return "committed"


def test_sync_unit_rolls_back(world):
    ends_alike(world, sync_order(), "rolled back")
    assert outside.log == ["+before", "+a", "+b", "-b", "-a", "+after"]


def test_sync_unit_commits(world):
    ends_alike(world, sync_order("return"), "committed")
    assert outside.undone == []
    outside.clear()
    with pytest.raises(LookupError):
        world.run(sync_order("late"), id="other")
    assert outside.undone == ["-b", "-a", "-before"]


# -- what may be in it


def test_plain_with_in_an_async_workflow_is_refused_at_the_effects_call(world):
    @workflow
    async def one() -> str:
        with unit("order"):
            await work("a step is welcome")
            with pytest.raises(OutlastError, match="async with"):
                book("a")
        return "ok"

    ends_alike(world, one(), "ok")
    assert outside.log == ["a step is welcome"]


def test_effect_without_a_compensation_is_refused_before_anything_is_done(world):
    @effect(timeout=5)
    async def blunt() -> None:
        outside.log.append("+blunt")

    @workflow
    async def one() -> str:
        async with unit("order"):
            with pytest.raises(OutlastError, match="has no compensation"):
                blunt()
        await blunt()
        return "ok"

    ends_alike(world, one(), "ok")
    assert outside.log == ["+blunt"]


def test_effect_with_undo_none_is_allowed_in_a_unit(world):
    @workflow
    async def one() -> str:
        try:
            async with unit("order"):
                await say("hello")
                await book("a")
                raise ValueError
        except ValueError:
            return "rolled back"
        return ""

    ends_alike(world, one(), "rolled back")
    assert outside.log == ["+hello", "+a", "-a"]


# -- a rollback that does not end in one life


@pytest.mark.parametrize("reached", ["step", "+c", "-c", "-b", "-a", "after"])
def test_rollback_continues_in_the_next_process(world, reached):
    world.die(order(), until=lambda: reached in outside.log)
    ends_alike(world, order(), "rolled back: no")
    expected = ["+before", "+a", "+b", "step", "+c", "-c", "-b", "-a", "after"]
    if reached in ("step", "after"):  # a step in progress is repeated
        expected.insert(expected.index(reached), reached)
    assert [one for one in outside.log if one[0] != "?"] == expected


def test_rollback_survives_repeated_deaths(world):
    for reached in ("+b", "+c", "-c", "-b"):
        world.die(order(), until=lambda: reached in outside.log)
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+before", "+a", "+b", "+c"]


def test_drain_waits_for_a_rollback(world):
    async def main(app):
        await app.start(order(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)
        report = await app.drain("test")
        return report.left

    assert world.do(main) == []
    assert outside.undone == ["-c", "-b", "-a"]
    assert "after" not in outside.log
    world.restart()
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]


def test_short_drain_leaves_the_rollback_to_the_next_process(world):
    async def main(app):
        await app.start(order(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)
        await app.drain("test", grace=1.0)

    world.do(main)
    assert outside.undone == ["-c"]
    world.restart()
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]


def test_closing_leaves_the_rollback_to_the_next_process(world):
    async def main(app):
        await app.start(order(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)

    world.do(main)
    world.restart()
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]


def test_sync_rollback_continues_after_a_death(world):
    tries = []

    @effect(timeout=5, idempotent=True)
    def lend(what: str) -> str:
        outside.log.append(f"+{what}")
        return what

    @lend.compensate(backoff=10)
    def give_back(what: str, key: str = KEY) -> None:
        tries.append(key)
        if what == "a" and len(tries) < 3:
            raise ConnectionError
        outside.log.append(f"-{what}")

    @s.workflow
    def one() -> str:
        try:
            with s.unit("order"):
                lend("a")
                lend("b")
                raise ValueError
        except ValueError:
            return "rolled back"

    world.die(one(), until=lambda: len(tries) == 2)
    ends_alike(world, one(), "rolled back")
    assert outside.log == ["+a", "+b", "-b", "-a"]


# -- stuck


def stuck(world, call) -> str:
    with pytest.raises(RunParked) as caught:
        world.run(call)
    return caught.value.reason


@pytest.mark.parametrize("how", ["resume", "decide"])
def test_failed_compensation_in_a_unit_parks_the_run(world, how):
    outside.broken.add("-b")
    reason = stuck(world, order())
    assert reason.startswith("stuck: undo:put#1")
    assert "`outlast resume run`" in reason
    assert (world.row().undoing, outside.undone) == (None, ["-c"])
    world.restart()
    if how == "resume":
        outside.broken.clear()
        world.do(lambda app: app.resume("run"))
    else:

        async def by_hand(app):
            intents = [
                one
                for one in await app.journal("run")
                if (one.kind, one.key) == ("intent", "undo:put#1")
            ]
            await app.decide("run", "undo:put#1", happened=None, intent=intents[-1].seq)

        world.do(by_hand)
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", *["-b"] * (how == "resume"), "-a"]


def test_run_that_is_stuck_in_a_unit_and_cancelled_is_undone_from_there(world):
    outside.broken.add("-b")
    stuck(world, order())
    outside.broken.clear()
    assert world.do(lambda app: app.cancel("run", "enough")) == "queued"
    with pytest.raises(RunCancelled, match="enough"):
        world.run(order())
    assert outside.undone == ["-c", "-b", "-a", "-before"]
