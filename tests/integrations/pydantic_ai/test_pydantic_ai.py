"""Agents of Pydantic AI execute as steps and effects, and continue after a crash."""

import json

import pytest
from durable_agent import answer, ask, ask_streaming, outside, turn
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from scripted import agent_with, run_with, saying, steps

from outlast import workflow
from outlast.integrations.pydantic_ai import StepOptions
from outlast.testing import crash_everywhere

APPROVED = {"approval:d1": True}

# A simulated crash drops the coroutines of the framework in the middle, and they complain when they
# are collected, perhaps in a later test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _empty_outside():
    outside.clear()


def test_keys_contain_only_names_of_the_user_and_ids_of_calls(world):
    run_with(world, ask("hi"), APPROVED)
    assert steps(world) == [
        "save#1",
        "support#1/ask_expert[x1]#1",
        "support#1/ask_inline:x2#1/expert#1/look_up[l-how?]#1",
        "support#1/ask_inline:x2#1/expert#1/model#1",
        "support#1/ask_inline:x2#1/expert#1/model#2",
        "support#1/ask_inline:x3#1/expert#1/look_up[l-when?]#1",
        "support#1/ask_inline:x3#1/expert#1/model#1",
        "support#1/ask_inline:x3#1/expert#1/model#2",
        "support#1/delete[d1]#1",
        "support#1/guess[g1]#1",
        "support#1/guess[g2]#1",
        "support#1/model#1",
        "support#1/model#2",
        "support#1/model#3",
        "support#1/support.pay[p1]#1",
        "support#1/weather[w1]#1",
        "support#1/weather[w2]#1",
    ]


def test_stream_has_the_keys_of_a_request(world):
    run_with(world, ask("hi"), APPROVED)
    plain = steps(world)

    async def main(app):
        run = await app.start(ask_streaming("hi"), id="streamed")
        await app.send("streamed", "approval:d1", True, message_id="1")
        await run.result()
        return sorted(entry.key for entry in await app.journal("streamed") if entry.kind == "step")

    assert [key for key in world.do(main) if "/event#" not in key] == plain


def test_events_of_a_stream_reach_the_handler_in_the_step(world):
    run_with(world, ask_streaming("hi"), APPROVED)
    assert outside.events.count("PartDeltaEvent") >= 1
    assert outside.events.count("FunctionToolResultEvent") == 9
    before = list(outside.events)
    world.app.check_replay()
    assert outside.events == before, "a replay delivers nothing again"


def test_model_requests_record_their_tokens(world):
    run_with(world, ask("hi"), APPROVED)
    costs = [json.loads(entry.cost) for entry in world.journal() if entry.cost]
    assert sum(cost["tokens"] for cost in costs) == 9 * 15


def test_no_call_is_repeated_after_a_death(world):
    world.die(ask("hi"), id="run", until=lambda: outside.count("support 1") == 1)
    run_with(world, ask("hi"), APPROVED)
    assert outside.count("support 0") == 1
    assert outside.count("expert why? 0") == 1


def test_two_runs_of_an_agent_in_a_workflow_have_scopes_of_their_own(world):
    agent = agent_with(saying("x"))

    @workflow
    async def twice() -> list[str]:
        first = await agent.run("1")
        second = await agent.run("2", message_history=first.all_messages())
        return [first.output, second.output]

    assert world.run(twice()) == ["x", "x"]
    assert steps(world) == ["a#1/model#1", "a#2/model#1"]


def test_structured_output_is_validated_and_retried(world):
    class City(BaseModel):
        name: str
        people: int

    def script(messages, info):
        tool = info.output_tools[0].name
        people = "many" if turn(messages) == 0 else 7
        return answer(ToolCallPart(tool, {"name": "Ur", "people": people}, f"o{turn(messages)}"))

    agent = agent_with(FunctionModel(script), output_type=City)

    @workflow
    async def find() -> City:
        return (await agent.run("x")).output

    assert world.run(find()) == City(name="Ur", people=7)
    report = crash_everywhere(find())
    assert report.result == City(name="Ur", people=7)


def test_fallback_model_is_one_step(world):
    def fails(messages, info):
        raise ModelHTTPError(429, "first", {"error": "slow down"})

    agent = agent_with(
        FallbackModel(FunctionModel(fails, model_name="first"), saying("x", model_name="second"))
    )

    @workflow
    async def one() -> str:
        return (await agent.run("x")).output

    assert world.run(one()) == "x"
    assert steps(world) == ["a#1/model#1"]


def test_error_of_a_model_comes_back_as_itself(world):
    def fails(messages, info):
        raise ModelHTTPError(429, "first", {"error": "slow down"})

    agent = agent_with(FunctionModel(fails))

    @workflow
    async def one() -> tuple[int, object]:
        try:
            await agent.run("x")
        except ModelHTTPError as error:
            return error.status_code, error.body
        return 0, None

    assert world.run(one()) == (429, {"error": "slow down"})
    world.app.check_replay()


def test_model_request_is_retried_with_the_options_of_its_step(world):
    asked = []

    def fails_once(messages, info):
        asked.append(1)
        if len(asked) == 1:
            raise ModelHTTPError(503, "first")
        return answer(TextPart("x"))

    agent = agent_with(
        FunctionModel(fails_once), durability={"model": StepOptions(retries=1, backoff=5)}
    )

    @workflow
    async def one() -> str:
        return (await agent.run("x")).output

    assert world.run(one()) == "x"
    assert len(asked) == 2


@pytest.mark.parametrize("method", ["run_stream", "run_stream_events", "iter"])
def test_every_way_to_run_an_agent_is_durable(method):
    async def stream(messages, info):
        yield "he"
        yield "llo"

    agent = agent_with(saying("hello", stream_function=stream))

    @workflow
    async def one() -> str:
        async with getattr(agent, method)("x") as run:
            if method == "run_stream":
                return "".join([text async for text in run.stream_text(delta=True)])
            seen = [type(one).__name__ async for one in run]
            return seen[-1]

    report = crash_everywhere(one())
    assert report.result in ("hello", "AgentRunResultEvent", "End")
