"""A turn of the Claude Agent SDK in a workflow: tools, approval, streams, usage, conversations."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from claude_agent_sdk import ClaudeAgentOptions, ToolAnnotations, UserMessage, tool
from messages_api import MessagesApi, blocks, call, check_pairs, text
from support_claude import stand_in

from outlast import KEY, NotInRun, Outlast, SettingsError, effect, receive, step, workflow
from outlast.integrations.claude_agent import (
    OutlastSessionStore,
    durable_server,
    effect_tool,
    run_turn,
    workflow_tool,
)

BUNDLED = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
PROGRAMS = ["stand-in", *(["bundled"] if BUNDLED.exists() else [])]
"""`make integrations` installs the SDK with its own program, which is then tested too."""
ADA = "0d7b5b1c-53a4-4f52-8a2e-1d4e0f8a9b10"


class Agent:
    """An agent whose model gives these answers, by the number of tool results that it has got."""

    def __init__(self, api: MessagesApi, options: ClaudeAgentOptions) -> None:
        self.api, self.options = api, options
        self.answers: dict[int, list[dict]] = {}
        self.histories: list[list[dict]] = []
        self.acts: list[str] = []
        self.messages: list[Any] = []

    def answer(self, messages: list[dict]) -> list[dict]:
        check_pairs(messages)
        self.histories.append(messages)
        return self.answers[len(blocks(messages, "tool_result"))]

    def result_of(self, id: str) -> dict:
        """Return the result of a tool call that the model got last."""
        results = blocks(self.histories[-1], "tool_result")
        return next(one for one in results if one["tool_use_id"] == id)


NOW: list[Agent] = []
"""The agent of the test that executes."""


@step
async def look(what: str) -> str:
    return f"saw {what}"


@tool("ask", "Ask a person", {"what": str})
async def ask(args: dict[str, Any]) -> dict[str, Any]:
    answer = await receive("answer", str)
    return {"content": [text(f"{await look(args['what'])}: {answer}")]}


@tool("fail", "Fail", {}, ToolAnnotations(readOnlyHint=True))
async def fail(args: dict[str, Any]) -> dict[str, Any]:
    NOW[-1].acts.append("fail")
    raise LookupError("no such thing")


@effect(timeout=5, idempotent=True, undo=None, failed_on=ValueError)
async def pay(amount: int, to: str = "ada", key: str = KEY) -> dict[str, Any]:
    """Pay a person."""
    NOW[-1].acts.append(f"pay {amount} {to}")
    if amount < 0:
        raise ValueError("cannot pay less than nothing")
    return {"paid": amount}


SHOP = durable_server("shop", tools=[fail, workflow_tool(ask), effect_tool(pay)])


@pytest.fixture(params=PROGRAMS)
def agent(request, tmp_path):
    program = stand_in(tmp_path) if request.param == "stand-in" else BUNDLED

    def answer(messages: list[dict]) -> list[dict]:
        return NOW[-1].answer(messages)

    with MessagesApi(answer) as api:
        options = ClaudeAgentOptions(
            cli_path=program,
            cwd=tmp_path,
            model="claude-sonnet-4-5",
            mcp_servers={"shop": SHOP},
            allowed_tools=["mcp__shop", "Bash"],
            setting_sources=[],
            env={
                "ANTHROPIC_BASE_URL": api.url,
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
        )
        NOW.append(Agent(api, options))
        yield NOW[-1]
        assert not api.errors, api.errors
        NOW.pop()


@workflow
async def turn(prompt: str, conversation: str | None, approve: list[str]) -> str:
    result = await run_turn(
        prompt,
        NOW[-1].options,
        conversation=conversation,
        needs_approval=approve,
        on_message=NOW[-1].messages.append,
    )
    return str(result.result)


def talk(*prompts: str, approve=(), messages=None, conversation: str | None = ADA) -> Any:
    """Execute a turn per prompt in a run of its own. Return the results, and what is stored."""

    async def main() -> tuple[list[str], list[Any]]:
        async with Outlast("memory:") as app:
            results = []
            for number, prompt in enumerate(prompts):
                run = await app.start(turn(prompt, conversation, list(approve)), id=f"r{number}")
                for name, value in (messages or {}).items():
                    await app.send(f"r{number}", name, value)
                results.append(await run.result())
            found = await app.sessions("claude:")
            stored = []
            for one in found:
                project, _, session = one.id.removeprefix("claude:").rpartition("/")
                key = {"project_key": project, "session_id": session}
                stored.append(await OutlastSessionStore(app).load(key))
            return results, stored

    return asyncio.run(main())


def test_tools_are_effects_steps_and_workflow_code(agent):
    agent.answers = {
        0: [call("c1", "mcp__shop__fail"), call("c2", "mcp__shop__pay", amount=5)],
        2: [call("c3", "mcp__shop__ask", what="it")],
        3: [text("done")],
    }
    results, _ = talk("hi", messages={"answer": "yes"})
    assert results == ["done"]
    assert agent.acts == ["fail", "pay 5 ada"]
    assert agent.result_of("c1")["is_error"] is True
    assert "no such thing" in str(agent.result_of("c1")["content"])
    assert '{"paid": 5}' in str(agent.result_of("c2")["content"]).replace("\\", "")
    assert "saw it: yes" in str(agent.result_of("c3")["content"])


def test_exception_of_an_effect_ends_the_turn(agent):
    agent.answers = {0: [call("c1", "mcp__shop__pay", amount=-1)]}
    with pytest.raises(ValueError, match="less than nothing"):
        talk("hi")
    assert agent.acts == ["pay -1 ada"]


def test_conversation_goes_on_and_has_whole_turns(agent):
    agent.answers = {0: [text("hello")]}
    results, stored = talk("I am Ada", "who am I?")
    assert results == ["hello", "hello"]
    said = str([one["content"] for one in agent.histories[-1]])
    assert said.index("I am Ada") < said.index("hello") < said.index("who am I?")
    (entries,) = stored
    assert {one["sessionId"] for one in entries if "sessionId" in one} == {ADA}
    assert len(blocks([one["message"] for one in entries if "message" in one], "text")) >= 2


def test_turns_without_a_conversation_are_separate(agent):
    agent.answers = {0: [text("hello")]}
    _, stored = talk("one", "two", conversation=None)
    assert len(stored) == 2


def test_person_approves_or_rejects_a_call(agent):
    agent.answers = {
        0: [call("c1", "mcp__shop__pay", amount=1)],
        1: [call("c2", "mcp__shop__pay", amount=2)],
        2: [call("c3", "Bash", command="echo > rejected")],
        3: [call("c4", "Bash", command="echo > approved")],
        4: [text("done")],
    }
    verdicts = {"c1": False, "c2": True, "c3": False, "c4": True}
    talk(
        "hi",
        approve=["mcp__shop__pay", "Bash"],
        messages={f"approval:{id}": approved for id, approved in verdicts.items()},
    )
    assert agent.acts == ["pay 2 ada"]
    assert "rejected" in str(agent.result_of("c1")["content"])
    assert "rejected" in str(agent.result_of("c3")["content"])
    folder = Path(agent.options.cwd)
    assert (folder / "approved").exists()
    assert not (folder / "rejected").exists()


def test_messages_reach_the_outside_while_they_arrive(agent):
    agent.answers = {0: [call("c1", "mcp__shop__fail")], 1: [text("done")]}
    talk("hi")
    kinds = [type(one).__name__ for one in agent.messages]
    assert kinds[0] == "SystemMessage"
    assert kinds[-1] == "ResultMessage"
    assert kinds.index("UserMessage") < len(kinds) - kinds[::-1].index("AssistantMessage")


def test_usage_is_the_cost_of_the_steps(agent):
    agent.answers = {0: [call("c1", "mcp__shop__fail")], 1: [text("done")]}

    async def main() -> Any:
        async with Outlast("memory:") as app:
            await (await app.start(turn("hi", ADA, []), id="r")).result()
            return [json.loads(entry.cost) for entry in await app.journal("r") if entry.cost]

    costs = asyncio.run(main())
    assert [one["tokens_input"] for one in costs] == [10, 10]
    assert [one["tokens_output"] for one in costs] == [7, 7]
    assert costs[-1]["usd"] > 0


@pytest.mark.parametrize("agent", ["stand-in"], indirect=True)
def test_second_of_two_turns_at_once_is_refused(agent):
    agent.answers = {0: [call("c1", "mcp__shop__ask", what="it")], 1: [text("done")]}

    async def main() -> None:
        async with Outlast("memory:") as app:
            runs = [await app.start(turn("hi", ADA, []), id=f"r{n}") for n in range(2)]
            for n in range(2):
                await app.send(f"r{n}", "answer", "yes")
            ends = await asyncio.gather(*(run.result() for run in runs), return_exceptions=True)
            assert sorted(type(one).__name__ for one in ends) == ["VersionConflict", "str"]
            (found,) = await app.sessions("claude:")
            assert found.version == 1

    asyncio.run(main())


class Died(Exception):
    """Ends a step as a crash does: the program is lost."""


@workflow
async def turn_again(prompt: str) -> str:
    """Repeat a turn in one run, which is what the next life of a run does."""
    result = await run_turn(prompt, NOW[-1].options, conversation=ADA, on_message=die_once)
    return str(result.result)


def die_once(message: Any) -> None:
    agent = NOW[-1]
    if isinstance(message, UserMessage) and "acted" not in agent.acts:
        agent.acts.append("acted")
        raise Died


def test_call_of_unknown_outcome_is_not_repeated(agent):
    """The step fails after the tool of the program has acted. A retry is the next attempt."""
    agent.answers = {
        0: [call("c1", "Bash", command="echo once >> acts")],
        1: [text("checked")],
    }

    async def main() -> str:
        async with Outlast("memory:") as app:
            run = await app.start(turn_again("hi"), id="r")
            with pytest.raises(Died):
                await run.result()
            await app.retry("r")
            return await (await app.start(turn_again("hi"), id="r")).result()

    assert asyncio.run(main()) == "checked"
    assert (Path(agent.options.cwd) / "acts").read_text() == "once\n"
    assert "not known whether it was executed" in str(agent.result_of("c1")["content"])


@pytest.mark.parametrize("agent", ["stand-in"], indirect=True)
@pytest.mark.parametrize(
    "more", [{"resume": ADA}, {"session_id": ADA}, {"continue_conversation": True}], ids=str
)
def test_options_that_choose_the_session_are_refused(agent, more):
    agent.options = replace(agent.options, **more)
    with pytest.raises(SettingsError, match=rf"options\.{next(iter(more))}"):
        talk("hi")
    assert agent.histories == []


def test_turn_needs_a_workflow():
    with pytest.raises(NotInRun, match="own code of an async workflow"):
        asyncio.run(run_turn("hi"))


def test_effect_tool_takes_an_effect():
    with pytest.raises(SettingsError, match="takes an async effect"):
        effect_tool(look)


def test_schema_of_an_effect_leaves_out_the_key():
    schema = effect_tool(pay).input_schema
    assert set(schema["properties"]) == {"amount", "to"}
    assert schema["required"] == ["amount"]
