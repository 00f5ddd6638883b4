"""The calls of an MCP server are steps, which share a connection and connect again.

`make integrations` runs this file: the client of Pydantic AI is heavy.
"""

import asyncio
import os
import signal
from pathlib import Path

from pydantic_ai.messages import ToolReturnPart
from pydantic_mcp_agent import AT_ONCE, agent_with

from outlast import Outlast, workflow
from support.processes import Program
from support.waiting import wait_until, wait_until_async

PROGRAM = Path(__file__).with_name("pydantic_mcp_agent.py")
CALLS = ["add 1 2", "add 3 4"]


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


def test_each_call_of_an_mcp_server_is_a_step(address, tmp_path):
    log = tmp_path / "log"
    agent = agent_with(log, tmp_path / "hold", AT_ONCE)

    @workflow
    async def one() -> str:
        return (await agent.run("add")).output

    async def main() -> list[str]:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            assert await run.result() == "3 and 7"
            return [entry.key for entry in await app.journal("r") if entry.kind == "step"]

    keys = asyncio.run(main())
    assert sorted(noted(log, "add")) == CALLS
    tools = {"a#1/calculator.tools#1", "a#1/add[c1]#1", "a#1/add[c2]#1"}
    assert set(keys) == {"a#1/model#1", "a#1/model#2", *tools}


def test_all_steps_of_a_process_share_a_server(address, tmp_path):
    log = tmp_path / "log"
    agent = agent_with(log, tmp_path / "hold")

    @workflow
    async def one() -> str:
        return (await agent.run("add")).output

    async def main() -> None:
        async with Outlast(address) as app:
            for id in "rs":
                assert await (await app.start(one(), id=id)).result() == "3 and 7"

    asyncio.run(main())
    assert noted(log, "add") == [*CALLS, *CALLS]
    assert len(server_pids(log)) == 1


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
    """The model learns that the call in flight failed. It is not made twice."""
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    agent = agent_with(log, hold)

    @workflow
    async def one() -> list[str]:
        result = await agent.run("add")
        again = await agent.run("add")
        parts = [part for message in result.all_messages() for part in message.parts]
        told = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        return [*told, again.output]

    async def main() -> list[str]:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            await wait_until_async(lambda: "add 3 4" in noted(log, "add"))
            os.kill(server_pids(log)[0], signal.SIGKILL)
            await wait_until_async(lambda: len(server_pids(log)) == 2)
            hold.unlink()
            return await run.result()

    assert asyncio.run(main()) == ["3", "Connection closed", "3 and 7"]
    assert noted(log, "add") == [*CALLS, *CALLS]
    assert len(server_pids(log)) == 2
