"""Execute the operations of an agent as steps and effects.

The name and the key of each call are chosen here, and contain nothing of the framework: a run
that began under one version of it continues under another.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Annotated, Any, Literal, cast

from pydantic import TypeAdapter
from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.toolsets import ToolsetTool
from pydantic_ai.usage import RunUsage

from outlast.api.context import Place, place
from outlast.api.step import Step, step
from outlast.codec.signature import Unrecorded
from outlast.integrations.pydantic_ai.effects import ToolEffects, call_effect
from outlast.integrations.pydantic_ai.messages import digest, record_cost
from outlast.integrations.pydantic_ai.options import (
    StepOptions,
    ToolEffect,
    ToolOptions,
    tool_options,
)

Body = Callable[[], Awaitable[Any]]

MODEL = "model"
"""The name of the step of a model request, streamed or not."""
USAGE = "outlast_usage"
"""The entry of a tool's encoded result that has the usage of the agents that the tool ran."""

_usage: TypeAdapter[RunUsage] = TypeAdapter(RunUsage)


async def _execute(body: Annotated[Body, Unrecorded], call: str = "") -> Any:  # noqa: ARG001
    """Execute one operation. `call` identifies it where keys do not apply: in a step's body."""
    return await body()


class OutlastBackend(JournalCallableOperationBackend[StepOptions | ToolEffect]):
    """Execute each operation of one agent as a step or an effect."""

    def __init__(
        self,
        *,
        agent_name: str,
        default_model_id: str | None,
        model: StepOptions,
        tool: StepOptions,
        tools: dict[str, ToolOptions],
        effects: ToolEffects,
    ) -> None:
        def resolve(
            operation_id: DurableOperationId, found: object | None, name: str
        ) -> StepOptions | ToolEffect | Literal[False]:
            del operation_id
            metadata = found.tool_def.metadata if isinstance(found, ToolsetTool) else None
            return tool_options(name, metadata, tools, tool)

        super().__init__(
            agent_name=agent_name,
            default_model_id=default_model_id,
            config=RoleBasedOperationConfig(
                model=model, event=tool, capability=tool, tool=tool, resolve_tool=resolve
            ),
        )
        self._tool = tool
        self._effects = effects
        self._steps: dict[tuple[str, StepOptions], Step[..., Any]] = {}

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Body,
        cache_key: tuple[Any, ...],
        config: StepOptions | ToolEffect,
    ) -> Any:
        """Execute one operation, and return its recorded result."""
        options = config if isinstance(config, StepOptions) else self._tool
        # In workflow code sync functions execute inline. In a step's body they get their threads
        # back: without an executor, Pydantic AI uses those of anyio.
        with Agent.using_thread_executor(cast("Executor", None)):
            match operation_id:
                case ModelRequestId():
                    return await self._request_model(body, cache_key, options)
                case ToolsetCallToolId():
                    return await self._call_tool(operation_id, body, cache_key, config)
                case ToolsetValidateToolArgumentsId():
                    key = cache_key[2].tool_call_id
                    return await self._call(f"{cache_key[0]}.validate", options, body, key)
                case ToolsetGetToolsId():
                    return await self._call(f"{operation_id.toolset_id}.tools", options, body)
                case ToolsetGetInstructionsId():
                    return await self._call(
                        f"{operation_id.toolset_id}.instructions", options, body
                    )
                case ModelCompactMessagesId():
                    return await self._call("compact", options, body)
                case EventStreamHandlerId():
                    return await self._call("event", options, body)
                case CapabilityOperationId():
                    own = f"{operation_id.capability_id}.{operation_id.operation}"
                    return await self._call(own, options, body)
                case _:
                    return await self._call(name, options, body)

    async def _call(
        self, name: str, options: StepOptions, body: Body, key: str | None = None
    ) -> Any:
        called = self._step(name, options)
        if place() is Place.WORKFLOW:
            return await (called if key is None else called.keyed(key))(body)
        return await (called(body) if key is None else called(body, key))

    def _step(self, name: str, options: StepOptions) -> Step[..., Any]:
        made = self._steps.get((name, options))
        if made is None:
            made = step(
                name=name,
                retries=options.retries,
                backoff=options.backoff,
                backoff_max=options.backoff_max,
                retry_on=options.retry_on,
                timeout=options.timeout,
            )(_execute)
            self._steps[name, options] = made
        return made

    async def _request_model(
        self, body: Body, cache_key: tuple[Any, ...], options: StepOptions
    ) -> Any:
        async def request() -> Any:
            payload = await body()
            record_cost(payload)
            return payload

        # Agents that run at the same time in a step's body have no order, so there a request is
        # identified by what it says.
        key = None if place() is Place.WORKFLOW else digest(cache_key[1])
        return await self._call(MODEL, options, request, key)

    async def _call_tool(
        self,
        operation_id: ToolsetCallToolId,
        body: Body,
        cache_key: tuple[Any, ...],
        config: StepOptions | ToolEffect,
    ) -> Any:
        name: str = cache_key[0]
        ctx: RunContext[Any] = cache_key[2]

        async def call() -> Any:
            return await _with_usage(ctx, body)

        if isinstance(config, ToolEffect):
            made = self._effects.get(operation_id.toolset_id, name, config)
            payload = await call_effect(made, ctx.tool_call_id, cache_key[1], call)
        else:
            payload = await self._call(name, config, call, ctx.tool_call_id)
        used = payload.pop(USAGE, None)
        if used is not None:
            ctx.usage.incr(_usage.validate_python(used))
        return payload


async def _with_usage(ctx: RunContext[Any], body: Body) -> Any:
    """Call a tool, and add the usage of the agents that it ran to its result.

    The run's usage is a mutable object that the workflow reads. The tool gets a copy, so that the
    workflow sees a change when the result is delivered, as in the next life.
    """
    shared = ctx.usage
    before, own = _copied(shared), _copied(shared)
    ctx.usage = own
    try:
        payload = await body()
    finally:
        ctx.usage = shared
    if own != before:
        payload[USAGE] = _usage.dump_python(own - before, mode="json")
    return payload


def _copied(usage: RunUsage) -> RunUsage:
    """Return a copy of a run's usage, which has one mutable field."""
    made = copy.copy(usage)
    made.details = dict(usage.details)
    return made
