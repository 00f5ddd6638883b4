"""The calls of an MCP server are steps, with one connection per execution."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel, assistant_message, function_call

from outlast import Outlast, workflow
from outlast.integrations.openai_agents import durable

SERVER = Path(__file__).with_name("calculator_server.py")


def agent_with(log: Path) -> Agent:
    log.touch()
    server = MCPServerStdio(
        {"command": sys.executable, "args": [str(SERVER), str(log)]},
        name="calculator",
        client_session_timeout_seconds=120,
    )
    model = ScriptedModel(
        [
            [function_call("add", {"a": 1, "b": 2}, call_id="c1")],
            [function_call("add", {"a": 3, "b": 4}, call_id="c2")],
            [assistant_message("3 and 7")],
        ]
    )
    return durable(Agent(name="a", model=model, mcp_servers=[server]))


def test_one_connection_serves_all_steps_of_an_execution(address, tmp_path):
    log = tmp_path / "log"
    agent = agent_with(log)

    @workflow
    async def one() -> str:
        return str((await Runner.run(agent, "add")).final_output)

    async def main() -> list[str]:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            assert await run.result() == "3 and 7"
            return [entry.key for entry in await app.journal("r")]

    keys = asyncio.run(main())
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("add")] == ["add 1 2", "add 3 4"]
    assert len([line for line in lines if line.startswith("start")]) == 1
    assert all(key.startswith("a.") for key in keys), "no names of the SDK's own functions"
    assert len([key for key in keys if key.startswith("a.calculator.call_tool[add ")]) == 2
