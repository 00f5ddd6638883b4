"""A unit that an exception leaves is rolled back, and the workflow continues."""

import asyncio

import pytest
from outside import Refused, book, fail, outside, put, say, work
from units_tools import ends_alike, order

from outlast import OutlastError, compensate_with, effect, sleep, workflow
from outlast.api.unit import unit


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()


# -- rolling back


@pytest.mark.parametrize(("then", "why"), [("fail", "no"), ("raise", "own")])
def test_exception_undoes_the_unit_and_the_workflow_continues(world, then, why):
    ends_alike(world, order(then), f"rolled back: {why}")
    assert outside.log == ["+before", "+a", "+b", "step", "+c", "-c", "-b", "-a", "after"]
    assert world.status() == "done"


def test_committed_unit_is_not_undone(world):
    ends_alike(world, order("return"), "committed")
    assert outside.undone == []


def test_committed_unit_is_undone_with_the_run(world):
    with pytest.raises(ValueError, match="late"):
        world.run(order("late"))
    assert outside.undone == ["-c", "-b", "-a", "-before"]


def test_rolled_back_unit_is_not_undone_again(world):
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


def test_original_exception_leaves_the_unit(world):
    @workflow
    async def one() -> None:
        async with unit("order"):
            await book("a")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        world.run(one())
    assert outside.log == ["+a", "-a"]


def test_compensation_in_a_unit_has_result_arguments_and_keys(world):
    ends_alike(world, order(), "rolled back: no")
    (ticket, effect_key, own_key), _ = outside.told
    assert (ticket, effect_key) == ("ticket c", outside.keys["+c"][0])
    assert own_key != effect_key


def test_repeated_unit_uses_new_keys(world):
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


def test_effect_that_did_not_happen_in_a_unit_is_not_compensated(world):
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
def test_committed_inner_unit_is_undone_with_the_outer_one(world, inner, outer, seen, log):
    ends_alike(world, nested(inner, outer), seen)
    assert outside.log == log


def test_units_around_an_effect_and_a_registered_compensation_are_on_record(world):
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
    assert [effect.units for effect in effects] == [
        (),
        ("outer",),
        ("outer", "inner"),
        ("outer", "inner"),
    ]


def test_inner_unit_rolls_back_first(world):
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
async def effect_call(what: str) -> None:
    await book(what)


@workflow
async def with_a_child(then: str) -> str:
    try:
        async with unit("order"):
            await book("own")
            await effect_call("the child's")
            raise LookupError
    except LookupError:
        if then == "fail":
            await fail()
    return "rolled back"


def test_child_in_a_unit_is_undone_only_with_the_run(world):
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


def test_active_act_ends_before_the_rollback(world):
    ends_alike(world, gathers(slow=8.0, after=3.0), "rolled back")
    assert outside.log == ["+a", "+c", "+b", "-c", "-b", "-a", "after"]


def test_effect_that_has_not_acted_does_not_start(world):
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
def test_open_effect_is_verified_before_the_rollback(world, happened):
    (outside.lost if happened else outside.broken).add("+b")
    ends_alike(world, gathers(slow=1.0, after=3.0), "rolled back")
    assert outside.log == [
        "+a",
        *["+b"] * happened,
        "+c",
        "?b",
        "-c",
        *["-b"] * happened,
        "-a",
        "after",
    ]


def test_effect_that_is_never_awaited_is_not_done(world):
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


def test_task_group_in_a_unit_is_undone_as_a_whole(world):
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


def test_task_that_goes_on_in_a_left_unit_is_refused_its_next_effect(world):
    async def two() -> str:
        await book("a", 5.0)
        with pytest.raises(OutlastError, match="after the unit had ended"):
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


def test_task_that_outlives_a_committed_unit_is_refused_too(world):
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

    assert "after the unit had ended" in world.run(one())
    assert outside.log == ["+a"]
