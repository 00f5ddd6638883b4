"""A graph that LangGraph runs itself, with its checkpoints in an `OutlastSaver`.

`support.agent_programs` interrupts it.
"""

import asyncio
import operator
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

from outlast import Outlast
from outlast.integrations.langgraph import OutlastSaver

NOTES: list[Any] = [lambda line: None]
CONFIG = {"configurable": {"thread_id": "r"}}
PLAN = [[["plan"]], [["read a"], ["read b"]], [["pay"]], [["answer"]]]
RESULT = "['plan', 'read a', 'read b', 'pay', 'answer']"


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def node(name: str, key: str = "") -> Any:
    async def call(state: State) -> dict[str, list[str]]:
        NOTES[-1](f"{name}\t{key}" if key else name)
        return {"done": [name]}

    return call


def graph(saver: BaseCheckpointSaver[str]) -> Any:
    builder = StateGraph(State)
    for name in ("plan", "read a", "read b", "answer"):
        builder.add_node(name, node(name))
    builder.add_node("pay", node("pay", "r"))
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "read a")
    builder.add_edge("plan", "read b")
    builder.add_edge(["read a", "read b"], "pay")
    builder.add_edge("pay", "answer")
    return builder.compile(checkpointer=saver)


async def main(store: str, log: Path) -> None:
    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")
        print("call", line)  # A test may stop the process here.

    NOTES.append(write)
    async with Outlast(store) as app:
        saver = OutlastSaver(app)
        compiled, config = graph(saver), await saver.atake("r")
        begun = (await compiled.aget_state(config)).values
        state = await compiled.ainvoke(None if begun else {"done": []}, config, durability="sync")
        print(state["done"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
