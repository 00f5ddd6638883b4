"""Measure what durability adds to the calls of an agent of a framework: CPU per model call.

An agent with a scripted model takes many turns, each with a call of a trivial tool. It executes
plainly and durably in turn, in one process, so that the two share the machine's noise.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from outlast import Outlast, workflow

TURNS = 50
ROUNDS = 9


def cpu_of(work: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU seconds of this process for some work."""
    before = time.process_time()
    asyncio.run(_awaited(work))
    return time.process_time() - before


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


def openai_agents() -> tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]:
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

    @workflow
    async def one() -> str:
        result = await Runner.run(durable(agent()), "hi", max_turns=TURNS + 2)
        return str(result.final_output)

    async def recorded() -> None:
        async with Outlast("memory:") as app:
            await (await app.start(one())).result()

    return plain, recorded


FRAMEWORKS = {"OpenAI Agents": openai_agents}


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
