"""An agent whose tools are those of an MCP server.

`python mcp_agent.py STORE LOG HOLD` executes the run "r" and prints its result. The server notes its
starts and calls in LOG, and the call `add 3 4` does not return while the file HOLD exists.
"""

import asyncio
import sys
from pathlib import Path

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from agents.testing import assistant_message
from support_agent import Scripted, call

from outlast import Outlast, workflow
from outlast.integrations.openai_agents import durable

set_tracing_disabled(True)
SERVER = Path(__file__).with_name("calculator_server.py")


def agent_with(log: Path, hold: Path) -> Agent:
    log.touch()
    server = MCPServerStdio(
        {"command": sys.executable, "args": [str(SERVER), str(log), str(hold)]},
        name="calculator",
        client_session_timeout_seconds=120,
    )
    script = {
        0: [call("add", "c1", a=1, b=2)],
        1: [call("add", "c2", a=3, b=4)],
        2: [assistant_message("3 and 7")],
    }
    return durable(Agent(name="a", model=Scripted("a", script), mcp_servers=[server]))


async def main(store: str, log: Path, hold: Path) -> None:
    agent = agent_with(log, hold)

    @workflow
    async def ask() -> str:
        return str((await Runner.run(agent, "add")).final_output)

    async with Outlast(store) as app:
        print(await (await app.start(ask(), id="r")).result())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
