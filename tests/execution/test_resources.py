"""A resource is opened once per execution, where its steps execute, and closed at its end."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from outlast import NotInRun, effect, receive, resource, sleep, step, workflow
from outlast.sync import step as sync_step
from outlast.sync import workflow as sync_workflow
from outlast.testing import crash_everywhere

EVENTS: list[str] = []


@pytest.fixture(autouse=True)
def events():
    EVENTS.clear()
    return EVENTS


@resource
async def browser(name: str = "main") -> AsyncIterator[list[str]]:
    """A group of anyio, because that must be left by the task that entered it."""
    async with anyio.create_task_group():
        EVENTS.append(f"open {name}")
        try:
            yield [name]
        finally:
            await asyncio.sleep(0.1)
            EVENTS.append(f"close {name}")


@step
async def visit(page: str, name: str = "main") -> str:
    opened = await browser(name)
    EVENTS.append(f"visit {page} in {opened[0]}")
    return page


def test_steps_of_one_execution_share_it(world):
    @workflow
    async def one() -> str:
        await asyncio.gather(visit("a"), visit("b"))
        return await visit("c")

    assert world.run(one()) == "c"
    assert EVENTS == [
        "open main", "visit a in main", "visit b in main", "visit c in main", "close main",
    ]  # fmt: skip


def test_resource_is_opened_once_per_arguments(world):
    @workflow
    async def one() -> None:
        await visit("a", "x")
        await visit("b", "y")
        await visit("c", "x")

    world.run(one())
    assert [event for event in EVENTS if event.startswith("open")] == ["open x", "open y"]
    assert sorted(EVENTS[-2:]) == ["close x", "close y"]


def test_resource_is_closed_before_the_run_is_reported_as_done(world):
    @workflow
    async def one() -> str:
        return await visit("a")

    async def main(app):
        run = await app.start(one(), id="r")
        await run.result()
        return list(EVENTS)

    assert world.do(main)[-1] == "close main"


def test_every_execution_opens_its_own(world):
    @workflow
    async def one() -> str:
        await visit("a")
        await sleep(100)
        return await visit("b")

    world.die(one(), id="r", after=5)
    assert "close main" not in EVENTS, "a process that dies closes nothing"
    world.run(one(), id="r")
    assert EVENTS == [
        "open main", "visit a in main", "open main", "visit b in main", "close main",
    ]  # fmt: skip


def test_a_replay_opens_nothing(world):
    @workflow
    async def one() -> str:
        return await visit("a")

    world.run(one(), id="r")
    EVENTS.clear()
    assert world.replays(one(), id="r") == "a"
    assert EVENTS == []


def test_resource_is_closed_when_its_run_waits(world):
    @workflow
    async def one() -> str:
        await visit("a")
        await receive("go")
        return await visit("b")

    async def main(app):
        await app.start(one(), id="r")
        while EVENTS[-1:] != ["visit a in main"]:
            await asyncio.sleep(0.01)

    world.do(main)
    assert EVENTS[-1] == "close main"


def test_error_in_opening_reaches_the_steps_and_the_next_one_tries_again(world):
    tries = []

    @resource
    async def flaky() -> AsyncIterator[str]:
        tries.append("open")
        await asyncio.sleep(1)
        if len(tries) == 1:
            raise ConnectionError("refused")
        yield "opened"

    @step
    async def use(number: int) -> str:
        return await flaky()

    @workflow
    async def one() -> list[str]:
        first = await asyncio.gather(use(1), use(2), return_exceptions=True)
        return [*(type(error).__name__ for error in first), await use(3)]

    assert world.run(one()) == ["ConnectionError", "ConnectionError", "opened"]
    assert len(tries) == 2


def test_a_step_that_is_cancelled_leaves_it_to_the_others(world):
    @resource
    async def slow() -> AsyncIterator[str]:
        EVENTS.append("open")
        await asyncio.sleep(10)
        yield "opened"
        EVENTS.append("close")

    @step(timeout=1)
    async def hasty() -> str:
        return await slow()

    @step
    async def patient() -> str:
        return await slow()

    @workflow
    async def one() -> str:
        results = await asyncio.gather(hasty(), patient(), return_exceptions=True)
        return f"{type(results[0]).__name__} {results[1]}"

    assert world.run(one()) == "StepTimeout opened"
    assert EVENTS == ["open", "close"]


def test_closing_it_makes_the_next_step_open_another(world):
    @step(retries=1, backoff=0)
    async def visit_again() -> str:
        opened = await browser()
        if len([event for event in EVENTS if event == "open main"]) == 1:
            await browser.close()
            raise ConnectionError("lost")
        return opened[0]

    @workflow
    async def one() -> str:
        return await visit_again()

    assert world.run(one()) == "main"
    assert EVENTS == ["open main", "close main", "open main", "close main"]


def test_error_in_closing_is_logged_and_changes_no_result(world, caplog):
    @resource
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OSError("no such session")

    @step
    async def use() -> int:
        return await broken()

    @workflow
    async def one() -> int:
        return await use()

    assert world.run(one()) == 1
    assert "Failed to close resource broken." in caplog.text


def test_one_that_does_not_close_is_given_up_after_close_timeout(world, caplog):
    @resource
    async def stuck() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(1e6)

    @step
    async def use() -> int:
        return await stuck()

    @workflow
    async def one() -> int:
        return await use()

    before = world.clock()
    assert world.run(one()) == 1
    assert world.clock() - before < 60
    assert "Resource stuck did not close within" in caplog.text


def test_an_effect_may_use_it(world):
    @effect(timeout=5, idempotent=True, undo=None)
    async def act() -> str:
        return (await browser())[0]

    @workflow
    async def one() -> str:
        return await act()

    assert world.run(one()) == "main"
    assert EVENTS == ["open main", "close main"]


def test_resource_is_refused_outside_a_step(world):
    @workflow
    async def one() -> None:
        await browser()

    with pytest.raises(NotInRun, match=r"browser\(\) is for a step's body"):
        world.run(one())
    with pytest.raises(NotInRun, match=r"browser\(\) is for a step's body"):
        asyncio.run(browser())


def test_resource_refuses_wrong_functions_and_arguments(world):
    with pytest.raises(TypeError, match="generator function"):
        resource(lambda: 1)

    @step
    async def use() -> None:
        await browser(["x"])

    @workflow
    async def one() -> None:
        await use()

    with pytest.raises(TypeError, match="hashable"):
        world.run(one())


def test_any_crash_leaves_a_run_that_continues():
    @workflow
    async def one() -> list[str]:
        return [await visit("a"), await visit("b"), await visit("c")]

    crash_everywhere(one())


# -- sync


@resource
def connection() -> Iterator[str]:
    EVENTS.append("open")
    yield "connected"
    EVENTS.append("close")


@sync_step
def query(text: str) -> str:
    return f"{text}: {connection()}"


def test_sync_steps_share_a_sync_resource(world):
    @sync_workflow
    def one() -> list[str]:
        return [query("a"), query("b")]

    assert world.run(one()) == ["a: connected", "b: connected"]
    assert EVENTS == ["open", "close"]


def test_an_async_step_awaits_a_sync_resource(world):
    @step
    async def use() -> str:
        return await connection.aio()

    @workflow
    async def one() -> list[str]:
        return [await use(), await query.aio("a")]

    assert world.run(one()) == ["connected", "a: connected"]
    assert EVENTS == ["open", "close"]


def test_a_sync_step_closes_a_sync_resource(world):
    @sync_step
    def close_it() -> None:
        connection()
        connection.close()

    @sync_workflow
    def one() -> str:
        close_it()
        return query("a")

    assert world.run(one()) == "a: connected"
    assert EVENTS == ["open", "close", "open", "close"]


def test_resource_refuses_the_wrong_kind_of_step(world):
    @step
    async def use_sync() -> None:
        connection()

    @sync_step
    def use_async() -> None:
        asyncio.run(browser())

    @workflow
    async def first() -> None:
        await use_sync()

    @workflow
    async def second() -> None:
        await use_async.aio()

    with pytest.raises(NotInRun, match=r"await connection\.aio"):
        world.run(first(), id="r1")
    with pytest.raises(NotInRun, match="make the resource a plain generator function"):
        world.run(second(), id="r2")
