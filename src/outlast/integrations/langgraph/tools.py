"""Execute the tool calls of a ToolNode as steps, effects or workflow code."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from outlast.api.effect import KEY, Effect
from outlast.api.step import Step
from outlast.errors import SettingsError
from outlast.integrations.langgraph.calls import (
    GRAPH_PATH,
    Attempt,
    Environment,
    execute,
    node_step,
)
from outlast.integrations.langgraph.framework import runtime_of, with_services
from outlast.integrations.langgraph.inner_tasks import InnerTasks
from outlast.integrations.langgraph.nodes import NodeInWorkflow, Options, step_runtime
from outlast.integrations.langgraph.policies import Activity

Execute = Callable[[ToolCallRequest], Awaitable[Any]]

METADATA = "outlast"
"""The key of a tool's metadata that has WORKFLOW if the tool is workflow code."""
WORKFLOW = "workflow"
RESULT = "result"


def workflow_tool(tool: BaseTool) -> BaseTool:
    """Make a tool workflow code: it may call steps, effects, `receive` and child runs.

    @workflow_tool
    @tool
    async def refund(order: str) -> str:
        "Pay a customer back."
        return await pay_back(order)    # an effect
    """
    return tool.model_copy(update={"metadata": {**(tool.metadata or {}), METADATA: WORKFLOW}})


def effect_tool(effect: Effect[..., Any], **options: Any) -> BaseTool:
    """Make an effect a tool: `ToolNode([effect_tool(refund)])`.

    The model sees the effect's name, its docstring and its parameters without the key. The key is
    derived from the tool call, so a call acts once. `options` are those of
    `StructuredTool.from_function`.
    """
    if not isinstance(effect, Effect):
        raise SettingsError(
            f"effect_tool() takes an async effect, not {effect!r}. Decorate the function "
            "with @effect(timeout=...)."
        )
    signature = inspect.signature(effect.fn)
    hints = inspect.get_annotations(effect.fn, eval_str=True)
    visible = [one for one in signature.parameters.values() if one.default is not KEY]
    call_id = inspect.Parameter(
        CALL_ID, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, InjectedToolCallId]
    )

    async def call(**given: Any) -> Any:
        made = effect.keyed(given.pop(CALL_ID))
        try:
            return await made(**given)
        except Exception as error:
            # An error of the act must reach the workflow, not the model: it may have happened.
            raise ToolFailed(error) from error

    call.__doc__ = effect.fn.__doc__
    call.__dict__["__signature__"] = signature.replace(parameters=[*visible, call_id])
    call.__annotations__ = {
        **{one.name: hints[one.name] for one in visible if one.name in hints},
        CALL_ID: Annotated[str, InjectedToolCallId],
    }
    options = {"name": effect.name, **options}
    return workflow_tool(StructuredTool.from_function(coroutine=call, **options))


CALL_ID = "outlast_call_id"
"""The parameter of an effect's tool that takes the id of the tool call. Models do not see it."""


class ToolFailed(GraphBubbleUp):
    """A tool's error on its way through a ToolNode, which would turn it into a message."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Tools(NodeInWorkflow):
    """Execute a ToolNode: each tool call is a step, with the id of the call as its key."""

    def __init__(self, env: Environment, options: Options) -> None:
        super().__init__(env, options)
        self._steps: dict[str, Step[..., Any]] = {}

    async def _call_node(
        self, input: Any, config: RunnableConfig, label: str, memory: dict[Any, Any]
    ) -> Any:
        bound = copy.copy(self._options.node.bound)
        assert isinstance(bound, ToolNode)
        wrapper = bound._awrap_tool_call
        sync_wrapper = bound._wrap_tool_call

        async def wrapped(request: ToolCallRequest, call: Execute) -> Any:
            durable = partial(self._call_tool, call, label, memory)
            if wrapper is not None:
                return await wrapper(request, durable)
            if sync_wrapper is not None:
                call_all = _in_thread(sync_wrapper, call)
                durable = partial(self._call_tool, call_all, label, memory)
            try:
                return await durable(request)
            except GraphBubbleUp:
                raise
            except Exception as error:
                raise ToolFailed(error) from error

        bound._awrap_tool_call = wrapped
        bound.afunc = bound._afunc
        try:
            return await bound.ainvoke(input, config)
        except ToolFailed as failed:
            raise failed.error from failed.error.__cause__

    async def _call_tool(
        self, call: Execute, label: str, memory: dict[Any, Any], request: ToolCallRequest
    ) -> Any:
        """Call a tool, once per id of a call even if the node is tried again."""
        call_id = request.tool_call.get("id") or ""
        made = memory.get(call_id)
        if made is None or not call_id or (made.done() and made.exception() is not None):
            work = (
                call(request)
                if is_workflow_code(request.tool)
                else self._in_tool_step(call, request, call_id or label)
            )
            made = memory[call_id] = asyncio.ensure_future(work)
        return await made

    async def _in_tool_step(self, call: Execute, request: ToolCallRequest, key: str) -> Any:
        name = request.tool_call["name"]
        if name not in self._steps:
            self._steps[name] = node_step(name)
        label = f"{GRAPH_PATH.get()}{self._options.name}:{key}"
        work = partial(self._tool_body, call, request, label)
        outcome = await execute(self._env, self._steps[name], key, label, (), work)
        return self._env.codec.decode(outcome[RESULT])

    async def _tool_body(
        self, call: Execute, request: ToolCallRequest, label: str, attempt: Attempt
    ) -> dict[str, Any]:
        """Execute a tool in a step's body."""
        given = request.runtime
        runtime = step_runtime(
            runtime_of(given.config), self._env.events.writer(label), Activity(), attempt.failures
        )
        tasks = InnerTasks(self._env.codec, attempt)
        own, _ = with_services(
            given.config, answers=attempt.answers, runtime=runtime, call=tasks.call
        )
        mine = replace(given, config=own, stream_writer=runtime.stream_writer)
        tool = None if request.tool is None else ToolWithConfig(request.tool, own)
        result = await call(replace(request, tool=tool, runtime=mine))  # type: ignore[arg-type]
        return {RESULT: self._env.codec.encode(result)}


class ToolWithConfig:
    """A tool that executes with a config of its own, whatever its node passes."""

    def __init__(self, tool: BaseTool, config: RunnableConfig) -> None:
        self._tool = tool
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None) -> Any:
        """Execute the tool with its own config."""
        return await self._tool.ainvoke(input, self._config)


def is_workflow_code(tool: BaseTool | None) -> bool:
    """Return whether a tool was made workflow code."""
    return tool is not None and (tool.metadata or {}).get(METADATA) == WORKFLOW


def _in_thread(wrapper: Callable[..., Any], call: Execute) -> Execute:
    """Return an async form of a sync wrapper around a tool call, for a step's body."""

    async def wrapped(request: ToolCallRequest) -> Any:
        loop = asyncio.get_running_loop()

        def call_and_wait(inner: ToolCallRequest) -> Any:
            return asyncio.run_coroutine_threadsafe(_awaited(call, inner), loop).result()

        return await asyncio.to_thread(wrapper, request, call_and_wait)

    return wrapped


async def _awaited(call: Execute, request: ToolCallRequest) -> Any:
    return await call(request)
