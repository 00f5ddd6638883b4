"""An agent of Pydantic AI whose tools are those of an MCP server.

`python pydantic_mcp_agent.py STORE LOG HOLD` executes the run "r" and prints its result. The server
notes its starts and calls in LOG, and the call `add 3 4` does not return while the file HOLD exists.
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
FIRST, SECOND = (
    ToolCallPart("add", {"a": 1, "b": 2}, "c1"),
    ToolCallPart("add", {"a": 3, "b": 4}, "c2"),
)
ONE_AFTER_THE_OTHER = ([FIRST], [SECOND], [TextPart("3 and 7")])
AT_ONCE = ([FIRST, SECOND], [TextPart("3 and 7")])


def agent_with(log: Path, hold: Path, turns=ONE_AFTER_THE_OTHER) -> Agent:
    """Return an agent whose model says one of `turns` after another, whatever its tools return."""
    log.touch()
    command = [str(SERVER), str(log), str(hold)]
    transport = StdioTransport(sys.executable, command)
    server = MCPToolset(transport, id="calculator", init_timeout=120, read_timeout=120)

    async def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=turns[len(messages) // 2])

    return Agent(
        FunctionModel(script), name="a", toolsets=[server], capabilities=[OutlastDurability()]
    )


async def main(store: str, log: Path, hold: Path) -> None:
    agent = agent_with(log, hold)

    @workflow
    async def ask() -> str:
        return (await agent.run("add")).output

    async with Outlast(store) as app:
        print(await (await app.start(ask(), id="r")).result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
