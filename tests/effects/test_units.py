"""A unit that an exception leaves undoes what was done in it, newest first, and the workflow goes on."""

import asyncio

import pytest
from outside import Refused, book, fail, outside, put, say, sput, work

from outlast import KEY, OutlastError, RunCancelled, RunParked, compensate_with, effect, sleep, workflow
from outlast import sync as s
from outlast.define.unit import unit

LONG = 1e5


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


def ends_alike(world, call, expected):
    """It ends like this, undisturbed; and its finished journal replays to the same end."""
    assert world.run(call.again()) == expected
    log = list(outside.log)
    assert world.replays(call.again()) == expected
    assert outside.log == log


# -- rolling back


@workflow
async def order(then: str = "fail") -> str:
    await book("before")
    try:
        async with unit("order"):
            await book("a")
            await put("b")
            await work("step")
            await book("c")
            if then == "fail":
                await fail()
            if then == "raise":
                raise ValueError("own")
    except ValueError as error:
        await work("after")
        return f"rolled back: {error}"
    if then == "late":
        await fail("late")
    return "committed"


@pytest.mark.parametrize(("then", "why"), [("fail", "no"), ("raise", "own")])
def test_an_exception_undoes_what_was_done_in_it_and_the_workflow_goes_on(world, then, why):
    ends_alike(world, order(then), f"rolled back: {why}")
    assert outside.log == ["+before", "+a", "+b", "step", "+c", "-c", "-b", "-a", "after"]
    assert world.status() == "done"


def test_a_unit_that_ends_well_is_not_undone(world):
    ends_alike(world, order("return"), "committed")
    assert outside.undone == []


def test_what_a_unit_has_committed_is_undone_with_the_run(world):
    with pytest.raises(ValueError, match="late"):
        world.run(order("late"))
    assert outside.undone == ["-c", "-b", "-a", "-before"]


def test_what_a_unit_has_undone_is_not_undone_again_with_the_run(world):
    @workflow
    async def one() -> None:
        await book("before")
        try:
            async with unit("order"):
                await book("a")
                raise LookupError
        except LookupError:
            await book("b")
        await fail()

    with pytest.raises(ValueError):
        world.run(one())
    assert outside.log == ["+before", "+a", "-a", "+b", "-b", "-before"]


def test_the_exception_that_leaves_it_is_the_one_that_was_raised(world):
    @workflow
    async def one() -> None:
        async with unit("order"):
            await book("a")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        world.run(one())
    assert outside.log == ["+a", "-a"]


def test_the_compensation_in_a_unit_has_result_arguments_and_keys(world):
    ends_alike(world, order(), "rolled back: no")
    (ticket, effect_key, own_key), _ = outside.told
    assert (ticket, effect_key) == ("ticket c", outside.keys["+c"][0])
    assert own_key != effect_key


def test_a_unit_that_is_entered_again_and_again_does_its_effects_under_new_keys(world):
    @workflow
    async def tries() -> int:
        for number in range(3):
            try:
                async with unit("try"):
                    await book("a")
                    if number < 2:
                        raise ValueError
            except ValueError:
                continue
        return number

    ends_alike(world, tries(), 2)
    assert outside.log == ["+a", "-a", "+a", "-a", "+a"]
    assert len(set(outside.keys["+a"])) == 3


def test_what_did_not_happen_in_it_is_not_compensated(world):
    @workflow
    async def one() -> str:
        try:
            async with unit("order"):
                await book("a")
                await book("refused")
        except Refused:
            return "refused"
        return ""

    ends_alike(world, one(), "refused")
    assert outside.log == ["+a", "-a"]


# -- nested


@workflow
async def nested(inner: str, outer: str) -> list[str]:
    seen = []
    try:
        async with unit("outer"):
            await book("a")
            try:
                async with unit("inner"):
                    await book("b")
                    if inner:
                        raise LookupError(inner)
            except LookupError:
                seen.append("inner")
            await book("c")
            if outer:
                raise ValueError(outer)
    except ValueError:
        seen.append("outer")
    return seen


@pytest.mark.parametrize(
    ("inner", "outer", "seen", "log"),
    [
        ("", "", [], ["+a", "+b", "+c"]),
        ("x", "", ["inner"], ["+a", "+b", "-b", "+c"]),
        ("", "x", ["outer"], ["+a", "+b", "+c", "-c", "-b", "-a"]),
        ("x", "x", ["inner", "outer"], ["+a", "+b", "-b", "+c", "-c", "-a"]),
    ],
    ids=["neither", "the inner one", "the outer one", "both"],
)
def test_what_an_inner_unit_committed_is_undone_with_the_outer_one_and_nothing_twice(
    world, inner, outer, seen, log
):
    ends_alike(world, nested(inner, outer), seen)
    assert outside.log == log


def test_the_units_around_an_effect_and_a_registered_compensation_are_on_record(world):
    @workflow
    async def one() -> None:
        await book("a")
        async with unit("outer"):
            await book("b")
            async with unit("inner"):
                await book("c")
                await compensate_with(say, "d")

    world.run(one())
    effects = world.do(lambda app: app.effects("run"))
    assert [effect.units for effect in effects] == [(), ("outer",), ("outer", "inner"), ("outer", "inner")]


def test_an_exception_that_leaves_both_undoes_the_inner_one_first(world):
    @workflow
    async def one() -> str:
        try:
            async with unit("outer"):
                await book("a")
                async with unit("inner"):
                    await book("b")
                    raise ValueError
        except ValueError:
            return "both"
        return ""

    ends_alike(world, one(), "both")
    assert outside.log == ["+a", "+b", "-b", "-a"]


@workflow
async def errand(what: str) -> None:
    await book(what)


@workflow
async def with_a_child(then: str) -> str:
    try:
        async with unit("order"):
            await book("own")
            await errand("the child's")
            raise LookupError
    except LookupError:
        if then == "fail":
            await fail()
    return "rolled back"


def test_what_a_child_has_done_stays_when_its_unit_is_rolled_back_and_is_undone_with_the_run(world):
    assert world.run(with_a_child("go on")) == "rolled back"
    assert outside.log == ["+own", "+the child's", "-own"]
    outside.clear()
    with pytest.raises(ValueError, match="no"):
        world.run(with_a_child("fail"), id="other")
    assert outside.log == ["+own", "+the child's", "-own", "-the child's"]


# -- several at once


async def failing(after: float) -> None:
    await asyncio.sleep(after)
    await fail()


@workflow
async def gathers(*, slow: float, after: float) -> str:
    try:
        async with unit("all"):
            await book("a")
            await asyncio.gather(book("b", slow), put("c", 1.0), failing(after))
    except ValueError:
        await work("after")
        return "rolled back"
    return ""


def test_what_still_acts_ends_first_and_is_undone(world):
    ends_alike(world, gathers(slow=8.0, after=3.0), "rolled back")
    assert outside.log == ["+a", "+c", "+b", "-c", "-b", "-a", "after"]


def test_what_has_not_acted_yet_does_not_any_more(world):
    """It waits for its next attempt: that is not made."""
    tries = []

    @effect(timeout=10, retries=5, backoff=1000, backoff_max=1000, failed_on=Refused)
    async def flaky() -> None:
        tries.append(world.clock())
        raise Refused

    @flaky.compensate
    async def unflaky(_: None) -> None:
        outside.log.append("-flaky")

    @workflow
    async def one() -> str:
        try:
            async with unit("all"):
                await asyncio.gather(book("a"), flaky(), failing(3.0))
        except ValueError:
            return "rolled back"
        return ""

    before = world.clock()
    ends_alike(world, one(), "rolled back")
    assert (outside.log, len(tries)) == (["+a", "-a"], 1)
    assert world.clock() - before < 100, "nobody waits for an attempt that is not made"


@pytest.mark.parametrize("happened", [True, False])
def test_what_nobody_can_tell_yet_is_verified_first(world, happened):
    (outside.lost if happened else outside.broken).add("+b")
    ends_alike(world, gathers(slow=1.0, after=3.0), "rolled back")
    assert outside.log == ["+a", *["+b"] * happened, "+c", "?b", "-c", *["-b"] * happened, "-a", "after"]


def test_what_was_called_and_never_awaited_is_not_done(world):
    @workflow
    async def one() -> str:
        coro = task = None
        try:
            async with unit("all"):
                await book("a")
                coro = book("b")
                task = asyncio.create_task(book("c"))
                raise ValueError
        except ValueError:
            coro.close()
            with pytest.raises(asyncio.CancelledError):
                await task
            return "rolled back"
        return ""

    ends_alike(world, one(), "rolled back")
    assert outside.log == ["+a", "-a"]


def test_a_task_group_in_it_is_undone_as_a_whole(world):
    @workflow
    async def one() -> str:
        try:
            async with unit("all"), asyncio.TaskGroup() as group:
                group.create_task(book("a", 1.0))
                group.create_task(book("b", 6.0))
                group.create_task(failing(3.0))
        except* ValueError:
            pass
        return "rolled back"

    ends_alike(world, one(), "rolled back")
    assert outside.done == ["+a", "+b"], "what acts is not cut"
    assert outside.left == []


def test_a_task_that_goes_on_in_a_left_unit_is_refused_its_next_effect(world):
    async def two() -> str:
        await book("a", 5.0)
        with pytest.raises(OutlastError, match="which was left"):
            book("b")
        return "refused"

    @workflow
    async def one() -> str:
        try:
            async with unit("all"):
                task = asyncio.create_task(two())
                await failing(1.0)
        except ValueError:
            pass
        return await task

    ends_alike(world, one(), "refused")
    assert outside.log == ["+a", "-a"]


def test_a_task_that_outlives_a_committed_unit_is_refused_too(world):
    async def late() -> str:
        await sleep(10)
        try:
            await book("b")
        except OutlastError as error:
            return str(error)
        return ""

    @workflow
    async def one() -> str:
        async with unit("all"):
            await book("a")
            task = asyncio.create_task(late())
        return await task

    assert "which was left" in world.run(one())
    assert outside.log == ["+a"]


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
def test_a_timeout_around_it_undoes_it(world, seconds, log):
    ends_alike(world, in_time(seconds), "timed out")
    assert outside.log == log


def test_a_timeout_that_runs_out_in_the_rollback_does_not_cut_it(world):
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


def test_a_task_that_is_cancelled_again_and_again_in_its_rollback_is_rolled_back(world):
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


def test_a_cancelled_run_is_undone_once_by_the_run_not_by_the_unit(world):
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


def test_a_run_that_is_cancelled_in_the_middle_of_a_rollback_is_undone_to_the_end(world):
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


def test_in_a_sync_workflow_it_is_a_plain_with(world):
    ends_alike(world, sync_order(), "rolled back")
    assert outside.log == ["+before", "+a", "+b", "-b", "-a", "+after"]


def test_in_a_sync_workflow_it_commits_too(world):
    ends_alike(world, sync_order("return"), "committed")
    assert outside.undone == []
    outside.clear()
    with pytest.raises(LookupError):
        world.run(sync_order("late"), id="other")
    assert outside.undone == ["-b", "-a", "-before"]


# -- what may be in it


def test_a_plain_with_in_an_async_workflow_is_refused_at_the_effects_call(world):
    @workflow
    async def one() -> str:
        with unit("order"):
            await work("a step is welcome")
            with pytest.raises(OutlastError, match="async with"):
                book("a")
        return "ok"

    ends_alike(world, one(), "ok")
    assert outside.log == ["a step is welcome"]


def test_an_effect_without_a_compensation_is_refused_before_anything_is_done(world):
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


def test_one_that_says_that_it_needs_none_is_welcome_and_left_as_it_is(world):
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
def test_a_death_in_the_middle_of_it_leaves_the_rest_to_the_next_life(world, reached):
    world.die(order(), until=lambda: reached in outside.log)
    ends_alike(world, order(), "rolled back: no")
    assert [one for one in outside.log if one[0] != "?"] == [
        "+before",
        "+a",
        "+b",
        "step",
        "+c",
        "-c",
        "-b",
        "-a",
        "after",
    ]


def test_one_death_after_the_other(world):
    for reached in ("+b", "+c", "-c", "-b"):
        world.die(order(), until=lambda: reached in outside.log)
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]
    assert outside.done == ["+before", "+a", "+b", "+c"]


def test_a_drain_lets_it_roll_back(world):
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


def test_a_drain_without_the_time_for_it_leaves_the_rest_to_the_next_life(world):
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


def test_closing_in_the_middle_of_it_leaves_the_rest_to_the_next_life(world):
    async def main(app):
        await app.start(order(), id="run")
        while "-c" not in outside.log:
            await asyncio.sleep(0.1)

    world.do(main)
    world.restart()
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", "-b", "-a"]


def test_a_sync_one_that_dies_in_the_middle(world):
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
def test_a_compensation_that_fails_for_good_parks_the_run_where_it_is(world, how):
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
                one for one in await app.journal("run") if (one.kind, one.key) == ("intent", "undo:put#1")
            ]
            await app.decide("run", "undo:put#1", happened=None, intent=intents[-1].seq)

        world.do(by_hand)
    ends_alike(world, order(), "rolled back: no")
    assert outside.undone == ["-c", *["-b"] * (how == "resume"), "-a"]


def test_a_run_that_is_stuck_in_a_unit_and_cancelled_is_undone_from_there(world):
    outside.broken.add("-b")
    stuck(world, order())
    outside.broken.clear()
    assert world.do(lambda app: app.cancel("run", "enough")) == "queued"
    with pytest.raises(RunCancelled, match="enough"):
        world.run(order())
    assert outside.undone == ["-c", "-b", "-a", "-before"]
