"""Calls in the wrong place, workflows that do what only steps may, and workflows that never end: clear errors, no hang."""

import asyncio
import socket
import threading
from typing import Annotated, Any

import pytest

from outlast import (
    BadName,
    NotInRun,
    NotInStep,
    RunParked,
    Unrecordable,
    Unrecorded,
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


# -- outside a run


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
    "make", [lambda: sleep(1), lambda: receive("x"), lambda: other()], ids=["sleep", "receive", "call"]
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


# -- I/O in the workflow's own code


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


# -- never ending


def test_a_workflow_that_spins_is_parked_with_a_reason(world, monkeypatch):
    monkeypatch.setattr("outlast.replay.life.CALLBACKS_MAX", 10_000)

    @workflow
    async def one() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RunParked, match="without waiting"):
        world.run(one())
    assert world.status() == "parked"


def test_a_workflow_that_waits_for_what_can_never_come_is_parked_with_a_reason(world):
    @workflow
    async def one() -> None:
        await work("first")
        await asyncio.Event().wait()

    with pytest.raises(RunParked, match="never come"):
        world.run(one())
    assert world.kinds() == ["step"]


def test_a_deadlock_of_two_tasks_is_parked(world):
    @workflow
    async def one() -> None:
        first, second = asyncio.Lock(), asyncio.Lock()

        async def take(a: asyncio.Lock, b: asyncio.Lock) -> None:
            async with a:
                await work()
                async with b:
                    pass

        await asyncio.gather(take(first, second), take(second, first))

    with pytest.raises(RunParked, match="never come"):
        world.run(one())


def test_a_stuck_run_does_not_hold_up_its_neighbours(world):
    @workflow
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def both(app) -> str:
        await app.start(stuck(), id="stuck")
        return await (await app.start(other(), id="other")).result(timeout=100)

    assert world.do(both) == "other"


# -- what is written


@pytest.mark.parametrize("name", ["a/b", "a#1", "", "a\x00b", "a\nb", "\ud800"])
def test_a_name_that_would_break_a_key_is_refused_where_it_is_written(name):
    with pytest.raises(BadName):
        step(name=name)(lambda: None)
    with pytest.raises(BadName):
        workflow(name=name)(lambda: None)


def test_a_wrong_argument_is_the_functions_own_type_error(world):
    @workflow
    async def one() -> None:
        await work("a", "b", "c")

    with pytest.raises(TypeError):
        world.run(one())
    with pytest.raises(TypeError):
        other("unexpected")


def test_an_argument_that_cannot_be_fingerprinted_is_refused_unless_it_is_marked(world):
    @step
    async def bad(client: Any) -> str:
        return "?"

    @step
    async def good(client: Annotated[Any, Unrecorded], label: str) -> str:
        return label

    @workflow
    async def one() -> str:
        lock = threading.Lock()
        try:
            await bad(lock)
        except Unrecordable as error:
            assert "Unrecorded" in str(error)
        return await good(lock, "good")

    assert world.run(one()) == "good"
    assert world.replays(one()) == "good"
    assert world.journal()[0].args == '{"label":"good"}'


def test_a_result_annotation_that_nothing_can_carry_is_refused_before_the_step_executes(world):
    executed = []

    @step
    async def odd() -> threading.Thread:
        executed.append(1)
        return threading.current_thread()

    @workflow
    async def one() -> None:
        await odd()

    with pytest.raises(Unrecordable):
        world.run(one())
    assert executed == []


def test_a_step_is_a_method_too_and_its_object_is_no_part_of_the_call(world):
    class Agent:
        def __init__(self, mood: str) -> None:
            self.mood = mood

        @step
        async def say(self, word: str) -> str:
            return f"{word} {self.mood}"

    @workflow
    async def one() -> str:
        return await Agent("gladly").say("yes")

    assert world.run(one()) == "yes gladly"
    assert world.replays(one()) == "yes gladly"
    assert world.journal()[0].key == "Agent.say#1"
