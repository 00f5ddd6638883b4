"""Execute the calls of an MCP server as steps, with one session per execution of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from agents.mcp import MCPServer
from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult
from mcp.types import Tool as MCPTool

from outlast.api.context import Place, place
from outlast.api.resource import resource
from outlast.api.step import step
from outlast.codec.signature import Unrecorded
from outlast.integrations.openai_agents.responses import digest


@resource
async def _connected(server: MCPServer) -> AsyncIterator[MCPServer]:
    """Keep a server connected as long as one execution of a run lasts."""
    if getattr(server, "session", None) is not None:
        # The program has connected it, and closes it.
        yield server
        return
    async with server:  # type: ignore[attr-defined]
        yield server


class DurableMCPServer(MCPServer):
    """An MCP server whose calls are steps in a workflow, and plain calls elsewhere.

    It is connected by the first step that needs it, unless the program has connected it.
    """

    def __init__(self, agent: str, server: MCPServer) -> None:
        """Wrap a server."""
        super().__init__()
        # Take over its options, such as its approval policy.
        vars(self).update({name: vars(server)[name] for name in vars(self) & vars(server).keys()})
        self._server = server
        prefix = f"{agent}.{server.name}"

        async def list_tools(server: Annotated[MCPServer, Unrecorded]) -> list[MCPTool]:
            return await (await _connected(server)).list_tools()

        async def call_tool(
            server: Annotated[MCPServer, Unrecorded],
            name: str,
            arguments: dict[str, Any] | None,
            meta: Annotated[dict[str, Any] | None, Unrecorded],
        ) -> CallToolResult:
            return await (await _connected(server)).call_tool(name, arguments, meta)

        async def list_prompts(server: Annotated[MCPServer, Unrecorded]) -> ListPromptsResult:
            return await (await _connected(server)).list_prompts()

        async def get_prompt(
            server: Annotated[MCPServer, Unrecorded], name: str, arguments: dict[str, Any] | None
        ) -> GetPromptResult:
            return await (await _connected(server)).get_prompt(name, arguments)

        self._list_tools = step(name=f"{prefix}.list_tools")(list_tools)
        self._call_tool = step(name=f"{prefix}.call_tool")(call_tool)
        self._list_prompts = step(name=f"{prefix}.list_prompts")(list_prompts)
        self._get_prompt = step(name=f"{prefix}.get_prompt")(get_prompt)

    @property
    def name(self) -> str:
        """Return the server's name."""
        return self._server.name

    async def connect(self) -> None:
        """Connect the server. In a workflow this does nothing: a step connects it."""
        if place() is Place.OUTSIDE:
            await self._server.connect()  # type: ignore[no-untyped-call]

    async def cleanup(self) -> None:
        """Close the server. In a workflow this does nothing: the execution's end closes it."""
        if place() is Place.OUTSIDE:
            await self._server.cleanup()  # type: ignore[no-untyped-call]

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[MCPTool]:
        """List the server's tools."""
        if _is_durable():
            return await self._list_tools.keyed(self.name)(self._server)
        return await self._server.list_tools(run_context, agent)

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool of the server."""
        if _is_durable():
            call = self._call_tool.keyed(f"{tool_name} {digest(arguments)}")
            return await call(self._server, tool_name, arguments, meta)
        return await self._server.call_tool(tool_name, arguments, meta)

    async def list_prompts(self) -> ListPromptsResult:
        """List the server's prompts."""
        if _is_durable():
            return await self._list_prompts.keyed(self.name)(self._server)
        return await self._server.list_prompts()

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None
    ) -> GetPromptResult:
        """Get a prompt of the server."""
        if _is_durable():
            return await self._get_prompt.keyed(name)(self._server, name, arguments)
        return await self._server.get_prompt(name, arguments)


def _is_durable() -> bool:
    return place() in (Place.WORKFLOW, Place.STEP)
