"""Measure what durability adds to the turns of an agent of a framework: CPU time.

An agent with a scripted model takes many turns. A turn is one model call and one call of a trivial
tool, so durably it has two steps. The agent executes plainly and durably in turn, in one process,
and the quietest round of each counts: the rest is the machine's noise.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from outlast import Call, Outlast, workflow

TURNS = 50
ROUNDS = 15


class Contest(NamedTuple):
    """The same agent without durability, and as a workflow."""

    plain: Callable[[], Awaitable[object]]
    durable: Callable[[], Call]


def openai_agents() -> Contest:
    """Return an agent of the OpenAI Agents SDK, plain and durable."""
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call

    from outlast.integrations.openai_agents import durable

    set_tracing_disabled(True)

    @function_tool
    async def add(a: int) -> str:
        """Add one."""
        return str(a + 1)

    def agent() -> Agent:
        calls = [[function_call("add", {"a": n}, call_id=f"c{n}")] for n in range(TURNS)]
        model = ScriptedModel([*calls, [assistant_message("done")]])
        return Agent(name="a", model=model, tools=[add])

    async def plain() -> None:
        await Runner.run(agent(), "hi", max_turns=TURNS + 2)

    @workflow(name="openai_agents")
    async def one() -> str:
        result = await Runner.run(durable(agent()), "hi", max_turns=TURNS + 2)
        return str(result.final_output)

    return Contest(plain, one)


def pydantic_ai() -> Contest:
    """Return an agent of Pydantic AI, plain and durable."""
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import UsageLimits

    from outlast.integrations.pydantic_ai import OutlastDurability

    async def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2
        said = ToolCallPart("add", {"a": turn}, f"c{turn}") if turn < TURNS else TextPart("done")
        return ModelResponse(parts=[said])

    def agent(*capabilities: AbstractCapability) -> Agent:
        made = Agent(FunctionModel(script), name="a", capabilities=capabilities)

        @made.tool_plain
        async def add(a: int) -> str:
            return str(a + 1)

        return made

    without, with_it = agent(), agent(OutlastDurability())
    limits = UsageLimits(request_limit=None)

    async def plain() -> None:
        await without.run("hi", usage_limits=limits)

    @workflow(name="pydantic_ai")
    async def one() -> str:
        return (await with_it.run("hi", usage_limits=limits)).output

    return Contest(plain, one)


def langgraph() -> Contest:
    """Return a graph of LangGraph with an agent and its tools, plain and durable."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from outlast.integrations.langgraph import durable_graph

    @tool
    async def add(a: int) -> str:
        """Add one."""
        return str(a + 1)

    async def model(state: MessagesState) -> dict[str, list[AIMessage]]:
        turn = len(state["messages"]) // 2
        calls = [{"name": "add", "args": {"a": turn}, "id": f"c{turn}"}] if turn < TURNS else []
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = builder.compile(name="langgraph")
    config = {"recursion_limit": 3 * TURNS}
    given = {"messages": [("user", "hi")]}
    durable = durable_graph(graph)

    async def plain() -> None:
        await graph.ainvoke(given, config)

    return Contest(plain, lambda: durable(given, config))


def claude_agent() -> Contest:
    """Return an agent of the Claude Agent SDK, plain and durable.

    A stand-in for the SDK's program asks a scripted model in this process. Its own CPU time does
    not count.
    """
    from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, query, tool

    from outlast.integrations.claude_agent import durable_server, run_turn

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/integrations/claude_agent"))
    from messages_api import MessagesApi, blocks, call, text
    from support_claude import stand_in

    def script(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        turn = len(blocks(messages, "tool_result"))
        return [call(f"c{turn}", "mcp__own__add", a=turn)] if turn < TURNS else [text("done")]

    @tool("add", "Add one", {"a": int})
    async def add(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [text(str(args["a"] + 1))]}

    # Both end with the process.
    folder = tempfile.TemporaryDirectory()
    api = MessagesApi(script).__enter__()

    def options(server: Any) -> ClaudeAgentOptions:
        env = {"ANTHROPIC_BASE_URL": api.url, "CLAUDE_CONFIG_DIR": folder.name}
        servers = {"own": server}
        program = stand_in(Path(folder.name))
        return ClaudeAgentOptions(
            cli_path=program,
            cwd=folder.name,
            mcp_servers=servers,
            env=env,
            setting_sources=[],
            strict_mcp_config=True,
            tools=[],
        )

    async def plain() -> None:
        server = create_sdk_mcp_server("own", tools=[add])
        async for _ in query(prompt="hi", options=options(server)):
            pass

    durable_options = options(durable_server("own", tools=[add]))

    @workflow(name="claude_agent")
    async def one() -> str:
        return str((await run_turn("hi", durable_options)).result)

    return Contest(plain, one)


class Framework(NamedTuple):
    """A framework, and how its agent is made."""

    package: str
    contest: Callable[[], Contest]


FRAMEWORKS = {
    "OpenAI Agents": Framework("openai-agents", openai_agents),
    "Pydantic AI": Framework("pydantic-ai-slim", pydantic_ai),
    "LangGraph": Framework("langgraph", langgraph),
    "Claude Agent SDK": Framework("claude-agent-sdk", claude_agent),
}


async def measure(framework: Framework) -> dict[str, Any]:
    """Return the CPU time of a turn, plain and durable, in the quietest round of each."""
    contest = framework.contest()
    async with Outlast("memory:") as app:

        async def durable() -> None:
            await (await app.start(contest.durable())).result()

        for work in (contest.plain, durable):
            await cpu_ms_of(work)
        rounds = [(await cpu_ms_of(contest.plain), await cpu_ms_of(durable)) for _ in range(ROUNDS)]
    plain_ms, durable_ms = (min(times) for times in zip(*rounds, strict=True))
    return {
        "version": version(framework.package),
        "plain_ms": plain_ms,
        "durable_ms": durable_ms,
    }


async def cpu_ms_of(work: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU time of this process per turn, in milliseconds."""
    gc.collect()  # what earlier rounds left is not the work of this one
    before = time.process_time()
    await work()
    return 1000 * (time.process_time() - before) / (TURNS + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    given = parser.parse_args()
    measured = {}
    for name, framework in FRAMEWORKS.items():
        one = measured[name] = asyncio.run(measure(framework))
        if not given.json:
            plain, durable = one["plain_ms"], one["durable_ms"]
            print(
                f"{name}: {durable - plain:.2f} ms of CPU per turn beyond the framework's "
                f"{plain:.2f} ms, {durable / plain:.2f}x"
            )
    if given.json:
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
