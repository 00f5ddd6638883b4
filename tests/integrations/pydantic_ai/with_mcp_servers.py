"""The calls of an MCP server are steps.

`make integrations` runs this file: the client of Pydantic AI is heavy.
"""

import asyncio
import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import Outlast, workflow
from outlast.integrations.pydantic_ai import OutlastDurability

SERVER = Path(__file__).parents[1] / "openai_agents/calculator_server.py"


def agent_with(log: Path) -> Agent:
    log.touch()
    server = MCPToolset(StdioTransport(sys.executable, [str(SERVER), str(log)]), id="calculator")

    async def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2
        calls = [
            [
                ToolCallPart("add", {"a": 1, "b": 2}, "c1"),
                ToolCallPart("add", {"a": 3, "b": 4}, "c2"),
            ],
            [TextPart("3 and 7")],
        ]
        return ModelResponse(parts=calls[turn])

    return Agent(
        FunctionModel(script), name="a", toolsets=[server], capabilities=[OutlastDurability()]
    )


def added(log: Path) -> list[str]:
    return sorted(line for line in log.read_text().splitlines() if line.startswith("add"))


def test_each_call_of_an_mcp_server_is_a_step(address, tmp_path):
    log = tmp_path / "log"
    agent = agent_with(log)

    @workflow
    async def one() -> str:
        return (await agent.run("add")).output

    async def main() -> list[str]:
        async with Outlast(address) as app:
            run = await app.start(one(), id="r")
            assert await run.result() == "3 and 7"
            return [entry.key for entry in await app.journal("r") if entry.kind == "step"]

    keys = asyncio.run(main())
    assert added(log) == ["add 1 2", "add 3 4"]
    tools = {"a#1/calculator.tools#1", "a#1/add[c1]#1", "a#1/add[c2]#1"}
    assert set(keys) == {"a#1/model#1", "a#1/model#2", *tools}
