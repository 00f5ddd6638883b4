"""Workflow code cannot swallow a divergence."""

import asyncio

import pytest

from outlast import Diverged, NotInRun, RunParked, sleep, step, workflow

acted: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    acted.clear()


def make_step(name: str):
    @step(name=name)
    async def act(label: str = "") -> str:
        acted.append(f"{name} {label}".strip())
        if label == "slow":
            await asyncio.sleep(100)
        return label

    return act


a, b, c = make_step("a"), make_step("b"), make_step("c")


def flow(body, timeout=None):
    return workflow(name="flow", timeout=timeout)(body)


async def old() -> list[str]:
    return [await a("1"), await b("2"), await c("slow")]


def began(world, body=old, after=50):
    """A run of the old code that died in its last step."""
    world.die(flow(body)(), after=after)
    acted.clear()


def test_divergence_cannot_be_swallowed_by_except_exception(world):
    swallowed = []

    async def careless() -> list[str]:
        try:
            await make_step("b2")("x")
            await a("other")
        except Exception as error:
            swallowed.append(error)
        return [await c("slow")]

    began(world)
    with pytest.raises(RunParked):
        world.run(flow(careless)())
    assert swallowed == []
    assert acted == []


def test_divergence_swallowed_by_except_base_exception_records_nothing_more(world):
    seen = []

    async def greedy() -> list[str]:
        for attempt in range(3):
            try:
                await a(f"other {attempt}")
            except BaseException as error:
                seen.append(type(error))
        return ["I know better"]

    began(world)
    before = world.journal()
    with pytest.raises(RunParked):
        world.run(flow(greedy)())
    assert set(seen) == {Diverged}
    assert acted == []
    assert [e for e in world.journal() if e.kind != "death"] == before
    assert world.status() == "parked"


def test_a_finally_that_calls_steps_does_not_execute_them_on_divergence(world):
    async def tidy() -> list[str]:
        try:
            return [await a("other")]
        finally:
            await make_step("tidy")("up")

    began(world)
    with pytest.raises(RunParked):
        world.run(flow(tidy)())
    assert acted == []


def test_a_divergence_in_one_branch_starts_nothing_in_another(world):
    async def before() -> list[str]:
        return await asyncio.gather(a("1"), b("slow"))

    async def after() -> list[str]:
        new = asyncio.create_task(make_step("new")("0"))
        return [await a("changed"), await b("slow"), await new]

    began(world, before)
    with pytest.raises(RunParked):
        world.run(flow(after)())
    assert acted == []


@pytest.mark.parametrize("caught", [False, True], ids=["raised", "caught"])
def test_divergence_wins_over_a_refused_call(world, caught):
    async def forbidden() -> list[str]:
        try:
            await asyncio.to_thread(print)
        except NotInRun:
            if not caught:
                raise
        return []

    began(world)
    with pytest.raises(RunParked, match="a refused call"):
        world.run(flow(forbidden)())
    assert acted == []
    assert world.status() == "parked"


def test_refused_call_after_the_recorded_ones_fails_the_run(world):
    async def forbidden() -> list[str]:
        await a("1")
        await b("2")
        await asyncio.to_thread(print)
        return []

    async def two() -> list[str]:
        return [await a("1"), await b("2"), str(await sleep(100))]

    began(world, two)
    with pytest.raises(NotInRun):
        world.run(flow(forbidden)())
    assert world.status() == "failed"


def test_a_result_that_no_longer_fits_its_annotation_is_a_divergence_not_a_failure(world):
    @step(name="typed")
    async def text() -> str:
        return "words"

    @step(name="typed")
    async def number() -> list[int]:
        return [1]

    async def before() -> str:
        await text()
        return await c("slow")

    async def after() -> str:
        await number()
        return await c("slow")

    # `str` needs no pydantic and is handed over as recorded; `list[int]` is plain too; a set is not
    @step(name="typed")
    async def typed() -> set[int]:
        return {1}

    async def after_typed() -> str:
        await typed()
        return await c("slow")

    began(world, before)
    with pytest.raises(RunParked, match="typed"):
        world.run(flow(after_typed)())
    assert acted == []


def test_a_workflow_that_asks_the_wall_clock_is_caught(world):
    import random

    async def chancy() -> list[str]:
        return [await a(str(random.random())), await c("slow")]

    began(world, chancy)
    with pytest.raises(RunParked, match="not deterministic"):
        world.run(flow(chancy)())


def test_a_wrong_order_in_a_task_is_seen_too(world):
    async def branch(steps) -> list[str]:
        return [await one("x") for one in steps]

    async def before() -> list:
        return await asyncio.gather(branch([a, b]), c("slow"))

    async def after() -> list:
        return await asyncio.gather(branch([b, a]), c("slow"))

    began(world, before)
    with pytest.raises(RunParked):
        world.run(flow(after)())
    assert acted == []
