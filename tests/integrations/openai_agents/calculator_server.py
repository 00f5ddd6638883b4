"""An MCP server that adds numbers, and notes each of its starts in a file."""

import os
import sys
from pathlib import Path

from mcp.server import MCPServer

log = Path(sys.argv[1])
with log.open("a") as file:
    file.write(f"start {os.getpid()}\n")
server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    with log.open("a") as file:
        file.write(f"add {a} {b}\n")
    return a + b


server.run()
