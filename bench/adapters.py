"""Measure what durability adds to the calls of an agent of a framework: CPU per model call.

An agent with a scripted model takes many turns, each with a call of a trivial tool. It executes
plainly and durably in turn, in one process, so that the two share the machine's noise.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from outlast import Call, Outlast, workflow

Work = Callable[[], Awaitable[object]]

TURNS = 50
ROUNDS = 9


def cpu_of(work: Work) -> float:
    """Return the CPU seconds of this process for some work."""
    before = time.process_time()
    asyncio.run(_awaited(work))
    return time.process_time() - before


async def _awaited(work: Work) -> None:
    await work()


def openai_agents() -> tuple[Work, Work]:
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

    return plain, _recorded(one)


def pydantic_ai() -> tuple[Work, Work]:
    """Return an agent of Pydantic AI, plain and durable."""
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import UsageLimits

    from outlast.integrations.pydantic_ai import OutlastDurability

    def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
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

    return plain, _recorded(one)


def langgraph() -> tuple[Work, Work]:
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

    return plain, _recorded(lambda: durable(given, config))


def _recorded(call: Callable[[], Call]) -> Work:
    async def recorded() -> None:
        async with Outlast("memory:") as app:
            await (await app.start(call())).result()

    return recorded


FRAMEWORKS = {
    "OpenAI Agents": openai_agents,
    "Pydantic AI": pydantic_ai,
    "LangGraph": langgraph,
}


def measure(name: str) -> str:
    """Return a line with the figures of one framework."""
    plain, recorded = FRAMEWORKS[name]()
    for work in (plain, recorded):
        cpu_of(work)
    pairs = [(cpu_of(plain), cpu_of(recorded)) for _ in range(ROUNDS)]
    per_call = [1000 * (with_it - without) / (TURNS + 1) for without, with_it in pairs]
    ratios = [with_it / without for without, with_it in pairs]
    base = 1000 * statistics.median(without for without, _ in pairs) / (TURNS + 1)
    return (
        f"{name}: {statistics.median(per_call):.2f} ms of CPU per model call and tool call "
        f"({min(per_call):.2f} to {max(per_call):.2f}) beyond the framework's {base:.2f} ms, "
        f"{statistics.median(ratios):.2f}x"
    )


if __name__ == "__main__":
    for framework in FRAMEWORKS:
        print(measure(framework))
