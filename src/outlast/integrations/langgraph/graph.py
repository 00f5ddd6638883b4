"""Run a compiled graph as a workflow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid5

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.constants import START
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from pydantic import PlainSerializer, PlainValidator

from outlast.api.context import Place, current, place
from outlast.api.scope import scope
from outlast.api.workflow import Workflow
from outlast.errors import NotInRun, SettingsError
from outlast.integrations.langgraph import framework
from outlast.integrations.langgraph.calls import Environment
from outlast.integrations.langgraph.entrypoints import Entrypoint
from outlast.integrations.langgraph.events import EventHandler, Events
from outlast.integrations.langgraph.nodes import NestedGraph, NodeInStep, NodeInWorkflow, Options
from outlast.integrations.langgraph.tools import Tools
from outlast.integrations.langgraph.values import ValueCodec

UNNAMED = "LangGraph"
"""The name of a graph that was compiled without one."""
_MESSAGES = UUID("5d1c9a9e-27bb-4b8f-90d1-8d0a2e4fca55")
"""The namespace of the ids of messages that have none."""


class DurableGraph(Workflow[..., Any]):
    """A graph that runs as a workflow.

    Calling it returns a `Call`, as for every workflow: `app.start(support(input), id="chat-1")`.
    """

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        *,
        name: str,
        timeout: float | None,
        abandon_after: float | None,
        on_event: EventHandler | None,
        workflow_nodes: Collection[str],
        serde: SerializerProtocol | None,
    ) -> None:
        codec = ValueCodec(serde)
        self.graph = graph
        """The graph as it was given."""
        self._durable = Builder(
            Environment(codec, Events(on_event)), frozenset(workflow_nodes)
        ).graph(graph)
        state = Annotated[Any, PlainSerializer(codec.encode), PlainValidator(codec.decode)]

        async def run(input: Any, config: dict[str, Any] | None = None, context: Any = None) -> Any:
            return await self.ainvoke(input, config, context=context)

        run.__annotations__ = {
            "input": state,
            "config": dict[str, Any] | None,
            "context": state,
            "return": state,
        }
        run.__qualname__ = run.__name__ = name
        run.__doc__ = f"Run the graph {name}."
        super().__init__(run, name=name, timeout=timeout, abandon_after=abandon_after)

    async def ainvoke(
        self, input: Any, config: dict[str, Any] | None = None, *, context: Any = None
    ) -> Any:
        """Run the graph as a part of your own workflow, and return its final state.

        Its nodes are steps of that run. Raise NotInRun elsewhere.
        """
        if place() is not Place.WORKFLOW:
            raise NotInRun(
                f"graph {self.name} was invoked outside the code of an async workflow. Start it "
                f"with app.start({self.name}(input)), or use the graph itself."
            )
        more = {} if context is None else {"context": context}
        async with scope(self.name, inline=True):
            return await self._durable.ainvoke(input, config, **more)  # type: ignore[arg-type]


class Builder:
    """Make copies of graphs whose nodes are durable."""

    def __init__(self, env: Environment, workflow_nodes: frozenset[str]) -> None:
        self._env = env
        self._workflow_nodes = workflow_nodes

    def graph(self, graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
        """Return a copy of a graph that executes on a workflow's loop."""
        before, after = graph.interrupt_before_nodes, graph.interrupt_after_nodes
        nodes = {}
        for name, node in graph.nodes.items():
            options = Options(
                name,
                node,
                policies=node.retry_policy or graph.retry_policy or (),
                waits_before=_names(before, name),
                waits_after=_names(after, name),
            )
            nodes[name] = self._node(graph, options)
        return graph.copy(
            {
                "nodes": nodes,
                "channels": {
                    name: _with_stable_ids(channel) for name, channel in graph.channels.items()
                },
                "checkpointer": None,
                "cache": None,
                "cache_policy": None,
                "retry_policy": (),
                "interrupt_before_nodes": (),
                "interrupt_after_nodes": (),
                "config": {
                    name: value
                    for name, value in (graph.config or {}).items()
                    if name != "callbacks"
                },
            }
        )

    def _node(self, graph: Pregel[Any, Any, Any, Any], options: Options) -> framework.PregelNode:
        node, name = options.node, options.name
        if node.node is None or (name == START and options.routers is None):
            return node
        made: NodeInStep | NodeInWorkflow
        if isinstance(node.bound, Pregel):
            made = NestedGraph(self._env, options, self.graph(node.bound))
        elif isinstance(node.bound, ToolNode):
            made = Tools(self._env, options)
        elif _is_entrypoint(graph):
            _check_async(node.bound, name)
            made = Entrypoint(self._env, options)
        elif name == START or name in self._workflow_nodes:
            made = NodeInWorkflow(self._env, options)
        else:
            made = NodeInStep(self._env, options)
        return framework.copy_node(
            node,
            bound=made,
            writers=[],
            retry_policy=None,
            cache_policy=None,
            timeout=None,
            subgraphs=node.subgraphs,
        )


def durable_graph(
    graph: Pregel[Any, Any, Any, Any],
    *,
    name: str | None = None,
    timeout: float | None = None,
    abandon_after: float | None = None,
    on_event: EventHandler | None = None,
    workflow_nodes: Collection[str] = (),
    serde: SerializerProtocol | None = None,
) -> DurableGraph:
    """Make a compiled graph a workflow whose nodes are steps.

        support = durable_graph(builder.compile(name="support"))
        result = run(support({"messages": [("user", "hello")]}), id="chat-1")

    A node executes in a step, together with its routers. Each tool call of a ToolNode is a
    separate step, and the nodes of nested graphs are steps too. `interrupt()` waits for the message
    `interrupt:NODE` to the run.

    - `name`: the workflow's name. The default is the graph's.
    - `timeout`, `abandon_after`: see `workflow`.
    - `on_event`: called with a `GraphEvent` in the step of a node, when it streams something. It
      must not block. After a crash it gets the events of a repeated step again.
    - `workflow_nodes`: the nodes that execute as workflow code. They may call steps, effects and
      children themselves, and must not do I/O.
    - `serde`: what encodes the values of the state that are neither JSON nor messages. The default
      is LangGraph's JsonPlusSerializer.

    Raise SettingsError for a graph without a name, and for a sync entrypoint.
    """
    if not isinstance(graph, Pregel):
        raise SettingsError(f"durable_graph() takes a compiled graph, not {graph!r}.")
    found = name or graph.get_name()
    if found == UNNAMED:
        raise SettingsError(
            "the graph has no name, and its runs are recorded under one. Use compile(name=...), or "
            "durable_graph(graph, name=...)."
        )
    unknown = set(workflow_nodes) - set(graph.nodes)
    if unknown:
        raise SettingsError(f"graph {found} has no node {', '.join(sorted(unknown))}.")
    return DurableGraph(
        graph,
        name=found,
        timeout=timeout,
        abandon_after=abandon_after,
        on_event=on_event,
        workflow_nodes=workflow_nodes,
        serde=serde,
    )


def _names(nodes: Any, name: str) -> bool:
    return (nodes == "*" and name != START) or (nodes != "*" and name in nodes)


def _is_entrypoint(graph: Pregel[Any, Any, Any, Any]) -> bool:
    return not isinstance(graph, CompiledStateGraph) and START in graph.channels


def _check_async(bound: Any, name: str) -> None:
    if getattr(bound, "func", None) is not None:
        raise SettingsError(
            f"entrypoint {name} is sync. It is workflow code, and must be async: "
            f"`async def {name}(...)`, with `await` for its tasks."
        )


def _with_stable_ids(channel: Any) -> Any:
    """Return a channel of messages that gives new messages the same ids in every life."""
    operator = getattr(channel, "operator", None)
    if not isinstance(channel, BinaryOperatorAggregate) or not (
        operator is add_messages or getattr(operator, "func", None) in _ADD_MESSAGES
    ):
        return channel
    made = channel.copy()
    made.operator = partial(_merged, channel.operator)
    return made


_ADD_MESSAGES: tuple[Callable[..., Any], ...] = tuple(
    {add_messages, getattr(add_messages, "func", add_messages)}
)


def _merged(operator: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Give the new messages ids that depend on the run and their position, then merge them.

    LangGraph would give them random ids.
    """
    new = convert_to_messages(right if isinstance(right, list) else [right])
    # Messages that a node wrote have ids: they got them in its step.
    if not all(message.id for message in new):
        _give_stable_ids(left, new)
    return operator(left, new)


def _give_stable_ids(left: Any, new: list[BaseMessage]) -> None:
    known = {message.id for message in left if isinstance(message, BaseMessage)}
    for position, message in enumerate(new, start=len(left)):
        numbers = itertools.count()
        while not message.id:
            text = f"{current().id}/{position}/{next(numbers)}/{message.type}/{message.content}"
            made = str(uuid5(_MESSAGES, text))
            message.id = None if made in known else made
        known.add(message.id)
