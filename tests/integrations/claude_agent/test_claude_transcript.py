"""A turn that is resumed has a result for every tool call, and no call of a sub-agent is repeated."""

import asyncio
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions

from outlast.integrations.claude_agent.session_store import MAIN
from outlast.integrations.claude_agent.tools import as_result
from outlast.integrations.claude_agent.transcript import (
    INTERRUPTED,
    NOT_EXECUTED,
    TurnTranscript,
    answered_calls,
    missing_results,
)
from outlast.integrations.claude_agent.turns import Turn

KEY: Any = {"project_key": "p", "session_id": "s"}


def asks(*ids: str) -> dict:
    content = [{"type": "tool_use", "id": id, "name": "t", "input": {}} for id in ids]
    message = {"role": "assistant", "content": content, "stop_reason": "tool_use"}
    return {"type": "assistant", "uuid": f"u-{ids[0]}", "sessionId": "s", "message": message}


def texts(entries: list[dict]) -> dict[str, str]:
    blocks = [block for entry in entries for block in entry["message"]["content"]]
    return {one["tool_use_id"]: one["content"][0]["text"] for one in blocks}


def test_every_open_call_gets_what_is_known_of_it():
    entries = [asks("done", "begun", "later")]
    added = missing_results(entries, {"done": as_result("yes")}, {"begun"})
    assert texts(added) == {"done": "yes", "begun": INTERRUPTED, "later": NOT_EXECUTED}
    assert answered_calls(added) == {"done", "begun", "later"}
    assert {one["parentUuid"] for one in added} == {"u-done"}


def test_added_results_are_the_same_in_every_life():
    entries = [asks("one")]
    assert missing_results(entries, {}, ()) == missing_results(entries, {}, ())


def test_call_with_a_result_gets_no_second_one():
    entries = [asks("one")]
    entries += missing_results(entries, {}, ())
    assert missing_results(entries, {"one": as_result("late")}, {"one"}) == []


def test_interrupted_sub_agent_tells_what_its_calls_returned():
    added = missing_results([asks("agent")], {"inner": as_result("paid 5")}, {"agent"})
    assert "paid 5" in texts(added)["agent"]


def test_transcript_takes_the_id_of_the_conversation():
    async def main() -> None:
        transcript = TurnTranscript("mine", {MAIN: [asks("earlier")]})
        await transcript.append(KEY, [asks("new"), {"type": "mode"}])
        loaded = await transcript.load(KEY)
        assert [one.get("sessionId") for one in loaded] == ["s", "mine", None]
        assert transcript.take() == {MAIN: loaded[1:]}
        assert transcript.take() == {}
        assert await transcript.load(KEY) == loaded

    asyncio.run(main())


@pytest.mark.parametrize(("kept", "again"), [(["c1"], {}), ([], {"pay {}": [as_result("paid")]})])
def test_only_calls_that_the_transcript_lost_keep_their_results(kept, again):
    turn = Turn("hi", ClaudeAgentOptions(), "s", None, (), None)
    turn.made, turn.results = {"c1": "pay {}"}, {"c1": as_result("paid")}
    entries = {MAIN: [asks(*kept)]} if kept else {}
    turn.take({"opened": {}, "resumed": False, "entries": entries, "pauses": []})
    turn.take({"opened": {}, "resumed": True, "entries": {}, "pauses": []})
    assert turn.again == again
