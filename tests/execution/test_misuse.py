"""Calls in the wrong place raise clear errors instead of hanging."""

import asyncio
import inspect
import logging
import socket
from typing import Any

import pytest

from outlast import (
    NotInRun,
    NotInStep,
    RunParked,
    current,
    now,
    random,
    receive,
    sleep,
    step,
    uuid,
    workflow,
)


@step
async def work(label: str = "") -> str:
    return label


@step
def sync_work() -> str:
    return "sync"


@workflow
async def other() -> str:
    return await work("other")


def test_a_step_outside_a_run_says_how_to_call_its_function():
    with pytest.raises(NotInRun, match=r"work\.fn"):
        work("x")
    with pytest.raises(NotInRun, match=r"sync_work\.fn"):
        sync_work()
    assert sync_work.fn() == "sync"
    assert asyncio.run(work.fn("x")) == "x"


@pytest.mark.parametrize("call", [now, uuid, random, current], ids=lambda fn: fn.__name__)
def test_run_functions_raise_not_in_run_outside_a_run(call):
    with pytest.raises(NotInRun):
        call()


@pytest.mark.parametrize(
    "make", [lambda: sleep(1), lambda: receive("x"), other], ids=["sleep", "receive", "call"]
)
def test_awaitable_run_functions_raise_not_in_run_outside_a_run(make):
    async def main() -> None:
        await make()

    with pytest.raises(NotInRun):
        asyncio.run(main())


@pytest.mark.parametrize(
    "call",
    [now, uuid, random, lambda: other().__await__(), lambda: sleep(1).send(None)],
    ids=["now", "uuid", "random", "child", "sleep"],
)
def test_workflow_functions_are_refused_inside_a_step(world, call):
    @step
    async def inside() -> str:
        try:
            call()
        except NotInRun as error:
            return type(error).__name__
        return "?"

    @workflow
    async def one() -> str:
        return await inside()

    assert world.run(one()) == "NotInRun"


def test_a_sync_step_in_an_async_workflow_asks_for_aio(world):
    @workflow
    async def one() -> str:
        return sync_work()

    with pytest.raises(NotInRun, match=r"sync_work\.aio"):
        world.run(one())


async def opens_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def resolves() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def starts_a_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def uses_a_thread() -> None:
    await asyncio.to_thread(int)


async def reads_a_socket() -> None:
    left, right = socket.socketpair()
    try:
        left.setblocking(False)
        await asyncio.get_running_loop().sock_recv(left, 1)
    finally:
        left.close()
        right.close()


async def handles_a_signal() -> None:
    asyncio.get_running_loop().add_signal_handler(10, print)


@pytest.mark.parametrize(
    "io",
    [
        opens_a_connection,
        resolves,
        starts_a_process,
        uses_a_thread,
        reads_a_socket,
        handles_a_signal,
    ],
    ids=lambda fn: fn.__name__,
)
def test_io_in_a_workflow_is_an_error_that_names_steps(world, io):
    @workflow
    async def one() -> None:
        await io()

    with pytest.raises(NotInStep, match="Move I/O, threads and waits"):
        world.run(one())
    assert world.status() == "failed"


def test_event_set_by_a_step_raises_a_clear_error(world):
    @workflow
    async def one() -> str:
        event = asyncio.Event()

        @step
        async def sets() -> str:
            try:
                event.set()
            except NotInRun as error:
                return str(error)
            return "?"

        waiter = asyncio.create_task(event.wait())
        await asyncio.sleep(0)
        said = await sets()
        waiter.cancel()
        return said

    assert "outside a run tried to wake" in world.run(one())


def test_a_lock_shared_by_two_runs_is_a_clear_error(world):
    lock = asyncio.Lock()

    @workflow
    async def one() -> None:
        async with lock:
            await sleep(10)

    async def both(app) -> list[Any]:
        runs = [await app.start(one(), id=f"r{n}") for n in range(2)]
        return await asyncio.gather(
            *[run.result(timeout=1000) for run in runs], return_exceptions=True
        )

    results = world.do(both)
    errors = [result for result in results if isinstance(result, Exception)]
    assert errors, "two runs cannot share a lock"
    assert all(isinstance(error, (NotInRun, RuntimeError, RunParked)) for error in errors)


def test_a_call_that_is_not_awaited_is_logged_with_its_line(world, caplog):
    async def forgets() -> None:
        work("forgotten")
        other()

    @workflow
    async def one() -> str:
        await forgets()
        return await work("done")

    assert world.run(one()) == "done"
    line = inspect.getsourcelines(forgets)[1]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert (
        "Step work#1" in said[0]
        and f"{__file__}:{line + 1}" in said[0]
        and "await work(...)" in said[0]
    )
    assert "Child other#1" in said[1] and f"{__file__}:{line + 2}" in said[1]
