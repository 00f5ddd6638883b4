"""Execute the calls of in-process tools as steps, effects or workflow code."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, create_sdk_mcp_server
from pydantic import create_model
from pydantic_core import to_jsonable_python

from outlast.api.effect import KEY, Effect
from outlast.api.step import step
from outlast.codec.signature import Unrecorded
from outlast.errors import SettingsError
from outlast.integrations.claude_agent.transcript import Result

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
Call = Callable[["DurableTool", dict[str, Any]], Awaitable[Result]]

CALL: ContextVar[Call | None] = ContextVar("claude_agent_call", default=None)
"""What takes the calls of tools in a durable turn. None elsewhere."""


@dataclass
class DurableTool(SdkMcpTool[Any]):
    """A tool whose calls the workflow executes."""

    execute: Callable[[str, dict[str, Any]], Awaitable[Any]] | None = None
    """Execute the call with this id and these arguments, in the workflow."""

    @property
    def is_read_only(self) -> bool:
        """Return whether the program executes such calls at the same time."""
        hints = self.annotations
        return hints is not None and bool(hints.model_dump(by_alias=True).get("readOnlyHint"))

    async def result(self, call_id: str, arguments: dict[str, Any]) -> Result:
        """Execute a call in the workflow and return its result as the SDK expects it."""
        assert self.execute is not None
        return as_result(await self.execute(call_id, arguments))


def effect_tool(
    effect: Effect[..., Any], *, name: str | None = None, description: str | None = None
) -> SdkMcpTool[Any]:
    """Make an effect a tool: `durable_server("shop", tools=[effect_tool(refund)])`.

    The model sees the effect's name, its docstring and its parameters without the key. The key is
    derived from the tool call, so a call acts once. An exception of the effect ends the turn: the
    model does not get it, because the effect may have happened.
    """
    if not isinstance(effect, Effect):
        raise SettingsError(
            f"effect_tool() takes an async effect, not {effect!r}. Decorate the function "
            "with @effect(timeout=...)."
        )
    signature = inspect.signature(effect.fn)
    hints = inspect.get_annotations(effect.fn, eval_str=True)
    fields = {
        one.name: (
            hints.get(one.name, Any),
            ... if one.default is inspect.Parameter.empty else one.default,
        )
        for one in signature.parameters.values()
        if one.default is not KEY
    }
    model: Any = create_model(effect.name, **cast("dict[str, Any]", fields))

    async def execute(call_id: str, arguments: dict[str, Any]) -> Any:
        given = model.model_validate(arguments)
        values = {one: getattr(given, one) for one in fields}
        return await effect.keyed(call_id)(**values)

    async def outside(arguments: dict[str, Any]) -> Result:
        given = model.model_validate(arguments)
        return as_result(await effect(**{one: getattr(given, one) for one in fields}))

    return DurableTool(
        name=name or effect.name,
        description=description or inspect.getdoc(effect.fn) or "",
        input_schema=model.model_json_schema(),
        handler=outside,
        execute=execute,
    )


def workflow_tool(tool: SdkMcpTool[Any]) -> SdkMcpTool[Any]:
    """Make a tool workflow code: it may call steps, effects, `receive` and child runs.

        @workflow_tool
        @tool("refund", "Pay a customer back", {"order": str})
        async def refund(args: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": await pay_back(args["order"])}]}

    An exception ends the turn.
    """

    async def execute(call_id: str, arguments: dict[str, Any]) -> Any:  # noqa: ARG001
        return await tool.handler(arguments)

    return DurableTool(**_fields(tool), execute=execute)


class DurableServer(dict[str, Any]):
    """The configuration of a server whose tools the workflow executes."""

    def __init__(self, config: McpSdkServerConfig, tools: Mapping[str, DurableTool]) -> None:
        """Extend the SDK's configuration by the tools."""
        super().__init__(config)
        self.tools = tools


def durable_server(
    name: str, version: str = "1.0.0", tools: list[SdkMcpTool[Any]] | None = None
) -> McpSdkServerConfig:
    """Create an in-process MCP server whose tools are durable in `run_turn`.

        shop = durable_server("shop", tools=[look_up, effect_tool(refund)])
        options = ClaudeAgentOptions(mcp_servers={"shop": shop})

    Use it instead of `create_sdk_mcp_server`. Each call of a tool is a step, such as
    `shop.look_up`, unless the tool was made with `effect_tool` or `workflow_tool`. An exception of
    a step is the tool's result, for the model to see. Outside `run_turn` the tools work as before.
    """
    durable = {one.name: _durable(name, one) for one in tools or ()}
    served: list[SdkMcpTool[Any]] = [
        replace(one, handler=_dispatching(one)) for one in durable.values()
    ]
    config = create_sdk_mcp_server(name, version, served)
    return cast("McpSdkServerConfig", DurableServer(config, durable))


def _durable(server: str, tool: SdkMcpTool[Any]) -> DurableTool:
    if isinstance(tool, DurableTool):
        return tool

    async def call(arguments: dict[str, Any], handler: Annotated[Handler, Unrecorded]) -> Result:
        try:
            return as_result(await handler(arguments))
        except Exception as error:
            # As the SDK does: the model sees it.
            return as_result(str(error) or type(error).__name__, is_error=True)

    called = step(name=f"{server}.{tool.name}")(call)

    async def execute(call_id: str, arguments: dict[str, Any]) -> Any:
        return await called.keyed(call_id)(arguments, tool.handler)

    return DurableTool(**_fields(tool), execute=execute)


def _dispatching(tool: DurableTool) -> Handler:
    async def handler(arguments: dict[str, Any]) -> Result:
        call = CALL.get()
        if call is None:
            result: Result = await tool.handler(arguments)
            return result
        return await call(tool, arguments)

    return handler


def durable_tools(servers: Any) -> dict[str, DurableTool]:
    """Return the durable tools of the servers, by the names that the model uses."""
    if not isinstance(servers, Mapping):
        return {}
    return {
        f"mcp__{_safe(server)}__{_safe(tool.name)}": tool
        for server, config in servers.items()
        if isinstance(config, DurableServer)
        for tool in config.tools.values()
    }


def _safe(name: str) -> str:
    """Return a name as it is part of a tool's full name."""
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in name)


def as_result(value: Any, *, is_error: bool = False) -> Result:
    """Return what a tool returned in the form that the SDK expects. Text becomes one block."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return cast("Result", to_jsonable_python(value, fallback=str))
    plain = to_jsonable_python(value, fallback=str)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    result: Result = {"content": [{"type": "text", "text": text}]}
    return {**result, "is_error": True} if is_error else result


def _fields(tool: SdkMcpTool[Any]) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "handler": tool.handler,
        "annotations": tool.annotations,
    }
