"""A node may learn that its process drains, and end early."""

import asyncio
import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from outlast import current
from outlast.integrations.langgraph import durable_graph


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def test_a_node_ends_early_when_its_process_drains(world):
    reasons = []

    async def patient(state: State, runtime: Runtime) -> State:
        # LangGraph before 1.2 does not tell.
        while not getattr(runtime, "drain_requested", current().draining):
            await asyncio.sleep(1)
        reasons.append(getattr(runtime, "drain_reason", "shutdown"))
        return {"log": ["half"]}

    async def rest(state: State) -> State:
        return {"log": ["rest"]}

    builder = StateGraph(State)
    builder.add_sequence([("patient", patient), ("rest", rest)])
    builder.add_edge(START, "patient")
    graph = durable_graph(builder.compile(name="g"))

    async def drain(app):
        await app.start(graph({"log": []}), id="run")
        await asyncio.sleep(5)
        await app.drain("a deploy")

    world.do(drain)
    assert (reasons, world.status("run")) == (["shutdown"], "queued")
    # The next node has not begun.
    recorded = [entry.key for entry in world.journal() if entry.kind == "step"]
    assert recorded == ["g#1/patient[1]#1"]
    world.restart()
    assert world.run(graph({"log": []})) == {"log": ["half", "rest"]}
    assert reasons == ["shutdown"]
