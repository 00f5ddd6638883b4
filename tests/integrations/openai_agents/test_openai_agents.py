"""Agents of the OpenAI Agents SDK execute as steps, and continue after a crash."""

import asyncio
from typing import Any

import httpx2
import openai
import pytest
import support_agent
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    Runner,
    Usage,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from pydantic import BaseModel
from support_agent import PLAN, RESULT, handle, handle_streamed

from outlast import SettingsError, step, workflow
from outlast.integrations.openai_agents import durable, effect_tool, workflow_tool
from outlast.testing import crash_everywhere
from support.agent_programs import call_of, calls_of

CALLS = calls_of(PLAN)


@pytest.fixture(autouse=True)
def noted(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(support_agent, "NOTES", [lines.append])
    return lines


async def approve(app) -> None:
    await app.send("crash", "approval:c5", True, message_id="yes")


def approved_run(world, call):
    async def main(app):
        run = await app.start(call, id="run")
        await app.send("run", "approval:c5", True, message_id="yes")
        return await run.result()

    return world.do(main)


def test_each_call_is_a_step_with_a_stable_key(world, noted):
    assert approved_run(world, handle("hi")) == RESULT
    assert sorted(map(call_of, noted)) == sorted(CALLS)
    assert sorted(entry.key for entry in world.journal() if entry.kind == "step") == [
        "billing.model[model]#1", "refund[c3]#1", "support.delete[c5]#1", "support.model[model]#1",
        "support.model[model]#2", "support.model[model]#3", "support.model[model]#4",
        "support.population[c2]#1", "support.weather[c1]#1", "translator.model[model]#1",
    ]  # fmt: skip


def test_a_replay_calls_nothing(world, noted):
    approved_run(world, handle("hi"))
    noted.clear()
    assert world.replays(handle("hi")) == RESULT
    assert noted == []


@pytest.mark.filterwarnings(
    # A simulated crash drops the coroutines of the SDK in the middle, and they try to clean up.
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(handle("hi"), id="whole"),
        pytest.param(handle_streamed("hi"), id="streamed", marks=pytest.mark.extended),
    ],
)
def test_any_crash_repeats_at_most_the_calls_in_flight(noted, call):
    def check() -> None:
        assert set(map(call_of, noted)) == set(CALLS)
        # One crash hits at most two calls at once.
        assert len(noted) <= len(CALLS) + 2
        assert len({line for line in noted if line.startswith("refund")}) == 1, "one key"

    report = crash_everywhere(call, outside=approve, fresh=noted.clear, check=check)
    assert report.crashes >= 30


def test_a_streamed_run_gets_the_recorded_events(world, noted):
    first = approved_run(world, handle_streamed("hi"))
    assert first.count("run_item_stream_event") > 5
    noted.clear()
    assert world.replays(handle_streamed("hi")) == first
    assert noted == []


def test_on_event_gets_every_event_while_the_step_executes(world):
    seen = []
    agent = durable(
        Agent(name="a", model=ScriptedModel([[assistant_message("hello")]])),
        on_event=lambda event: seen.append(event.type),
    )

    @workflow
    async def one() -> list[str]:
        streamed = Runner.run_streamed(agent, "hi")
        types = [
            event.data.type
            async for event in streamed.stream_events()
            if event.type == "raw_response_event"
        ]
        return [*types, streamed.final_output]

    types = world.run(one())
    assert types[-1] == "hello"
    assert "response.output_text.delta" in seen
    assert "response.output_text.delta" not in types, "deltas are not recorded"
    assert types[:-1] == [one for one in seen if not one.endswith(".delta")]


def test_tokens_are_recorded_as_cost(world):
    usage = Usage(requests=1, input_tokens=30, output_tokens=12, total_tokens=42)
    answer = ModelStep(output=[assistant_message("hello")], usage=usage)
    agent = durable(Agent(name="a", model=ScriptedModel([answer])))

    @workflow
    async def one() -> str:
        return str((await Runner.run(agent, "hi")).final_output)

    world.run(one())
    (entry,) = [one for one in world.journal() if one.key == "a.model[model]#1"]
    assert '"tokens":42' in entry.cost.replace(" ", "")


def test_an_api_error_comes_back_as_itself(world):
    request = httpx2.Request("POST", "https://api.example/v1/responses?secret=1")
    response = httpx2.Response(
        429, headers={"retry-after": "7", "set-cookie": "secret"}, request=request
    )
    limited = openai.RateLimitError("slow down", response=response, body={"code": "rate_limit"})
    agent = durable(Agent(name="a", model=ScriptedModel([ModelStep.raise_error(limited)])))

    @workflow
    async def one() -> list[Any]:
        try:
            await Runner.run(agent, "hi")
        except openai.RateLimitError as error:
            return [error.status_code, error.code, error.response.headers["retry-after"]]
        return []

    assert world.run(one()) == [429, "rate_limit", "7"]
    assert "secret" not in str(world.journal())
    assert world.replays(one()) == [429, "rate_limit", "7"]


@pytest.mark.parametrize("kind", [openai.APITimeoutError, openai.APIConnectionError])
def test_a_connection_error_comes_back_as_itself(world, kind):
    error = kind(request=httpx2.Request("POST", "https://api.example/v1"))
    agent = durable(Agent(name="a", model=ScriptedModel([ModelStep.raise_error(error)])))

    @workflow
    async def one() -> str:
        try:
            await Runner.run(agent, "hi")
        except openai.APIConnectionError as error:
            return type(error).__name__
        return ""

    assert world.run(one()) == kind.__name__


def test_guardrails_execute_in_the_workflow(world):
    @step
    async def is_rude(text: str) -> bool:
        return "rude" in text

    @input_guardrail
    async def polite(context, agent, text) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=await is_rude(str(text)))

    @output_guardrail
    async def short(context, agent, output) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=len(output) > 100)

    def asked(text: str):
        agent = durable(
            Agent(
                name="a",
                model=ScriptedModel([[assistant_message("hello")]]),
                input_guardrails=[polite],
                output_guardrails=[short],
            )
        )

        @workflow(name="one")
        async def one() -> str:
            try:
                return str((await Runner.run(agent, text)).final_output)
            except InputGuardrailTripwireTriggered:
                return "refused"

        return one()

    assert world.run(asked("hi"), id="r1") == "hello"
    assert world.run(asked("rude"), id="r2") == "refused"


def test_a_rejected_call_does_not_happen(world, noted):
    async def main(app):
        run = await app.start(handle("hi"), id="run")
        await app.send("run", "approval:c5", False)
        return await run.result()

    assert world.do(main) == RESULT
    assert "delete a-7" not in noted


def test_a_tool_that_raises_is_reported_to_the_model_as_usual(world):
    @function_tool
    async def broken() -> str:
        raise ValueError("no such order")

    model = ScriptedModel([[function_call("broken", {}, call_id="c1")], [assistant_message("ok")]])
    agent = durable(Agent(name="a", model=model, tools=[broken]))

    @workflow
    async def one() -> str:
        result = await Runner.run(agent, "hi")
        return str([item["output"] for item in result.to_input_list() if "output" in item])

    first = world.run(one())
    assert "An error occurred" in first
    assert world.replays(one()) == first


def test_structured_output_is_returned_as_its_type(world):
    class Report(BaseModel):
        title: str

    agent = durable(
        Agent(
            name="a",
            output_type=Report,
            model=ScriptedModel([[assistant_message('{"title": "Tides"}')]]),
        )
    )

    @workflow
    async def one() -> Report:
        return (await Runner.run(agent, "hi")).final_output

    assert world.run(one()) == Report(title="Tides")


def test_a_workflow_tool_calls_steps(world):
    @step
    async def look_up(order: str) -> str:
        return f"order {order}"

    @workflow_tool
    @function_tool
    async def find(order: str) -> str:
        return await look_up(order)

    model = ScriptedModel(
        [[function_call("find", {"order": "7"}, call_id="c1")], [assistant_message("ok")]]
    )
    agent = durable(Agent(name="a", model=model, tools=[find]))

    @workflow
    async def one() -> str:
        return str((await Runner.run(agent, "hi")).final_output)

    assert world.run(one()) == "ok"
    assert any(key.endswith("look_up#1") for key in world.keys())


def test_an_agent_in_a_step_records_its_calls_within_it(world):
    model = ScriptedModel([[assistant_message("hello")]])
    agent = durable(Agent(name="a", model=model))
    tries = []

    @step(retries=1, backoff=0)
    async def ask() -> str:
        answer = (await Runner.run(agent, "hi")).final_output
        tries.append(answer)
        if len(tries) == 1:
            raise OSError
        return answer

    @workflow
    async def one() -> str:
        return await ask()

    assert world.run(one()) == "hello"
    assert len(tries) == 2, "the model was called once: its script has one answer"


def test_agents_at_the_same_time_in_a_step_keep_their_answers(world):
    """The step is repeated, and the agents ask in another order."""
    tries = []

    class Echo(ScriptedModel):
        async def get_response(self, system_instructions, input, *args, **kwargs):
            await asyncio.sleep(1)
            text = input if isinstance(input, str) else input[0]["content"]
            model = ScriptedModel([[assistant_message(f"echo {text}")]])
            return await model.get_response(system_instructions, input, *args, **kwargs)

    agent = durable(Agent(name="a", model=Echo([])))

    @step(retries=1, backoff=0)
    async def ask() -> list[str]:
        tries.append(1)
        words = ["x", "y"] if len(tries) == 1 else ["y", "x"]
        answers = await asyncio.gather(*(Runner.run(agent, word) for word in words))
        if len(tries) == 1:
            raise OSError
        return [answer.final_output for answer in answers]

    @workflow
    async def one() -> list[str]:
        return await ask()

    assert world.run(one()) == ["echo y", "echo x"]


def test_outside_a_workflow_the_agent_works_as_before():
    agent = durable(Agent(name="a", model=ScriptedModel([[assistant_message("hello")]])))
    assert asyncio.run(Runner.run(agent, "hi")).final_output == "hello"


def test_making_an_agent_durable_twice_changes_nothing():
    agent = durable(Agent(name="a", model=ScriptedModel([])))
    model, tools = agent.model, list(agent.tools)
    assert durable(agent) is agent
    assert agent.model is model
    assert agent.tools == tools


def test_durable_refuses_agents_that_it_cannot_tell_apart():
    with pytest.raises(SettingsError, match="takes an agent"):
        durable("support")
    with pytest.raises(SettingsError, match="two agents are named 'a'"):
        durable(Agent(name="a", handoffs=[Agent(name="a")]))
    with pytest.raises(SettingsError, match="takes an async effect"):
        effect_tool(lambda: 1)
