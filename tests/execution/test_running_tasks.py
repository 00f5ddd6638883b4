"""A run that ends with running tasks warns with the line that created them."""

import asyncio
import inspect

import anyio
import pytest

from outlast import step, workflow


@step
async def work(seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return "worked"


@step
async def fail() -> None:
    raise ValueError("no")


@workflow
async def forgets_it_after_its_start() -> str:
    asyncio.create_task(work(50.0))
    return await work(1.0)


@workflow
async def forgets_it_at_once() -> str:
    asyncio.create_task(work(50.0))
    return "done"


async def helper() -> None:
    await work(50.0)


@workflow
async def forgets_a_coroutine() -> str:
    asyncio.create_task(helper())
    return await work(1.0)


@workflow
async def catches_the_failure_of_a_sibling() -> str:
    try:
        await asyncio.gather(work(50.0), fail())
    except ValueError:
        return await work(1.0)
    return "done"


def warnings_of(caplog) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if "was still running" in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("flow", "task", "line"),
    [
        (forgets_it_after_its_start, "work#1", 2),
        (forgets_it_at_once, "work#1", 2),
        (forgets_a_coroutine, "helper#1", 2),
        (catches_the_failure_of_a_sibling, "work#1", 3),
    ],
)
def test_a_task_that_still_runs_at_the_end_is_named_with_the_line_that_created_it(
    world, caplog, flow, task, line
):
    world.run(flow())
    where = f"{__file__}:{inspect.getsourcelines(flow.fn)[1] + line}"
    [warning] = warnings_of(caplog)
    assert warning.startswith(
        f"Run run ended while task {task}, created at {where}, was still running. "
    )
    assert warning.endswith("Await the task before the workflow returns, or cancel it.")
    journal = world.journal()
    caplog.clear()
    world.replays(flow())
    assert len(warnings_of(caplog)) == 1
    assert world.journal()[: len(journal)] == journal


def test_several_running_tasks_give_one_warning(world, caplog):
    @workflow
    async def one() -> str:
        tasks = [asyncio.create_task(work(50.0)) for _ in range(3)]
        await asyncio.wait(tasks, timeout=1)
        return "done"

    assert world.run(one()) == "done"
    [warning] = warnings_of(caplog)
    assert "task work#1, created at " in warning
    assert " and 2 more" in warning


def test_ended_or_cancelled_tasks_give_no_warning(world, caplog):
    @workflow
    async def one() -> str:
        first, second = asyncio.create_task(work(1.0)), asyncio.create_task(helper())
        await first
        second.cancel()
        await asyncio.wait_for(work(1.0), 10)
        async with asyncio.TaskGroup() as group:
            group.create_task(work(1.0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, 1.0)
        asyncio.create_task(work(50.0)).cancel()
        return "done"

    assert world.run(one()) == "done"
    assert warnings_of(caplog) == []


def test_failed_or_evicted_run_gives_no_warning_about_tasks(world, caplog):
    @workflow
    async def fails() -> None:
        task = asyncio.create_task(work(50.0))
        await fail()
        await task

    with pytest.raises(ValueError, match="no"):
        world.run(fails())

    @workflow
    async def slow() -> str:
        task = asyncio.create_task(work(500.0))
        return await work(500.0) + await task

    async def main(app):
        await app.start(slow(), id="drained")
        await app.drain("a deploy")

    world.do(main)
    assert world.status("drained") == "queued"
    assert warnings_of(caplog) == []
