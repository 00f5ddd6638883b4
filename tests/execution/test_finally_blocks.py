"""When the `finally` blocks of a workflow execute."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import Diverged, Evicted, RunCancelled, RunParked, RunTimeout, receive, step, workflow
from outlast.sync import receive as receive_in_a_thread

left_by: list[type[BaseException] | None] = []
"""What was being raised in each `finally` block that executed."""
told: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    left_by.clear()
    told.clear()


@step
async def work(seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return "worked"


@step
async def fail() -> None:
    raise ValueError("no")


@step
async def tell(what: str) -> None:
    told.append(what)


@workflow
async def careful(seconds: float = 0.0) -> str:
    try:
        return await work(seconds) + await work(seconds)
    finally:
        left_by.append(sys.exc_info()[0])
        await tell("over")


@step
def work_in_a_thread(seconds: float = 0.0) -> str:
    return f"worked {seconds}"


@workflow
def careful_in_a_thread() -> str:
    try:
        return work_in_a_thread() + receive_in_a_thread("answer", str)
    finally:
        left_by.append(sys.exc_info()[0])


@workflow
async def patient() -> str:
    try:
        return await receive("answer", str)
    finally:
        left_by.append(sys.exc_info()[0])


@workflow
async def failing() -> None:
    try:
        await fail()
    finally:
        left_by.append(sys.exc_info()[0])
        await tell("failed")


AGENT = """
import asyncio, sys
from outlast import run, step, workflow

@step
async def work() -> None:
    print("at work", flush=True)
    await asyncio.sleep(0 if sys.argv[1:] else 1000)

@step
async def tell() -> None:
    print("the end", flush=True)

@workflow
async def careful() -> None:
    try:
        await work()
    finally:
        print("finally", flush=True)
        await tell()

run(careful(), id="run")
"""


def agent(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "agent.py", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


async def drained(app, call, seconds):
    await app.start(call, id="run")
    await asyncio.sleep(seconds)
    await app.drain("a deploy")


def test_finally_block_executes_once_when_the_run_succeeds(world):
    assert world.run(careful()) == "workedworked"
    assert (left_by, told) == ([None], ["over"])


def test_finally_block_executes_once_when_the_run_fails(world):
    with pytest.raises(ValueError, match="no"):
        world.run(failing())
    assert (left_by, told) == ([ValueError], ["failed"])


def test_finally_block_executes_at_a_drain_but_its_steps_only_at_the_end(world):
    world.do(lambda app: drained(app, careful(50.0), 10))
    assert (left_by, told) == ([Evicted], [])
    world.restart()
    assert world.run(careful(50.0)) == "workedworked"
    assert (left_by, told) == ([Evicted, None], ["over"])


def test_finally_block_does_not_execute_after_sigkill(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    first = agent(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "at work\n"
    first.kill()
    assert first.communicate() == ("", "")
    assert agent(tmp_path, "quick").communicate() == ("at work\nfinally\nthe end\n", "")


def test_finally_block_executes_at_a_cancellation_and_starts_no_step(world):
    async def main(app):
        run = await app.start(careful(50.0), id="run")
        await asyncio.sleep(10)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled):
            await run.result(timeout=1e5)

    world.do(main)
    assert (left_by, told) == ([asyncio.CancelledError], [])


def test_finally_block_executes_at_a_run_timeout_and_starts_no_step(world):
    @workflow(timeout=10)
    async def slow() -> None:
        try:
            await work(50.0)
        finally:
            left_by.append(sys.exc_info()[0])
            await tell("over")

    with pytest.raises(RunTimeout):
        world.run(slow())
    assert (left_by, told) == ([asyncio.CancelledError], [])


def test_finally_block_executes_when_a_waiting_run_is_evicted_and_at_the_end(world):
    world.restart(worker=True, workflows=[patient], linger=1.0)

    async def main(app):
        run = await app.submit(patient(), id="run")
        while not left_by:
            await asyncio.sleep(1)
        await app.send("run", "answer", "yes")
        return await run.result(timeout=1e5)

    assert world.do(main) == "yes"
    assert left_by == [asyncio.CancelledError, None]


def test_finally_block_executes_when_the_code_diverges(world):
    world.do(lambda app: drained(app, careful(50.0), 60))
    world.restart()

    @workflow(name="careful")
    async def other(seconds: float = 0.0) -> str:
        try:
            await tell("something else")
            return await work(1.0)
        finally:
            left_by.append(sys.exc_info()[0])

    with pytest.raises(RunParked):
        world.run(other(50.0))
    assert (left_by, told) == ([Evicted, Diverged], [])


def test_finally_blocks_of_sync_workflows_behave_the_same(world):
    world.do(lambda app: drained(app, careful_in_a_thread(), 10))
    assert left_by == [asyncio.CancelledError]
    world.restart()

    async def main(app):
        await app.send("run", "answer", ", answered")
        return await (await app.start(careful_in_a_thread(), id="run")).result(timeout=1e5)

    assert world.do(main) == "worked 0.0, answered"
    assert left_by == [asyncio.CancelledError, None]
