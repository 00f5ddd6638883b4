"""Graphs of LangGraph execute as workflows, and continue after a crash."""

import asyncio
import json
import operator
from typing import Annotated, Any, TypedDict

import pytest
import support_graph
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, Send, interrupt
from support_graph import ANSWERS, FOUND, INPUT, PLAN, handle, support

from outlast import NotInRun, SettingsError, Unrecordable, step, workflow
from outlast.integrations.langgraph import durable_graph
from outlast.testing import crash_everywhere
from support.agent_programs import call_of, calls_of

CALLS = calls_of(PLAN)


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    value: Any


@pytest.fixture(autouse=True)
def noted(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(support_graph, "NOTES", [lines.append])
    support_graph.EVENTS.clear()
    return lines


def answered(world, call, answers=ANSWERS):
    """Execute a run whose questions are answered at once."""

    async def main(app):
        run = await app.start(call, id="run")
        for name, value in answers.items():
            await app.send("run", name, value, message_id=name)
        return await run.result()

    return world.do(main)


def graph_of(*nodes, name="graph", **options):
    """Return a durable graph that executes these nodes one after the other."""
    builder = StateGraph(State)
    builder.add_sequence([(node.__name__, node) for node in nodes])
    builder.add_edge(START, nodes[0].__name__)
    return durable_graph(builder.compile(name=name), **options)


def test_each_node_and_each_tool_call_is_a_step_with_a_stable_key(world, noted):
    state = answered(world, support(INPUT))
    assert state["found"] == FOUND
    assert sorted(map(call_of, noted)) == sorted(CALLS)
    assert sorted(entry.key for entry in world.journal() if entry.kind == "step") == [
        "support#1/agent[1]#1", "support#1/agent[3]#1", "support#1/agent[5]#1",
        "support#1/desk:6#1/check[2]#1", "support#1/desk:6#1/check[2]#2",
        "support#1/desk:6#1/desk:route[6]#1", "support#1/desk:6#1/research[1]#1",
        "support#1/tools:2#1/population[c2]#1", "support#1/tools:2#1/weather[c1]#1",
        "support#1/tools:4#1/delete[c4]#1", "support#1/tools:4#1/delete[c4]#2",
        "support#1/tools:4#1/refund[c3]#1", "support#1/translate[7.0]#1",
        "support#1/translate[7.1]#1",
    ]  # fmt: skip


def test_a_replay_calls_nothing_and_gives_the_same_state(world, noted):
    state = answered(world, support(INPUT))
    noted.clear()
    assert world.replays(support(INPUT)) == state
    assert noted == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_any_crash_repeats_at_most_the_calls_in_flight(noted):
    def check() -> None:
        assert set(map(call_of, noted)) == set(CALLS)
        assert any(event.mode == "messages" for event in support_graph.EVENTS)
        support_graph.EVENTS.clear()
        # One crash hits at most two calls at once.
        assert len(noted) <= len(CALLS) + 2
        assert len({line for line in noted if line.startswith("refund")}) == 1, "one key"

    async def answer(app) -> None:
        await support_graph.answer(app, "crash")

    report = crash_everywhere(handle(), outside=answer, fresh=noted.clear, check=check)
    assert report.crashes > 20


def test_what_nodes_and_models_stream_is_shown_while_they_execute(world):
    answered(world, support(INPUT))
    custom = [event for event in support_graph.EVENTS if event.mode == "custom"]
    assert [(event.node, event.data) for event in custom] == [("tools:c1", {"looking": "Rome"})]
    text = [
        event.data[0].text
        for event in support_graph.EVENTS
        if event.mode == "messages" and event.node == "agent"
    ]
    assert [word.strip() for word in text if word.strip()] == ["all", "done", "now"]
    support_graph.EVENTS.clear()
    world.replays(support(INPUT))
    assert support_graph.EVENTS == []


def test_tokens_are_recorded_as_cost(world):
    answered(world, support(INPUT))
    # The model reports usage when it calls tools.
    assert [json.loads(entry.cost)["tokens"] for entry in world.journal() if entry.cost] == [15, 15]


def test_messages_without_ids_get_the_same_ids_in_every_life(world):
    async def greet(state: MessagesState) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": "hello"}]}

    async def forget(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-1]]}

    builder = StateGraph(MessagesState)
    builder.add_sequence([greet, forget])
    builder.add_edge(START, "greet")
    graph = durable_graph(builder.compile(name="forgetful"))
    state = world.run(graph({"messages": [HumanMessage("hi"), ("user", "ho")]}))
    assert [message.content for message in state["messages"]] == ["hello"]
    world.replays(graph({"messages": [HumanMessage("hi"), ("user", "ho")]}))


def test_a_retry_policy_sees_the_original_exception_and_each_attempt_is_a_step(world):
    attempts = []

    class Busy(Exception):
        def __init__(self, response: object) -> None:
            super().__init__("busy")
            self.response = response

    async def flaky(state: State, runtime: Runtime) -> State:
        attempts.append(runtime.execution_info.node_attempt)
        if len(attempts) < 3:
            raise Busy(object())
        return {"log": ["done"]}

    builder = StateGraph(State)
    builder.add_node(
        "flaky",
        flaky,
        retry_policy=RetryPolicy(max_attempts=3, retry_on=lambda e: bool(e.response)),
    )
    builder.add_edge(START, "flaky")
    graph = durable_graph(builder.compile(name="flaky"))
    assert world.run(graph({"log": []})) == {"log": ["done"]}
    assert attempts == [1, 2, 3]
    steps = [entry.key for entry in world.journal() if entry.kind == "step"]
    assert steps == ["flaky#1/flaky[1]#1", "flaky#1/flaky[1]#2", "flaky#1/flaky[1]#3"]


def test_the_error_of_a_node_fails_the_run(world):
    def broken(state: State) -> State:
        raise LookupError("no such order")

    with pytest.raises(LookupError, match="no such order"):
        world.run(graph_of(broken)({"log": []}))


def test_a_node_cannot_change_the_state_behind_the_graph(world):
    def change(state: State) -> State:
        state["log"].append("changed in place")
        return {"log": ["returned"]}

    def look(state: State) -> State:
        return {"value": list(state["log"])}

    state = world.run(graph_of(change, look)({"log": []}))
    assert state["value"] == ["returned"]


def test_a_value_that_cannot_be_recorded_is_refused_with_the_name_of_the_node(world):
    def broken(state: State) -> State:
        return {"value": lambda: 1}

    with pytest.raises(Unrecordable, match="node broken, 'value'"):
        world.run(graph_of(broken)({"log": []}))


def test_values_come_back_as_what_they_were(world):
    def make(state: State) -> State:
        return {"value": {"pair": (1, 2), "bytes": b"x", "nested": [{"a": {1: 2}}], "set": {3}}}

    state = world.run(graph_of(make)({"log": []}))
    assert state["value"] == {"pair": (1, 2), "bytes": b"x", "nested": [{"a": {1: 2}}], "set": {3}}


def test_commands_route_within_a_graph_and_to_its_parent(world):
    def leave(state: State) -> Command[Any]:
        return Command(update={"log": ["left"]}, goto="last", graph=Command.PARENT)

    def first(state: State) -> Command[Any]:
        return Command(update={"log": ["first"]}, goto="inner")

    def last(state: State) -> State:
        return {"log": ["last"]}

    inner = StateGraph(State)
    inner.add_node("leave", leave)
    inner.add_edge(START, "leave")
    outer = StateGraph(State)
    outer.add_node("first", first, destinations=("inner",))
    outer.add_node("inner", inner.compile())
    outer.add_node("last", last)
    outer.add_edge(START, "first")
    graph = durable_graph(outer.compile(name="commands"))
    assert world.run(graph({"log": []}))["log"] == ["first", "left", "last"]
    world.replays(graph({"log": []}))


def test_parallel_questions_are_answered_by_name_in_any_order(world):
    def ask(state: State) -> State:
        return {"log": [f"{state['value']}: {interrupt('ok?')} {interrupt('sure?')}"]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_conditional_edges(
        START, lambda state: [Send("ask", {"value": n}) for n in (1, 2)], ["ask"]
    )
    graph = durable_graph(builder.compile(name="asks"))

    async def main(app):
        run = await app.start(graph({"log": []}), id="run")
        for name, value in (("ask:1", "b1"), ("ask:0", "a1"), ("ask:1", "b2"), ("ask:0", "a2")):
            await app.send("run", f"interrupt:{name}", value)
        return await run.result()

    assert world.do(main)["log"] == ["1: a1 a2", "2: b1 b2"]
    world.replays(graph({"log": []}))


def test_breakpoints_wait_for_a_message(world):
    def act(state: State) -> State:
        return {"log": ["acted"]}

    builder = StateGraph(State)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    graph = durable_graph(builder.compile(name="breaks", interrupt_before=["act"]))

    async def main(app):
        run = await app.start(graph({"log": []}), id="run")
        await app.send("run", "interrupt:act", True)
        return await run.result()

    assert world.do(main) == {"log": ["acted"]}


def test_nodes_named_as_workflow_code_call_steps(world):
    @step
    async def fetch(name: str) -> str:
        return f"fetched {name}"

    async def work(state: State) -> State:
        return {"log": [await fetch("a"), await fetch("b")]}

    graph = graph_of(work, workflow_nodes=["work"])
    assert world.run(graph({"log": []})) == {"log": ["fetched a", "fetched b"]}
    assert [entry.key for entry in world.journal()] == [
        "graph#1/work:1#1/fetch#1", "graph#1/work:1#1/fetch#2"
    ]  # fmt: skip


def test_a_graph_runs_inside_another_workflow(world):
    def double(state: State) -> State:
        return {"value": 2 * state["value"]}

    graph = graph_of(double)

    @workflow
    async def twice(value: int) -> int:
        first = await graph.ainvoke({"value": value})
        return (await graph.ainvoke(first))["value"]

    assert world.run(twice(3)) == 12
    assert [entry.key for entry in world.journal()] == [
        "graph#1/double[1]#1", "graph#2/double[1]#1"
    ]  # fmt: skip


def test_tasks_of_an_entrypoint_are_steps_and_are_not_repeated_after_an_answer(world):
    calls = []

    @task
    def plus(value: int) -> int:
        calls.append("plus")
        return value + 1

    @task
    async def times(value: int) -> int:
        calls.append("times")
        return value * 2

    @entrypoint()
    async def calculate(value: int) -> str:
        first, second = plus(value), times(value)
        return f"{await first} {await second} {interrupt('ok?')}"

    graph = durable_graph(calculate, name="calculate")
    assert answered(world, graph(5), {"interrupt:calculate": "yes"}) == "6 10 yes"
    assert sorted(calls) == ["plus", "times"]


def test_tasks_in_a_node_are_not_repeated_after_an_answer(world):
    calls = []

    @task
    async def fetch(name: str) -> str:
        calls.append(name)
        return f"<{name}>"

    async def work(state: State) -> State:
        found = [await fetch("a"), await fetch("b")]
        return {"log": [*found, interrupt(found)]}

    graph = graph_of(work)
    state = answered(world, graph({"log": []}), {"interrupt:work": "fine"})
    assert state["log"] == ["<a>", "<b>", "fine"]
    assert calls == ["a", "b"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: durable_graph(StateGraph(State)), "takes a compiled graph"),
        (lambda: graph_of(test_breakpoints_wait_for_a_message, name=None), "has no name"),
        (lambda: graph_of(operator_node, workflow_nodes=["other"]), "has no node other"),
    ],
)
def test_what_cannot_be_made_durable_is_refused(make, message):
    with pytest.raises(SettingsError, match=message):
        make()


def operator_node(state: State) -> State:
    return {}


def test_a_sync_entrypoint_is_refused():
    @entrypoint()
    def calculate(value: int) -> int:
        return value

    with pytest.raises(SettingsError, match="must be async"):
        durable_graph(calculate, name="calculate")


def test_a_durable_graph_is_not_invoked_outside_a_workflow():
    with pytest.raises(NotInRun, match=r"app.start\(support"):
        asyncio.run(support.ainvoke(INPUT))


def test_a_conditional_entry_is_routed_in_a_step(world):
    routed = []

    def route(state: State) -> str:
        routed.append(1)
        return END if state["value"] else "operator_node"

    builder = StateGraph(State)
    builder.add_node("operator_node", operator_node)
    builder.add_conditional_edges(START, route, ["operator_node", END])
    graph = durable_graph(builder.compile(name="entry"))
    world.run(graph({"value": True}))
    world.replays(graph({"value": True}))
    assert routed == [1]
