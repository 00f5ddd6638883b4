"""Tools are steps, effects or workflow code, or are answered by people."""

import pytest
from durable_agent import answer, expert, turn
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from scripted import agent_with, calling, run_with, steps

from outlast import Happened, RunParked, SettingsError, workflow
from outlast.integrations.pydantic_ai import StepOptions, ToolEffect, effect_key
from outlast.testing import crash_everywhere


def workflow_of(agent):
    @workflow(name="one")
    async def one() -> str:
        return (await agent.run("x")).output

    return one


# -- people


def test_denied_call_is_answered_without_executing(world):
    agent = agent_with(calling("delete"))

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        raise AssertionError

    denied = {"kind": "tool-denied", "message": "keep it"}
    assert run_with(world, workflow_of(agent)(), {"approval:c1": denied}) == "['keep it']"


def test_approval_may_change_the_arguments(world):
    agent = agent_with(calling("pay", {"cents": 900}))

    @agent.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        return f"paid {cents}"

    approved = {"kind": "tool-approved", "override_args": {"cents": 5}}
    assert run_with(world, workflow_of(agent)(), {"approval:c1": approved}) == "['paid 5']"


def test_external_call_waits_for_its_result(world):
    tools = ExternalToolset([ToolDefinition(name="measure")], id="lab")
    agent = agent_with(calling("measure"), toolsets=[tools])
    result = run_with(world, workflow_of(agent)(), {"result:c1": {"metres": 3}})
    assert result == "[{'metres': 3}]"


def test_workflow_may_handle_deferred_calls_itself():
    agent = agent_with(
        calling("delete"),
        durability={"deferred": "return"},
        output_type=[str, DeferredToolRequests],
    )

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return "deleted"

    @workflow
    async def one() -> str:
        result = await agent.run("x")
        assert isinstance(result.output, DeferredToolRequests)
        ids = [call.tool_call_id for call in result.output.approvals]
        again = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=dict.fromkeys(ids, True)),
        )
        return again.output

    assert crash_everywhere(one()).result == "['deleted']"


# -- effects


def test_effect_gets_one_key_and_is_not_repeated(world):
    agent = agent_with(calling("send"))
    keys = []

    @agent.tool_plain(metadata={"outlast": ToolEffect(timeout=5, idempotent=True)})
    async def send() -> str:
        keys.append(effect_key())
        return "sent"

    assert world.run(workflow_of(agent)()) == "['sent']"
    world.app.check_replay()
    assert len(keys) == 1
    intents = [entry.key for entry in world.journal() if entry.kind == "intent"]
    assert intents == ["a#1/a.send[c1]#1"]


def test_effect_without_options_is_left_to_a_person(world):
    agent = agent_with(calling("send"))
    sent = []

    @agent.tool_plain(metadata={"outlast": "effect"})
    async def send() -> str:
        sent.append(1)
        raise OSError("the line went dead")

    with pytest.raises(RunParked, match=r"a\.send"):
        world.run(workflow_of(agent)())
    assert sent == [1]


def test_effect_that_asks_the_model_to_retry_did_not_act():
    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        at = turn(messages)
        if at < 2:
            return answer(ToolCallPart("send", {"to": ["nobody", "ann"][at]}, f"c{at}"))
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return answer(TextPart(returned[0].content))

    agent = agent_with(FunctionModel(script))

    sent = []

    def was_sent(to: str) -> Happened[str] | None:
        return Happened(f"sent to {to}") if to in sent else None

    @agent.tool_plain(metadata={"outlast": ToolEffect(verify=was_sent)})
    async def send(to: str) -> str:
        if to == "nobody":
            raise ModelRetry("no such person")
        sent.append(to)
        return f"sent to {to}"

    def once() -> None:
        assert sent == ["ann"]

    report = crash_everywhere(workflow_of(agent)(), fresh=sent.clear, check=once)
    assert report.result == "sent to ann"


def test_effect_takes_the_context_and_the_dependencies(world):
    agent = agent_with(calling("send", {"to": "ann"}), deps_type=str)

    @agent.tool(metadata={"outlast": "effect"})
    def send(ctx: RunContext[str], to: str) -> str:
        return f"{ctx.deps} to {to}"

    @workflow
    async def one() -> str:
        return (await agent.run("x", deps="hello")).output

    assert world.run(one()) == "['hello to ann']"


def test_effect_is_known_before_its_agent_has_run(world):
    """A worker that has just started must be able to compensate."""
    from outlast.execution.effect_call import find

    agent = agent_with(calling("book"))

    @agent.tool_plain(metadata={"outlast": ToolEffect(compensate=lambda result: None)})
    async def book_early() -> str:
        return "booked"

    found = find("a.book_early")
    assert found is not None
    assert found.compensation is not None


def test_effect_of_an_agent_in_a_step_is_refused(world):
    inner = agent_with(calling("send"))

    @inner.tool_plain(metadata={"outlast": "effect"})
    async def send() -> str:
        raise AssertionError

    outer = agent_with(calling("delegate"))

    @outer.tool_plain
    async def delegate() -> str:
        return (await inner.run("x")).output

    with pytest.raises(Exception, match="Give the tool that runs the agent metadata"):
        world.run(workflow_of(outer)())


def test_agents_that_are_made_again_share_their_effects(world):
    def make():
        agent = agent_with(calling("ring"))

        @agent.tool_plain(metadata={"outlast": "effect"})
        async def ring() -> str:
            return "rang"

        return agent

    first, second = make(), make()
    for number, agent in enumerate((first, second, first)):
        assert world.run(workflow_of(agent)(), id=f"run-{number}") == "['rang']"


# -- options


def test_tool_step_has_the_options_of_its_metadata(world):
    agent = agent_with(calling("fetch"))
    tried = []

    @agent.tool_plain(metadata={"outlast": StepOptions(retries=2)})
    async def fetch() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise OSError("again")
        return "fetched"

    assert world.run(workflow_of(agent)()) == "['fetched']"
    assert len(tried) == 3


def test_options_of_the_capability_precede_the_metadata(world):
    tools = FunctionToolset(id="tools")

    @tools.tool_plain
    async def think() -> str:
        return (await expert.run("what?")).output

    agent = agent_with(calling("think"), toolsets=[tools], durability={"tools": {"think": False}})
    assert world.run(workflow_of(agent)()) == "['because what?']"
    assert "a#1/think:c1#1/expert#1/model#1" in steps(world)


def test_unknown_metadata_is_refused(world):
    agent = agent_with(calling("fetch"))

    @agent.tool_plain(metadata={"outlast": "once"})
    async def fetch() -> str:
        raise AssertionError

    with pytest.raises(SettingsError, match="tool fetch has the metadata"):
        world.run(workflow_of(agent)())


def test_usage_of_a_tool_reaches_the_workflow_with_its_result():
    agent = agent_with(calling("ask"))

    @agent.tool
    async def ask(ctx: RunContext) -> str:
        return (await expert.run("who?", usage=ctx.usage)).output

    @workflow
    async def one() -> int:
        return (await agent.run("x")).usage.requests

    assert crash_everywhere(one()).result == 4
