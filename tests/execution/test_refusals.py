"""A refused operation stops the run even if the workflow catches the error."""

import asyncio
import inspect
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from outlast import NotInRun, NotInStep, RunParked, current, progress, step, workflow
from outlast.execution.run_loop import RunLoop
from support.waiting import WAIT_SECONDS


@step
async def work(label: str = "") -> str:
    return label


@step
def sync_work() -> str:
    return "sync"


async def refused() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)  # the refused call


LINE = inspect.getsourcelines(refused)[1] + 1


async def returns() -> str:
    try:
        await refused()
    except Exception as error:
        return f"the model gets: {error}"
    return "?"


async def catches_everything() -> str:
    while True:
        try:
            await refused()
            await work("never")
        except BaseException:
            with suppress(BaseException):
                await work("never either")
            return "done all the same"


async def in_a_group() -> str:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(refused)
    except* NotInStep:
        pass
    return "done all the same"


async def in_a_task_nobody_awaits() -> str:
    task = asyncio.create_task(refused())
    await asyncio.wait([task])
    return "done all the same"


async def gathered() -> str:
    results = await asyncio.gather(refused(), work(), return_exceptions=True)
    return f"done with {len(results)} results"


async def goes_on_waiting() -> str:
    with suppress(NotInStep):
        await refused()
    await asyncio.sleep(1000)
    return "done all the same"


@pytest.mark.parametrize(
    "swallows",
    [returns, catches_everything, in_a_group, in_a_task_nobody_awaits, gathered, goes_on_waiting],
    ids=lambda fn: fn.__name__,
)
def test_a_refusal_that_is_swallowed_fails_the_run_and_names_the_line(world, swallows):
    @workflow
    async def one() -> str:
        await work("before")
        return await swallows()

    with pytest.raises(NotInStep, match=f"{__file__}:{LINE}"):
        world.run(one())
    assert world.status() == "failed"
    assert world.keys() == ["work#1"], "nothing is executed after the refusal"


def calls_a_sync_step() -> None:
    sync_work()


def asks_for_the_attempt() -> None:
    _ = current().attempt


def asks_for_progress() -> None:
    progress()


@pytest.mark.parametrize(
    "call", [calls_a_sync_step, asks_for_the_attempt, asks_for_progress], ids=lambda fn: fn.__name__
)
def test_a_call_in_the_wrong_place_fails_the_run_even_if_it_is_caught(world, call):
    line = inspect.getsourcelines(call)[1] + 1

    @workflow
    async def one() -> str:
        with suppress(Exception):
            call()
        return "done all the same"

    with pytest.raises(NotInRun, match=f"{__file__}:{line}"):
        world.run(one())
    assert world.status() == "failed"


def test_a_call_of_another_thread_than_the_sync_workflows_fails_the_run(world):
    @workflow
    def one() -> str:
        import contextvars

        def calls() -> None:
            with suppress(NotInRun):
                sync_work()

        thread = threading.Thread(target=contextvars.copy_context().run, args=(calls,))
        thread.start()
        thread.join()
        return "done all the same"

    with pytest.raises(NotInRun, match="its own thread"):
        world.run(one())
    assert world.status() == "failed"


def test_a_refusal_in_code_that_a_library_runs_in_its_own_task_names_the_users_line(world):
    """httpx connects in tasks of anyio: the user's frame is not on the stack there."""

    async def asks() -> None:
        async with httpx.AsyncClient() as client:
            await client.get("http://localhost:9/")

    @workflow
    async def one() -> str:
        with suppress(Exception):
            await asks()
        return "done all the same"

    with pytest.raises(NotInStep, match=f"{__file__}:{inspect.getsourcelines(asks)[1] + 2}"):
        world.run(one())


@pytest.mark.parametrize("how", ["anyio", "asyncio", "gather"])
def test_a_refusal_in_a_task_group_names_the_line_in_the_task(world, how):
    """httpx connects in tasks of its own: the line is where the task that called httpx waits."""

    async def fetch() -> None:
        async with httpx.AsyncClient() as client:
            await client.get("http://127.0.0.1:9")  # this line

    @workflow
    async def fetching() -> None:
        if how == "anyio":
            async with anyio.create_task_group() as group:
                group.start_soon(fetch)
        elif how == "asyncio":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fetch())
        else:
            await asyncio.gather(fetch())

    with pytest.raises(NotInStep) as raised:
        world.run(fetching())
    lines = Path(__file__).read_text().splitlines()
    (number,) = re.findall(r"test_refusals\.py:(\d+)", str(raised.value))
    assert lines[int(number) - 1].endswith("# this line")


def test_fixed_code_resumes_from_the_recorded_steps(world):
    fixed = []

    @workflow
    async def one() -> str:
        first = await work("first")
        if not fixed:
            with suppress(NotInStep):
                await refused()
        return first + await work("second")

    with pytest.raises(NotInStep):
        world.run(one())
    fixed.append(True)

    async def again(app: Any) -> str:
        await app.retry("run")
        return await (await app.start(one(), id="run")).result()

    assert world.do(again) == "firstsecond"
    assert world.executed == {"work": 2}


def test_a_refusal_that_the_journal_does_not_know_parks_the_run(world):
    """Code that was changed while the run was under way: nothing is undone because of it."""
    changed = []

    @workflow
    async def one() -> str:
        if changed:
            await refused()
        await work("first")
        await asyncio.sleep(100)
        return "done"

    world.die(one(), after=10)
    changed.append(True)
    with pytest.raises(RunParked, match="a refused call"):
        world.run(one())


async def in_an_anyio_thread(called: list[str]) -> None:
    await anyio.to_thread.run_sync(called.append, "called")


async def in_an_asyncio_thread(called: list[str]) -> None:
    await asyncio.to_thread(called.append, "called")


async def reads_a_file(called: list[str]) -> None:
    await anyio.Path(__file__).read_text()


@pytest.mark.parametrize(
    "uses", [in_an_anyio_thread, in_an_asyncio_thread, reads_a_file], ids=lambda fn: fn.__name__
)
def test_a_thread_is_refused_before_anything_executes_in_it(world, uses):
    called: list[str] = []

    @workflow
    async def one() -> str:
        for _ in range(2):
            with suppress(Exception):
                await uses(called)
        return "done all the same"

    with pytest.raises(NotInStep, match="into a step"):
        world.run(one())
    assert called == []
    for thread in threading.enumerate():
        if thread.name.startswith("AnyIO"):
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


UNUSED = sorted(
    name
    for name, value in vars(asyncio.AbstractEventLoop).items()
    if not name.startswith("_") and callable(value)
)


@pytest.mark.parametrize("name", UNUSED)
def test_run_loop_overrides_every_event_loop_method(name):
    assert vars(RunLoop)[name] is not getattr(asyncio.AbstractEventLoop, name)
