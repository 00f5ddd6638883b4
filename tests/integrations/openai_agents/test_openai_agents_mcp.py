"""The calls of an MCP server are steps, with one connection per execution."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from agents import Runner
from mcp_agent import agent_with

from outlast import Outlast, workflow
from support.processes import Program
from support.waiting import wait_until, wait_until_async

PROGRAM = Path(__file__).with_name("mcp_agent.py")


def noted(log: Path, start: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if line.startswith(start)]


def server_pids(log: Path) -> list[int]:
    return [int(line.removeprefix("start ")) for line in noted(log, "start")]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_connection_serves_all_steps_of_an_execution(address, tmp_path):
    log = tmp_path / "log"
    agent = agent_with(log, tmp_path / "hold")

    @workflow
    async def one() -> str:
        return str((await Runner.run(agent, "add")).final_output)

    async def main() -> list[str]:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            assert await run.result() == "3 and 7"
            return [entry.key for entry in await app.journal("r")]

    keys = asyncio.run(main())
    assert noted(log, "add") == ["add 1 2", "add 3 4"]
    assert len(server_pids(log)) == 1
    assert all(key.startswith("a.") for key in keys), "no names of the SDK's own functions"
    assert len([key for key in keys if key.startswith("a.calculator.call_tool[add ")]) == 2


@pytest.mark.extended
def test_killed_agent_connects_again_and_repeats_only_the_call_in_flight(place, tmp_path):
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    with Program.python(PROGRAM, place, log, hold, folder=tmp_path) as first:
        first.wait_until(lambda: "add 3 4" in noted(log, "add"))
        first.send_signal(signal.SIGKILL)
        first.wait()
    hold.unlink()
    with Program.python(PROGRAM, place, log, hold, folder=tmp_path) as second:
        second.wait_for_line("3 and 7")
        assert second.wait() == 0, second.describe()
    assert noted(log, "add") == ["add 1 2", "add 3 4", "add 3 4"]
    assert len(server_pids(log)) == 2
    wait_until(lambda: not any(map(is_alive, server_pids(log))))


def test_killed_server_is_connected_again(address, tmp_path):
    """The model learns that the call in flight failed. Its tool is not called twice."""
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    agent = agent_with(log, hold)

    @workflow
    async def one() -> str:
        return str((await Runner.run(agent, "add")).final_output)

    async def main() -> None:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            await wait_until_async(lambda: "add 3 4" in noted(log, "add"))
            os.kill(server_pids(log)[0], signal.SIGKILL)
            assert await run.result() == "3 and 7"

    asyncio.run(main())
    assert noted(log, "add") == ["add 1 2", "add 3 4"]
    assert len(server_pids(log)) == 2
