"""Make an agent durable, with everything that it reaches."""

from __future__ import annotations

from typing import Any, TypeVar

from agents import Agent, FunctionTool, ModelProvider, MultiProvider
from agents.mcp import MCPServer

from outlast.errors import SettingsError
from outlast.integrations.openai_agents.mcp_servers import DurableMCPServer
from outlast.integrations.openai_agents.models import DurableModel, OnEvent
from outlast.integrations.openai_agents.tools import durable_tool

AnyAgent = TypeVar("AnyAgent", bound=Agent[Any])


def durable(
    agent: AnyAgent,
    *,
    model_provider: ModelProvider | None = None,
    on_event: OnEvent | None = None,
) -> AnyAgent:
    """Make an agent durable and return it. It is changed in place.

        agent = durable(Agent(name="Support", tools=[search]))

    In a workflow, each model call, tool call and call of an MCP server is a step: after a crash it
    is not made again. Agents that this one hands off to, or uses as tools, become durable too.
    Elsewhere the agent works as before.

    - `model_provider` finds models by name. The default is that of the SDK.
    - `on_event` gets each event of a streamed response while it arrives, in the step. After a
      crash it gets those of the repeated request.
    """
    if not isinstance(agent, Agent):
        raise SettingsError(f"durable() takes an agent of the OpenAI Agents SDK, not {agent!r}.")
    provider = model_provider or MultiProvider()
    seen: dict[int, Agent[Any]] = {}
    waiting: list[Agent[Any]] = [agent]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            waiting += _reached_from(one)
    _check_names(list(seen.values()))
    for one in seen.values():
        _change(one, provider, on_event)
    return agent


def _reached_from(agent: Agent[Any]) -> list[Agent[Any]]:
    """Return the agents that this one hands off to, and those that are its tools."""
    found: list[Any] = []
    for handoff in agent.handoffs:
        reference = getattr(handoff, "_agent_ref", None)
        found.append(handoff if isinstance(handoff, Agent) else reference and reference())
    found += [getattr(tool, "_agent_instance", None) for tool in agent.tools]
    return [one for one in found if isinstance(one, Agent)]


def _check_names(agents: list[Agent[Any]]) -> None:
    names = [agent.name for agent in agents]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingsError(
            f"two agents are named {', '.join(map(repr, twice))}: the names of their steps would "
            "be equal. Rename one."
        )


def _change(agent: Agent[Any], provider: ModelProvider, on_event: OnEvent | None) -> None:
    if not isinstance(agent.model, DurableModel):
        agent.model = DurableModel(agent.name, agent.model, provider, on_event)
    agent.tools = [
        durable_tool(agent.name, tool)
        if isinstance(tool, FunctionTool) and not _runs_agent(tool)
        else tool
        for tool in agent.tools
    ]
    agent.mcp_servers = [
        server if isinstance(server, DurableMCPServer) else DurableMCPServer(agent.name, server)
        for server in agent.mcp_servers
        if isinstance(server, MCPServer)
    ]


def _runs_agent(tool: FunctionTool) -> bool:
    """Return whether a tool runs an agent: its model calls and tool calls are steps then."""
    return isinstance(getattr(tool, "_agent_instance", None), Agent)
