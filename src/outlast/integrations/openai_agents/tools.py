"""Execute the calls of tools as steps, effects or workflow code."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from agents import FunctionTool, function_tool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext
from pydantic import TypeAdapter

from outlast.api.context import Place, place
from outlast.api.effect import KEY, Effect
from outlast.api.step import Step, step
from outlast.codec.signature import Unrecorded
from outlast.errors import SettingsError
from outlast.integrations.openai_agents.errors import OpenAIErrorCodec

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
INLINE = "_outlast_inline"
"""The attribute of a tool that executes as workflow code."""

Output = ToolOutputText | ToolOutputImage | ToolOutputFileContent
_output: TypeAdapter[Any] = TypeAdapter(Output)


def workflow_tool(tool: FunctionTool) -> FunctionTool:
    """Make a tool workflow code: it may call steps, effects, `receive` and child runs.

    @workflow_tool
    @function_tool
    async def refund(order: str) -> str:
        return await pay_back(order)    # an effect
    """
    tool = copy.copy(tool)
    setattr(tool, INLINE, True)
    return tool


def effect_tool(effect: Effect[..., Any], **options: Any) -> FunctionTool:
    """Make an effect a tool: `tools=[effect_tool(refund)]`.

    The model sees the effect's name, its docstring and its parameters without the key. The key is
    derived from the tool call, so a call acts once. `options` are those of `function_tool`.
    """
    if not isinstance(effect, Effect):
        raise SettingsError(
            f"effect_tool() takes an async effect, not {effect!r}. Decorate the function "
            "with @effect(timeout=...)."
        )
    signature = inspect.signature(effect.fn)
    visible = [one for one in signature.parameters.values() if one.default is not KEY]

    @functools.wraps(effect.fn)
    async def call(context: ToolContext[Any], *args: Any, **kwargs: Any) -> Any:
        return await effect.keyed(context.tool_call_id)(*args, **kwargs)

    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ToolContext[Any]
    )
    hints = inspect.get_annotations(effect.fn, eval_str=True)
    call.__dict__["__signature__"] = signature.replace(parameters=[first, *visible])
    call.__annotations__ = {
        "context": ToolContext[Any],
        **{one.name: hints[one.name] for one in visible if one.name in hints},
    }
    del call.__wrapped__
    # An error of the act must reach the workflow, not the model: it may have happened.
    options = {"name_override": effect.name, "failure_error_function": None, **options}
    return workflow_tool(function_tool(call, **options))


def durable_tool(agent: str, tool: FunctionTool) -> FunctionTool:
    """Return a copy of a tool whose calls are steps in a workflow."""
    if getattr(tool, INLINE, False):
        return tool
    called: Step[..., Any] = step(name=f"{agent}.{tool.name}", errors=OpenAIErrorCodec())(_execute)
    invoke = tool.on_invoke_tool

    async def on_invoke_tool(context: ToolContext[Any], arguments: str) -> Any:
        async def body() -> Any:
            return _encode(await invoke(context, arguments))

        match place():
            case Place.WORKFLOW:
                return _decode(await called.keyed(context.tool_call_id)(body, arguments))
            case Place.STEP:
                return _decode(await called(body, f"{context.tool_call_id} {arguments}"))
            case _:
                return await invoke(context, arguments)

    made = copy.copy(tool)
    made.on_invoke_tool = on_invoke_tool
    setattr(made, INLINE, True)
    return made


async def _execute(body: Annotated[Any, Unrecorded], arguments: str) -> Any:  # noqa: ARG001
    """Call a tool. The arguments are those that the model gave, as recorded text."""
    return await body()


def _encode(output: Any) -> dict[str, Any]:
    """Return a tool's output as JSON. What is neither text nor a tool output becomes its text."""
    if isinstance(output, list) and output and all(isinstance(one, Output) for one in output):
        return {"list": [_output.dump_python(one, mode="json") for one in output]}
    if isinstance(output, Output):
        return {"output": _output.dump_python(output, mode="json")}
    return {"text": output if isinstance(output, str) else str(output)}


def _decode(recorded: dict[str, Any]) -> Any:
    if "list" in recorded:
        return [_output.validate_python(one) for one in recorded["list"]]
    if "output" in recorded:
        return _output.validate_python(recorded["output"])
    return recorded["text"]
