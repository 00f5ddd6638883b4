"""A support graph with a scripted model that notes every call in a file outside the store.

`python support_graph.py STORE LOG` executes the run "r". The graph calls two tools at once, an effect
together with a tool that asks a person, a nested graph, and two workers by `Send`.
"""

import asyncio
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send, interrupt

from outlast import KEY, Outlast, effect, workflow
from outlast.integrations.langgraph import GraphEvent, durable_graph, effect_tool

NOTES: list[Callable[[str], None]] = []
"""Where the calls are noted."""
EVENTS: list[GraphEvent] = []


def note(line: str) -> None:
    for write in NOTES:
        write(line)


def check_pairs(messages: list[Any]) -> None:
    """Fail if a history has a tool call without its result."""
    calls = {call["id"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
    results = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    assert calls == results, f"calls {calls}, results {results}"


def call(name: str, call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id}


class Scripted(BaseChatModel):
    """Answer by the number of tool results in the input, so that it needs no memory."""

    name: str
    script: dict[int, Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _answer(self, messages: list[Any]) -> AIMessage:
        check_pairs(messages)
        results = sum(isinstance(message, ToolMessage) for message in messages)
        note(f"{self.name} {results}")
        said = self.script[results]
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        if isinstance(said, str):
            return AIMessage(said, usage_metadata=usage)
        return AIMessage("", tool_calls=said, usage_metadata=usage)

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(
        self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        if answer.tool_calls:
            chunk = AIMessageChunk(
                content="", tool_calls=answer.tool_calls, usage_metadata=answer.usage_metadata
            )
            yield ChatGenerationChunk(message=chunk)
            return
        for word in answer.text.split():
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


@tool
async def weather(city: str) -> str:
    """Look up the weather."""
    note(f"weather {city}")
    get_stream_writer()({"looking": city})
    return f"sunny in {city}"


@tool
def population(city: str) -> str:
    """Look up the population."""
    note(f"population {city}")
    return "7"


@tool
def delete(account: str) -> str:
    """Delete an account, if a person agrees."""
    if not interrupt({"delete": account}):
        return "refused"
    note(f"delete {account}")
    return f"deleted {account}"


@effect(timeout=5, idempotent=True, undo=None)
async def refund(amount: int, key: str = KEY) -> str:
    """Pay money back."""
    note(f"refund {amount}\t{key}")
    return f"refunded {amount}"


model = Scripted(
    name="support",
    script={
        0: [call("weather", "c1", city="Rome"), call("population", "c2", city="Rome")],
        2: [call("refund", "c3", amount=5), call("delete", "c4", account="a-7")],
        4: "all done now",
    },
)
researcher = Scripted(name="researcher", script={4: "tides come and go"})


class State(MessagesState):
    found: Annotated[list[str], operator.add]
    topic: str


async def agent(state: State) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


def research(state: State) -> dict[str, Any]:
    return {"found": [researcher.invoke(state["messages"]).text.strip()]}


def check(state: State) -> dict[str, Any]:
    answer = interrupt({"publish": state["found"]})
    note(f"check {answer}")
    return {"found": [f"approved by {answer}"]}


def translate(state: State) -> dict[str, Any]:
    note(f"translate {state['topic']}")
    return {"found": [state["topic"].upper()]}


def fan_out(state: State) -> list[Send]:
    note("route")
    return [Send("translate", {"topic": word}) for word in ("ebb", "flow")]


def compile_graph() -> Any:
    inner = StateGraph(State)
    inner.add_node("research", research)
    inner.add_node("check", check)
    inner.add_edge(START, "research")
    inner.add_edge("research", "check")
    outer = StateGraph(State)
    outer.add_node("agent", agent)
    outer.add_node("tools", ToolNode([weather, population, delete, effect_tool(refund)]))
    outer.add_node("desk", inner.compile())
    outer.add_node("translate", translate)
    outer.add_edge(START, "agent")
    outer.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "desk"})
    outer.add_edge("tools", "agent")
    outer.add_conditional_edges("desk", fan_out, ["translate"])
    return outer.compile(name="support")


support = durable_graph(compile_graph(), on_event=EVENTS.append)
INPUT = {"messages": [("user", "My account, please.")], "found": []}
ANSWERS = {"interrupt:tools:c4": True, "interrupt:desk/check": "ada"}
PLAN = [
    [["support 0"]],
    [["weather Rome"], ["population Rome"]],
    [["support 2"]],
    [["refund 5"], ["delete a-7"]],
    [["support 4"]],
    [["researcher 4"]],
    [["check ada"]],
    [["route"]],
    [["translate ebb"], ["translate flow"]],
]
"""Every call that the graph makes: supersteps of chains of calls."""
FOUND = ["tides come and go", "approved by ada", "EBB", "FLOW"]
RESULT = f"all done now {FOUND}"


@workflow
async def handle() -> list[Any]:
    """Run the graph in a workflow, and return what is the same in every run."""
    state = await support.ainvoke(INPUT)
    check_pairs(state["messages"])
    return [[message.text.strip() for message in state["messages"]], state["found"]]


async def answer(app: Outlast, run_id: str) -> None:
    for name, value in ANSWERS.items():
        await app.send(run_id, name, value, message_id=name)


async def main(store: str, log: Path) -> None:
    def write(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")
        print("call", line)  # A test may stop the process here.

    NOTES.append(write)
    async with Outlast(store) as app:
        run = await app.start(support(INPUT), id="r")
        await answer(app, "r")
        state = await run.result()
        check_pairs(state["messages"])
        print(state["messages"][-1].text.strip(), state["found"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
