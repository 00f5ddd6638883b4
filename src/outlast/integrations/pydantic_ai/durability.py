"""Define `OutlastDurability`: the capability that makes a Pydantic AI agent durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai import Agent, AgentRunResult, RunContext
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities import WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityCodec,
    DurabilityEngineSpec,
    DurableOperationBackend,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)

from outlast.api.context import Place, now, place, receive, uuid
from outlast.api.scope import scope
from outlast.errors import NotInRun, Unrecordable
from outlast.integrations.pydantic_ai.backend import OutlastBackend
from outlast.integrations.pydantic_ai.effects import ToolEffects
from outlast.integrations.pydantic_ai.messages import Timestamps
from outlast.integrations.pydantic_ai.options import METADATA, StepOptions, ToolOptions

_TIMESTAMPS: ContextVar[Timestamps | None] = ContextVar("outlast_timestamps", default=None)
"""The timestamps of the agent's run around the current code."""

_INLINE = Executor()
"""Makes Pydantic AI call the loop's `run_in_executor`, which executes inline. It starts no thread.
"""


class _Codec(DurabilityCodec):
    """Encode results as JSON.

    A recorded result that does not fit raises Unrecordable. Pydantic AI would take a
    ValidationError for wrong arguments of the model, and let it call the tool again.
    """

    def dump(self, tp: Any, value: Any) -> Any:
        return JSON_CODEC.dump(tp, value)

    def load(self, tp: Any, payload: Any) -> Any:
        try:
            return JSON_CODEC.load(tp, payload)
        except ValidationError as error:
            raise Unrecordable(f"a recorded result is not {tp}: {error}") from error


class OutlastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Make an agent durable: `Agent(..., name="support", capabilities=[OutlastDurability()])`.

    In a workflow each model request and each tool call is a step. Elsewhere the agent behaves as
    if the capability were not there. The agent needs a name, which is part of its steps' keys.

    - `model`, `tool`: the options of the steps of model requests and of tools.
    - `tools`: options by tool name. They precede the tool's `metadata={"outlast": ...}`.
    - `deferred`: with "receive", a call that needs approval waits for the message
      `approval:ID`, and an external call for `result:ID`, where ID is the tool call's. With
      "return", the agent's run ends with DeferredToolRequests.
    - `event_stream_handler` gets the events of a model's stream live, in the step.
    - `models`: other model instances that runs use, by name.
    - `name`: a name other than the agent's.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Outlast",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=_Codec(),
        toolset_lifecycles={
            "function": "enter-never",
            "mcp": "enter-never",
            "dynamic": "enter-never",
        },
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        model: StepOptions | None = None,
        tool: StepOptions | None = None,
        tools: Mapping[str, ToolOptions] | None = None,
        deferred: Literal["receive", "return"] = "receive",
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        models: Mapping[str, Model] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model = model or StepOptions()
        self._tool = tool or StepOptions()
        self._tools = dict(tools or {})
        self._deferred = deferred
        self._backend: OutlastBackend | None = None

    # -- where the agent runs

    @property
    def in_durable_context(self) -> bool:
        """Return whether the agent's calls are recorded: in a workflow and in a step's body."""
        return place() in (Place.WORKFLOW, Place.STEP)

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        """Return what executes the agent's operations. Pydantic AI calls it on a bound copy."""
        if self._backend is None:
            assert self.agent is not None
            self._backend = OutlastBackend(
                agent_name=self.name,
                default_model_id=self.default_model_id,
                model=self._model,
                tool=self._tool,
                tools=self._tools,
                effects=ToolEffects(self.agent, self.name, self._tools),
            )
        return self._backend

    async def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Execute a run of the agent in its own scope."""
        where = place()
        if where is Place.SYNC_WORKFLOW:
            raise NotInRun(
                f"agent {self.name} was run in a sync workflow, where nothing of it would be "
                "recorded. Make the workflow async and use `await agent.run(...)`."
            )
        if where is not Place.WORKFLOW:
            return await handler()
        token = _TIMESTAMPS.set(Timestamps())
        try:
            with (
                scope(self.name, inline=True, in_task=False),
                Agent.using_thread_executor(_INLINE),
            ):
                return await handler()
        finally:
            _TIMESTAMPS.reset(token)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Execute a tool that is workflow code in its own scope.

        Otherwise the calls of parallel tools would be numbered in the order of their tasks.
        """
        stated = self._tools.get(call.tool_name, (tool_def.metadata or {}).get(METADATA))
        if stated is not False or place() is not Place.WORKFLOW:
            return await handler(args)
        async with scope(f"{call.tool_name}:{call.tool_call_id}", in_task=False):
            return await handler(args)

    # -- what differs from life to life

    def get_default_run_id(self) -> str | None:
        """Return an id for a run of the agent that is the same in every life."""
        if place() is not Place.WORKFLOW:
            return None
        with scope(f"{self.name}.id", in_task=False):
            return str(uuid())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id for a new conversation that is the same in every life."""
        return conversation_id_from_run_id(run_id) if place() is Place.WORKFLOW else None

    def get_run_clock(self) -> Callable[[], datetime] | None:
        """Return the clock for the deadline of a run of the agent."""
        return _now if place() is Place.WORKFLOW else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return when a run of the agent began."""
        del run_id
        return now() if place() is Place.WORKFLOW else None

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Set the timestamps of the request's messages to the run's time."""
        self._stamp(ctx)
        return await super().before_model_request(ctx, request_context)

    async def after_run(
        self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Set the timestamps of the last messages, such as the result of an output tool."""
        self._stamp(ctx)
        return await super().after_run(ctx, result=result)

    def _stamp(self, ctx: RunContext[AgentDepsT]) -> None:
        timestamps = _TIMESTAMPS.get()
        if timestamps is not None and place() is Place.WORKFLOW:
            timestamps.stamp(ctx.messages, ctx.run_id, now())

    # -- people

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Wait for the messages that approve tool calls or bring their results."""
        if self._deferred == "return" or place() is not Place.WORKFLOW:
            return None
        results = DeferredToolResults()
        for call in requests.approvals:
            id = call.tool_call_id
            results.approvals[id] = await receive(f"approval:{id}", _APPROVAL)
        for call in requests.calls:
            id = call.tool_call_id
            results.calls[id] = await receive(f"result:{id}")
        return results


_APPROVAL: Any = bool | ToolApproved | ToolDenied


def _now() -> datetime:
    """Return the run's time in workflow code, and the system's in the body of a step."""
    return now() if place() is Place.WORKFLOW else datetime.now(UTC)
