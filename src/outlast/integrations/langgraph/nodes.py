"""Execute the nodes of a graph durably."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID, uuid4, uuid5

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy

from outlast.api import context
from outlast.api.context import Current, current
from outlast.api.scope import scope
from outlast.api.step import Step
from outlast.errors import Unrecordable
from outlast.integrations.langgraph import framework
from outlast.integrations.langgraph.calls import (
    GRAPH_PATH,
    Attempt,
    Environment,
    Work,
    ask,
    execute,
    node_step,
)
from outlast.integrations.langgraph.inner_tasks import InnerTasks
from outlast.integrations.langgraph.policies import Activity, bounded, find_policy, pause
from outlast.integrations.langgraph.values import give_ids, own_copy

try:
    from langgraph.runtime import RunControl
except ImportError:  # before 1.2
    RunControl = None  # type: ignore[assignment, misc]

WRITES = "writes"
_TASKS = UUID("b6a5be8f-6ad3-4b04-9d5a-0d7d3ed8d3a6")
"""The namespace of the ids of tasks that nodes see."""


class Options:
    """How one node of a graph is executed."""

    def __init__(
        self,
        name: str,
        node: framework.PregelNode,
        *,
        policies: Sequence[RetryPolicy] = (),
        waits_before: bool = False,
        waits_after: bool = False,
    ) -> None:
        self.name = name
        self.node = node
        self.policies = tuple(policies)
        self.waits_before = waits_before
        """Whether a message must arrive before the node executes: `interrupt_before`."""
        self.waits_after = waits_after
        self.timeout: Any = getattr(node, "timeout", None)
        plain = [one for one in node.writers if isinstance(one, framework.ChannelWrite)]
        routing = [one for one in node.writers if not isinstance(one, framework.ChannelWrite)]
        self.writers = framework.as_runnable(node, plain)
        """What turns the output of the node into writes. LangGraph's own code."""
        self.routers = framework.as_runnable(node, routing)
        """The functions of conditional edges. The user's code."""


class DurableNode(Runnable[Any, Any]):
    """Stand in for a node in the graph that executes on the workflow's loop."""

    def __init__(self, env: Environment, options: Options) -> None:
        self._env = env
        self._options = options
        self._step = node_step(options.name)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Refuse a sync call: durable graphs are async."""
        raise NotImplementedError("a durable graph is executed by ainvoke()")

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> None:
        """Execute the node, and hand what it wrote to the graph."""
        assert config is not None
        task = framework.task_of(config)
        index = "" if task.index is None else f":{task.index}"
        label = f"{GRAPH_PATH.get()}{self._options.name}{index}"
        if self._options.waits_before:
            await ask(self._env, label)
        framework.replace_writes(config, await self._writes(input, config, task.key, label))
        if self._options.waits_after:
            await ask(self._env, label)

    async def _writes(
        self, input: Any, config: RunnableConfig, key: str, label: str
    ) -> framework.Writes:
        raise NotImplementedError

    async def _in_step(
        self, called: Step[..., Any], key: str, label: str, work: Work
    ) -> framework.Writes:
        """Execute a body in steps and return what it wrote."""
        outcome = await execute(self._env, called, key, label, self._options.policies, work)
        decode = self._env.codec.decode
        return [(channel, decode(value)) for channel, value in outcome[WRITES]]

    async def _body(
        self,
        runnable: Runnable[Any, Any],
        input: Any,
        config: RunnableConfig,
        label: str,
        written: framework.Writes,
        attempt: Attempt,
    ) -> dict[str, Any]:
        """Execute a runnable in a step's body and return its writes as plain JSON.

        It reads the state as if `written` had been written before.
        """
        options = self._options
        seen = Activity()
        runtime = step_runtime(
            framework.runtime_of(config), self._env.events.writer(label), seen, attempt.failures
        )
        tasks = InnerTasks(self._env.codec, attempt)
        own, writes = framework.with_services(
            config, answers=attempt.answers, runtime=runtime, call=tasks.call
        )
        writes.extend(written)
        own = self._env.events.attach(own, label)
        work = runnable.ainvoke(own_copy(input), own)
        try:
            if options.timeout is None:
                await work
            else:
                await bounded(work, options.name, options.timeout, seen)
        except ParentCommand as error:
            command = error.args[0]
            if not framework.is_for_graph(command.graph, config, options.name):
                raise
            for writer in options.node.writers:
                await writer.ainvoke(command, own)
        made = framework.without_answers(itertools.islice(writes, len(written), None))
        return {WRITES: self._encoded(made)}

    def _encoded(self, writes: framework.Writes) -> list[Any]:
        encoded = []
        for channel, value in writes:
            give_ids(value, lambda: str(uuid4()))
            try:
                encoded.append([channel, self._env.codec.encode(value)])
            except Unrecordable as error:
                raise Unrecordable(
                    f"node {self._options.name}, {channel!r} of its result: {error}"
                ) from error
        return encoded


class NodeInStep(DurableNode):
    """Execute a node together with its routers in one step."""

    async def _writes(
        self, input: Any, config: RunnableConfig, key: str, label: str
    ) -> framework.Writes:
        runnable = self._options.node.node
        assert runnable is not None
        work = partial(self._body, runnable, input, config, label, ())
        return await self._in_step(self._step, key, label, work)


class NodeInWorkflow(DurableNode):
    """Execute a node as workflow code, and its routers in a step.

    The base of nested graphs, tool nodes and entrypoints, which call steps themselves.
    """

    def __init__(self, env: Environment, options: Options) -> None:
        super().__init__(env, options)
        self._router = node_step(f"{options.name}:route")

    async def _writes(
        self, input: Any, config: RunnableConfig, key: str, label: str
    ) -> framework.Writes:
        answers: list[Any] = []
        failures = 0
        memory: dict[Any, Any] = {}
        while True:
            try:
                async with scope(f"{self._options.name}:{key}"):
                    return await self._attempt(input, config, key, label, answers, memory)
            except GraphInterrupt:
                answers.append(await ask(self._env, label))
            except Exception as error:
                failures += 1
                policy = find_policy(self._options.policies, error, failures)
                if policy is None:
                    raise
                await context.sleep(pause(policy, failures, context.random()))

    async def _attempt(
        self,
        input: Any,
        config: RunnableConfig,
        key: str,
        label: str,
        answers: list[Any],
        memory: dict[Any, Any],
    ) -> framework.Writes:
        runtime = framework.runtime_of(config).override(
            stream_writer=self._env.events.writer(label)
        )
        own, writes = framework.with_services(
            config, answers=answers, runtime=runtime, call=self._call(config, memory)
        )
        try:
            with_events = self._env.events.attach(own, label)
            framework.set_current_config(with_events)
            output = await self._call_node(input, with_events, label, memory)
        except ParentCommand as error:
            output = error.args[0]
            if not framework.is_for_graph(output.graph, config, self._options.name):
                raise
        if self._options.writers is not None:
            await self._options.writers.ainvoke(output, own)
        written = framework.without_answers(writes)
        if self._options.routers is None:
            return written
        work = partial(self._body, self._options.routers, output, config, label, written)
        return [*written, *await self._in_step(self._router, key, label, work)]

    def _call(self, config: RunnableConfig, memory: dict[Any, Any]) -> Callable[..., Any] | None:
        """Return the function that schedules a `@task`, or None for LangGraph's own."""
        return None

    async def _call_node(
        self, input: Any, config: RunnableConfig, label: str, memory: dict[Any, Any]
    ) -> Any:
        """Call the node. `memory` is kept for the next attempt."""
        return await self._options.node.bound.ainvoke(input, config)


class NestedGraph(NodeInWorkflow):
    """Execute a graph that is a node of another one. Its own nodes are durable."""

    def __init__(self, env: Environment, options: Options, graph: Runnable[Any, Any]) -> None:
        super().__init__(env, options)
        self._graph = graph

    async def _call_node(
        self, input: Any, config: RunnableConfig, label: str, memory: dict[Any, Any]
    ) -> Any:
        outer = GRAPH_PATH.get()
        GRAPH_PATH.set(f"{label}/")
        try:
            return await self._graph.ainvoke(input, config)
        finally:
            GRAPH_PATH.set(outer)


def step_runtime(
    runtime: Runtime[Any], writer: Callable[[Any], None], seen: Activity, failures: int
) -> Runtime[Any]:
    """Return the runtime that a node gets in a step's body."""

    def write(chunk: Any) -> None:
        seen.touch()
        writer(chunk)

    changes: dict[str, Any] = {"stream_writer": write}
    if framework.has_field(Runtime, "heartbeat"):
        changes["heartbeat"] = seen.touch
    if RunControl is not None:
        changes["control"] = StepControl(current())
    info = getattr(runtime, "execution_info", None)
    if info is not None:
        here = current()
        place = (here.step or "").rpartition("#")[0]
        changes["execution_info"] = info.patch(
            task_id=str(uuid5(_TASKS, f"{here.id}/{place}")), node_attempt=failures + 1
        )
    return runtime.override(**changes)


if RunControl is not None:

    class StepControl(RunControl):
        """Tell a node whether its process is shutting down.

        The graph itself needs no such signal: a workflow stops at its next step.
        """

        __slots__ = ("_current",)

        def __init__(self, here: Current) -> None:
            super().__init__()
            self._current = here

        @property
        def drain_requested(self) -> bool:
            """Return whether a drain has begun, here or in the process."""
            return super().drain_requested or self._current.draining

        @property
        def drain_reason(self) -> str | None:
            """Return why, or None."""
            return super().drain_reason or ("shutdown" if self._current.draining else None)
