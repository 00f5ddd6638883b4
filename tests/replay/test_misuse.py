"""Calls in the wrong place, workflows that do what only steps may, and workflows that never end: clear errors, no hang."""

import asyncio
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
def test_what_belongs_to_a_run_is_not_in_run_outside_one(call):
    with pytest.raises(NotInRun):
        call()


@pytest.mark.parametrize(
    "make", [lambda: sleep(1), lambda: receive("x"), other], ids=["sleep", "receive", "call"]
)
def test_what_is_awaited_in_a_run_is_not_in_run_outside_one(make):
    async def main() -> None:
        await make()

    with pytest.raises(NotInRun):
        asyncio.run(main())


@pytest.mark.parametrize(
    "call",
    [now, uuid, random, lambda: other().__await__(), lambda: sleep(1).send(None)],
    ids=["now", "uuid", "random", "child", "sleep"],
)
def test_a_steps_body_is_not_the_workflows_code(world, call):
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
        try:
            sync_work()
        except NotInRun as error:
            return str(error)
        return "?"

    assert "sync_work.aio" in world.run(one())


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
    [opens_a_connection, resolves, starts_a_process, uses_a_thread, reads_a_socket, handles_a_signal],
    ids=lambda fn: fn.__name__,
)
def test_io_in_a_workflow_is_an_error_that_names_steps(world, io):
    @workflow
    async def one() -> None:
        await io()

    with pytest.raises(NotInStep, match="put what does I/O"):
        world.run(one())
    assert world.status() == "failed"


def test_an_event_set_by_a_step_is_a_clear_error_not_a_hang(world):
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
        return await asyncio.gather(*[run.result(timeout=1000) for run in runs], return_exceptions=True)

    results = world.do(both)
    errors = [result for result in results if isinstance(result, Exception)]
    assert errors, "two runs cannot share a lock"
    assert all(isinstance(error, (NotInRun, RuntimeError, RunParked)) for error in errors)
