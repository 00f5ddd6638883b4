"""`calculator_server.py LOG [HOLD]`: an MCP server that adds numbers.

It notes its starts and calls in LOG. The call `add 3 4` does not return while the file HOLD exists.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server import MCPServer

log, *hold = map(Path, sys.argv[1:])


def note(line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


note(f"start {os.getpid()}")
server = MCPServer("calculator")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    note(f"add {a} {b}")
    while (a, b) == (3, 4) and any(path.exists() for path in hold):
        await asyncio.sleep(0.02)
    return a + b


server.run()
