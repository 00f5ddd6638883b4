"""Forms that are made from the type of the message that a run waits for."""

import json
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from ui_tools import Html

from outlast import receive, workflow
from outlast.engine.message_types import MESSAGE_TYPES, NAMES_MAX
from outlast.http.web.message_form import form_of
from support.waiting import wait_until_async


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Decision(BaseModel):
    approved: bool
    cents: int = Field(description="How much may be spent")
    colour: Colour
    note: str = ""
    limit: float | None = None
    tags: list[str] = []


@workflow
async def approval() -> str:
    return repr(await receive("decision", bool))


@workflow
async def detailed() -> str:
    return repr(await receive("decision", Decision))


@workflow
async def numbered() -> str:
    return repr(await receive("decision", int))


@workflow
async def chosen() -> str:
    return repr(await receive("decision", Literal["fast", "slow", 3]))


@workflow
async def nested() -> str:
    return repr(await receive("decision", dict[str, list[int]]))


@workflow
async def many_names(count: int) -> None:
    for number in range(count):
        await receive(f"answer-{number}", bool)


async def waiting_run(site, flow):
    run = await site.app.start(flow, id="r1")

    store = site.app._open.store
    await wait_until_async(lambda: store.run("r1").waits)
    return run


@pytest.mark.parametrize(("value", "becomes"), [("true", "True"), ("false", "False")])
def test_question_is_answered_with_one_click(visited, value, becomes):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await waiting_run(site, approval())
        page = await site.page(olga, "/runs/r1/message")
        buttons = {one["value"] for one in page.all("button") if one.get("name") == "value"}
        assert buttons == {"true", "false"}
        answer = await olga.act("/runs/r1/message", value=value)
        assert "The message was sent." in answer.text
        assert await run.result() == becomes

    visited(scenario)


def test_object_has_a_field_for_each_part_and_what_is_left_out_has_its_default(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await waiting_run(site, detailed())
        page = await site.page(olga, "/runs/r1/message")
        assert "How much may be spent" in page.text
        names = [one["value"] for one in page.all("input") if one.get("name") == "field"]
        kinds = [one["value"] for one in page.all("input") if one.get("name") == "type"]
        assert names == ["approved", "cents", "colour", "note", "limit", "tags"]
        shared = {**page.hidden, "field": names, "type": kinds}
        wrong = await olga.submit(
            "/runs/r1/message", **shared, value=["true", "many", '"red"', "", "", ""]
        )
        assert wrong.status_code == 422
        assert "cents" in wrong.text
        values = ["true", "700", '"blue"', "a\r\nb", "", '["x"]']
        answer = await olga.submit("/runs/r1/message", **shared, value=values)
        assert "The message was sent." in answer.text, answer.text
        expected = Decision(approved=True, cents=700, colour=Colour.BLUE, note="a\nb", tags=["x"])
        assert await run.result() == repr(expected)

    visited(scenario)


@pytest.mark.parametrize(
    ("flow", "value", "becomes"), [(numbered, "-7", "-7"), (chosen, '"slow"', "'slow'")]
)
def test_number_and_choice_are_one_field(visited, flow, value, becomes):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await waiting_run(site, flow())
        answer = await olga.act("/runs/r1/message", value=value)
        assert "The message was sent." in answer.text
        assert await run.result() == becomes

    visited(scenario)


def test_what_no_form_can_say_is_sent_as_json(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await waiting_run(site, nested())
        page = await site.page(olga, "/runs/r1/message")
        assert "kind" in {one.get("name") for one in page.all("select")}
        page = await olga.get("/runs/r1/message?name=decision&as=json")
        assert "shape" not in Html(page).hidden
        await olga.act("/runs/r1/message", name="decision", kind="json", value='{"a": [1]}')
        assert await run.result() == "{'a': [1]}"

    visited(scenario)


def test_schemas_are_recorded_once_and_only_so_many(visited):
    async def scenario(site):
        store = site.app._open.store
        run = await waiting_run(site, approval())
        recorded = store.session("approval", MESSAGE_TYPES)
        assert json.loads(recorded.fields["decision"]) == {"type": "boolean"}
        await site.app.send("r1", "decision", True)
        await run.result()
        again = await site.app.start(approval(), id="r2")
        await site.app.send("r2", "decision", True)
        await again.result()
        assert store.session("approval", MESSAGE_TYPES).version == recorded.version
        count = NAMES_MAX + 5
        many = await site.app.start(many_names(count), id="r3")
        for number in range(count):
            await site.app.send("r3", f"answer-{number}", True)
        await many.result()
        names = store.session("many_names", MESSAGE_TYPES)
        assert names is None or len(names.fields) <= NAMES_MAX

    visited(scenario)


@pytest.mark.parametrize(
    "schema", [None, [], {}, {"type": "array"}, {"type": "object"}, {"$ref": "#/$defs/x"},
               {"$ref": "#", "$defs": {}}, {"type": "object", "properties": {}}],
)  # fmt: skip
def test_schema_without_a_form_asks_for_json(schema: Any):
    assert form_of(schema) is None
