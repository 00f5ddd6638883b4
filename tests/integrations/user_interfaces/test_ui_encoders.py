"""The encoders for the Vercel AI SDK and for AG-UI, over runs that really publish."""

from __future__ import annotations

import json

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from outlast import EndEvent, publish, step, workflow
from outlast.integrations import ag_ui, ai_sdk
from outlast.testing import App

AG_UI_EVENT = TypeAdapter(Event)


@step(retries=1, backoff=0)
async def answer(failures: list[int]) -> str:
    from outlast import current

    async with publish("answer") as out:
        await out.write("Tides ")
        await out.write("come")
        if current().attempt in failures:
            raise ConnectionError("the provider hung up")
        await out.write(" and go.\n")
        await out.write({"sources": 2})
        await out.write("")
    return "Tides come and go.\n"


@workflow
async def chat(failures: list[int]) -> str:
    return await answer(failures)


def frames(encode, failures: list[int] = []) -> list[str]:
    """Return what an encoder makes of a run that was watched while it executed."""

    async def main(app):
        await app.start(chat(failures), id="run-1")
        return [frame async for frame in encode(app.watch("run-1", "answer"))]

    return App().do(main)


def documents(said: list[str]) -> list[dict]:
    found = [
        line.removeprefix("data: ")
        for frame in said
        for line in frame.splitlines()
        if line.startswith("data: ")
    ]
    return [json.loads(text) for text in found if text != "[DONE]"]


def text_of_parts(parts: list[dict]) -> str:
    """Join the text after the last reset, as a page does."""
    text = ""
    for part in parts:
        if part["type"] == "data-reset":
            text = ""
        elif part["type"] == "text-delta":
            text += part["delta"]
    return text


def as_ai_sdk(events):
    return ai_sdk.encode(events, "message-1")


def as_ag_ui(events):
    return ag_ui.encode(events, thread_id="thread-1", run_id="run-1", history=HISTORY)


HISTORY = [{"id": "m-1", "role": "user", "content": "how do tides come and go?"}]


def test_ai_sdk_shows_the_text_of_the_result():
    said = frames(as_ai_sdk)
    parts = documents(said)
    assert text_of_parts(parts) == "Tides come and go.\n"
    assert [part["type"] for part in parts if part["type"] != "text-delta"] == [
        "start", "start-step", "text-start", "text-end", "data-answer", "text-start", "text-end", "finish-step", "finish",
    ]  # fmt: skip
    assert said[-1] == "data: [DONE]\n\n"


def test_ai_sdk_begins_another_text_after_a_reset():
    parts = documents(frames(as_ai_sdk, [1]))
    kinds = [part["type"] for part in parts]
    reset = kinds.index("data-reset")
    assert kinds[reset - 1] == "text-end", "no text is open at a reset"
    assert text_of_parts(parts) == "Tides come and go.\n"
    ids = [part["id"] for part in parts if part["type"] == "text-start"]
    assert len(ids) == len(set(ids))


def test_ai_sdk_ends_with_the_error_of_a_failed_run():
    parts = documents(frames(as_ai_sdk, [1, 2]))
    assert parts[-1] == {"type": "error", "errorText": "the provider hung up"}


@pytest.mark.parametrize("failures", [[], [1], [1, 2]])
def test_ag_ui_events_are_valid_and_end_the_run(failures):
    events = documents(frames(as_ag_ui, failures))
    for event in events:
        AG_UI_EVENT.validate_python(event)
    assert events[0]["type"] == "RUN_STARTED"
    if failures == [1, 2]:
        assert events[-1] == {
            "type": "RUN_ERROR",
            "message": "the provider hung up",
            "code": "failed",
        }
    else:
        assert events[-1]["type"] == "RUN_FINISHED"
        assert events[-1]["result"] == "Tides come and go.\n"


def test_ag_ui_replaces_the_messages_after_a_reset():
    shown: dict[str, str] = {}
    opened: list[str] = []
    resets = 0
    for event in documents(frames(as_ag_ui, [1])):
        match event["type"]:
            case "TEXT_MESSAGE_START":
                assert event["messageId"] not in opened
                opened.append(event["messageId"])
                shown[event["messageId"]] = ""
            case "TEXT_MESSAGE_CONTENT":
                shown[event["messageId"]] += event["delta"]
            case "MESSAGES_SNAPSHOT":
                resets += 1
                assert event["messages"] == HISTORY
                shown = {}
    assert resets == 1
    assert "".join(shown.values()) == "Tides come and go.\n"


@pytest.mark.parametrize("encode", [as_ai_sdk, as_ag_ui])
def test_cursor_comes_with_the_last_frame_of_its_event(encode):
    """A client that lost its connection before that frame receives the whole event again."""
    said = frames(encode, [1])
    ids = [frame.splitlines()[0] for frame in said if frame.startswith("id: ")]
    assert len(ids) == len(set(ids))
    with_start = [frame for frame in said if "text-start" in frame or "TEXT_MESSAGE_START" in frame]
    assert with_start
    assert not any(frame.startswith("id: ") for frame in with_start)


@pytest.mark.parametrize(
    ("status", "reason", "part"),
    [
        ("cancelled", "no longer needed", {"type": "abort", "reason": "no longer needed"}),
        ("dead", "died 5 times", {"type": "error", "errorText": "died 5 times"}),
        ("dead", None, {"type": "error", "errorText": "the run is dead"}),
    ],
)
def test_other_ends_have_their_own_parts(status, reason, part):
    async def events():
        yield EndEvent("c", status, None, None, reason)

    async def main(_app):
        return [frame async for frame in as_ai_sdk(events())]

    assert documents(App().do(main))[-1] == part
