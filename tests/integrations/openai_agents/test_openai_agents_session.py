"""A conversation of the OpenAI Agents SDK is kept in a session."""

import asyncio

import pytest
from agents import Agent, Runner, SessionSettings, function_tool
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message, function_call

from outlast import workflow
from outlast.errors import NotInRun
from outlast.integrations.openai_agents import OutlastSession, durable
from outlast.testing import crash_everywhere

CALL = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3 hits"}
USER = {"role": "user", "content": "hi"}


@function_tool
async def search(query: str) -> str:
    """Search the archive."""
    return f"three results for {query}"


def agent() -> Agent:
    turns = [
        [function_call("search", {"query": "tides"}, call_id="c1")],
        [assistant_message("Three.")],
        [assistant_message("Lubbock.")],
    ]
    return durable(Agent(name="a", model=ScriptedModel(turns), tools=[search]))


@workflow
async def two_turns(name: str) -> list[str]:
    one, conversation = agent(), OutlastSession(name)
    first = await Runner.run(one, "How many?", session=conversation)
    second = await Runner.run(one, "Who?", session=conversation)
    assert isinstance(conversation, Session)
    return [first.final_output, second.final_output]


def kinds(items) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


WHOLE = ["user", "function_call", "function_call_output", "assistant", "user", "assistant"]


def test_second_run_of_an_agent_sees_the_first(world):
    async def main(app):
        assert await (await app.start(two_turns("ada"), id="r")).result() == ["Three.", "Lubbock."]
        return await OutlastSession("ada", app).get_items()

    assert kinds(world.do(main)) == WHOLE


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_conversation_is_the_same_after_any_crash():
    histories = []

    @workflow
    async def whole(name: str) -> list[str]:
        conversation, one = OutlastSession(name), agent()
        await Runner.run(one, "How many?", session=conversation)
        history = kinds(await conversation.get_items())
        histories.append(history)
        return history

    crash_everywhere(whole("ada"))
    assert histories
    assert all(history == WHOLE[:4] for history in histories)


def test_tool_call_appears_together_with_its_result(world):
    async def main(app):
        conversation = OutlastSession("ada", app)
        await conversation.add_items([USER, CALL])
        assert await conversation.get_items() == [USER]
        await conversation.add_items([RESULT])
        assert await conversation.get_items() == [USER, CALL, RESULT]

    world.do(main)


def test_parallel_calls_wait_for_the_last_result(world):
    call, result = {**CALL, "call_id": "c2"}, {**RESULT, "call_id": "c2"}

    async def main(app):
        conversation = OutlastSession("ada", app)
        await conversation.add_items([CALL, call, RESULT])
        assert await conversation.get_items() == []
        await conversation.add_items([result])
        assert await conversation.get_items() == [CALL, call, RESULT, result]

    world.do(main)


def test_call_that_was_given_up_is_dropped_when_a_person_speaks(world):
    async def main(app):
        conversation = OutlastSession("ada", app)
        await conversation.add_items([USER, CALL])
        await conversation.add_items([{"role": "user", "content": "never mind"}])
        assert kinds(await conversation.get_items()) == ["user", "user"]

    world.do(main)


def test_pop_takes_the_newest_item_even_one_that_is_held_back(world):
    async def main(app):
        conversation = OutlastSession("ada", app)
        assert await conversation.pop_item() is None
        await conversation.add_items([USER, CALL])
        assert await conversation.pop_item() == CALL
        assert await conversation.pop_item() == USER
        assert await conversation.pop_item() is None

    world.do(main)


def test_limit_leaves_out_a_result_without_its_call(world):
    async def main(app):
        conversation = OutlastSession("ada", app, session_settings=SessionSettings(limit=2))
        await conversation.add_items([USER, CALL, RESULT, {"role": "assistant", "content": "3"}])
        assert kinds(await conversation.get_items()) == ["assistant"]
        assert kinds(await conversation.get_items(limit=3)) == [
            "function_call", "function_call_output", "assistant",
        ]  # fmt: skip

    world.do(main)


def test_cleared_conversation_is_empty(world):
    async def main(app):
        conversation = OutlastSession("ada", app)
        await conversation.add_items([USER])
        await conversation.clear_session()
        assert await conversation.get_items() == []

    world.do(main)


def test_conversation_outside_a_run_needs_the_app():
    with pytest.raises(NotInRun, match="app"):
        asyncio.run(OutlastSession("ada").get_items())
