"""Write an article with a LangGraph graph, and publish it when a person agrees.

python examples/langgraph_agent.py                    # researches and writes, then asks
outlast send article-1 interrupt:review true          # or false: then it writes another draft

pip install 'outlast[langgraph]'. Kill it in any node or while it waits (kill -9 or Ctrl-C), then
start it again. Only the nodes that were in flight execute again, and published.txt has one line.
"""

import asyncio
import operator
import time
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from outlast import KEY, Happened, current, effect, run
from outlast.integrations.langgraph import durable_graph

PUBLISHED = Path("published.txt")  # stands for the website, which can be asked


class State(TypedDict, total=False):
    topics: list[str]
    topic: str
    found: Annotated[list[str], operator.add]
    draft: str
    drafts: Annotated[int, operator.add]
    agreed: bool


def plan(state: State) -> list[Send]:
    return [Send("research", {"topic": topic}) for topic in state["topics"]]


def research(state: State) -> State:
    # Both nodes print at the same time, from threads: write the line in one piece.
    print(f"researches {state['topic']}\n", end="", flush=True)
    time.sleep(0.3)  # stands for a model
    return {"found": [f"all about {state['topic']}"]}


def write(state: State) -> State:
    number = state.get("drafts", 0) + 1
    print("writes draft", number, flush=True)
    time.sleep(0.3)
    return {"draft": f"draft {number} on {' and '.join(state['topics'])}", "drafts": 1}


def ask(state: State) -> State:
    """Send a message to a person, who reads the terminal in this example."""
    command = f"outlast send {current().id} interrupt:review true"
    print(f"asks: publish {state['draft']}? {command}", flush=True)
    return {}


def review(state: State) -> State:
    return {"agreed": interrupt(state["draft"])}


@effect(timeout=2, undo=None)
async def publish(draft: str, key: str = KEY) -> str:
    with PUBLISHED.open("a") as published:
        published.write(f"{key} {draft}\n")
    print("publishes", draft, flush=True)
    await asyncio.sleep(0.5)  # published, but not recorded yet: a good moment to crash
    return f"published {draft}"


@publish.verify
async def is_published(draft: str, key: str = KEY) -> Happened[str] | None:
    there = PUBLISHED.exists() and key in PUBLISHED.read_text()
    return Happened(f"published {draft}") if there else None


async def release(state: State) -> State:
    """Call the effect. This node is workflow code."""
    return {"found": [await publish(state["draft"])]}


builder = StateGraph(State)
for node in (research, write, ask, review, release):
    builder.add_node(node.__name__, node)
builder.add_conditional_edges(START, plan, ["research"])
builder.add_edge("research", "write")
builder.add_edge("write", "ask")
builder.add_edge("ask", "review")
builder.add_conditional_edges("review", lambda state: "release" if state["agreed"] else "write")
builder.add_edge("release", END)
article = durable_graph(builder.compile(name="article"), workflow_nodes=["release"])


if __name__ == "__main__":
    state = run(article({"topics": ["tides", "moons"]}), id="article-1")
    print(state["found"][-1])
