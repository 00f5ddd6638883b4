"""Execute the calls of an MCP server as steps, with one session per execution of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypeVar

from agents.mcp import MCPServer
from anyio import BrokenResourceError, ClosedResourceError
from mcp.types import CONNECTION_CLOSED, CallToolResult, GetPromptResult, ListPromptsResult
from mcp.types import Tool as MCPTool

from outlast.api.context import Place, place
from outlast.api.resource import resource
from outlast.api.step import step
from outlast.codec.signature import Unrecorded
from outlast.integrations.openai_agents.responses import digest

T = TypeVar("T")


@resource
async def _connected(server: MCPServer) -> AsyncIterator[MCPServer]:
    """Keep a server connected as long as one execution of a run lasts."""
    if getattr(server, "session", None) is not None:
        # The program has connected it, and closes it.
        yield server
        return
    async with server:  # type: ignore[attr-defined]
        yield server


async def _read(server: MCPServer, call: Callable[[MCPServer], Awaitable[T]]) -> T:
    """Make a call that changes nothing. If the connection was lost, make it on a new one."""
    try:
        return await _call(server, call)
    except Exception as error:
        if not _is_lost_connection(error):
            raise
    return await _call(server, call)


async def _call(server: MCPServer, call: Callable[[MCPServer], Awaitable[T]]) -> T:
    """Make a call. If the connection is lost, raise, and let the next call connect again."""
    connected = await _connected(server)
    session = getattr(connected, "session", None)
    try:
        return await call(connected)
    except Exception as error:
        # A call at the same time may have connected again already.
        if _is_lost_connection(error) and getattr(server, "session", None) is session:
            await _connected.close(server)
        raise


def _is_lost_connection(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is that the connection was lost."""
    while error is not None:
        code = getattr(getattr(error, "error", None), "code", None)
        lost = (BrokenResourceError, ClosedResourceError, ConnectionError)
        if code == CONNECTION_CLOSED or isinstance(error, lost):
            return True
        error = error.__cause__
    return False


class DurableMCPServer(MCPServer):
    """An MCP server whose calls are steps in a workflow, and plain calls elsewhere.

    The first step that needs it connects it, unless the program has connected it. If the connection
    is lost, a call of a tool fails as it does without Outlast, and the next step connects again.
    """

    def __init__(self, agent: str, server: MCPServer) -> None:
        """Wrap a server."""
        super().__init__()
        # Take over its options, such as its approval policy.
        vars(self).update({name: vars(server)[name] for name in vars(self) & vars(server).keys()})
        self._server = server
        prefix = f"{agent}.{server.name}"

        async def list_tools(server: Annotated[MCPServer, Unrecorded]) -> list[MCPTool]:
            return await _read(server, lambda connected: connected.list_tools())

        async def call_tool(
            server: Annotated[MCPServer, Unrecorded],
            name: str,
            arguments: dict[str, Any] | None,
            meta: Annotated[dict[str, Any] | None, Unrecorded],
        ) -> CallToolResult:
            return await _call(server, lambda connected: connected.call_tool(name, arguments, meta))

        async def list_prompts(server: Annotated[MCPServer, Unrecorded]) -> ListPromptsResult:
            return await _read(server, lambda connected: connected.list_prompts())

        async def get_prompt(
            server: Annotated[MCPServer, Unrecorded], name: str, arguments: dict[str, Any] | None
        ) -> GetPromptResult:
            return await _read(server, lambda connected: connected.get_prompt(name, arguments))

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
