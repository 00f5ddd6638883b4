"""Forms that act on runs: they ask once, record who did it, and do it once."""

import re

import pytest
from ui_tools import Html, failing, paying, runs_in, spending, waiting

from outlast import RunParked


async def parked(site, id):
    run = await site.app.start(paying(700), id=id)

    with pytest.raises(RunParked):
        await run.result()
    return run


def test_message_is_sent_once_with_the_name_of_its_sender(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(waiting("ready? "), id="r1")
        fields = Html(await olga.get("/runs/r1/message?name=answer")).hidden
        assert (await olga.get("/runs/r1")).status_code == 200
        again = {**fields, "name": "answer", "kind": "text", "value": "go"}
        answers = [await olga.submit("/runs/r1/message", **again) for _ in range(2)]
        assert "The message was sent." in answers[0].text
        assert await run.result() == "ready? go"
        page = await site.page(olga, "/runs/r1")
        assert len(re.findall(r"by\s+olga", page.text)) == 1

    visited(scenario)


@pytest.mark.parametrize(
    ("kind", "value", "becomes"),
    [("yes", "", "?True"), ("no", "", "?False"), ("json", '{"a": [1]}', "?{'a': [1]}"),
     ("nothing", "x", "?None"), ("text", "a\r\nb", "?a\nb")],
)  # fmt: skip
def test_value_of_a_message_is_what_the_form_says(visited, kind, value, becomes):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(waiting("?"), id="r1")
        await olga.act("/runs/r1/message", name="answer", kind=kind, value=value)
        assert await run.result() == becomes

    visited(scenario)


def test_text_that_is_not_json_is_refused_before_anything_is_sent(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.start(waiting("?"), id="r1")
        for value in ("{", "NaN", "[" * 100_000):
            answer = await olga.act("/runs/r1/message", name="answer", kind="json", value=value)
            assert answer.status_code == 422
            assert "not JSON" in answer.text

    visited(scenario, worker=False)


def test_effect_is_decided_on_its_page(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await parked(site, "r1")
        page = await site.page(olga, "/runs/r1")
        assert "may or may not have happened" in page.text
        (decide, *_) = [href for href in page.links() if "decide?effect" in href]
        form = Html(await olga.get(decide))
        assert form.hidden["intent"] != ""
        answer = await olga.act(decide, outcome="happened", kind="text", value="receipt 7")
        assert "The effect was decided." in answer.text
        assert await run.result() == "receipt 7"
        assert "by olga" in (await olga.get("/runs/r1")).text

    visited(scenario)


def test_exhausted_budget_is_raised_on_its_page(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(spending(), id="r1")
        with pytest.raises(RunParked):
            await run.result()
        page = await site.page(olga, "/runs/r1")
        assert "1 of 1 usd are spent" in page.text
        assert "/runs/r1/decide" in page.links()
        form = Html(await olga.get("/runs/r1/decide"))
        assert form.hidden["effect"] == "budget:run:r1/answer"
        assert "New limit of usd" in form.text
        answer = await olga.submit("/runs/r1/decide", **form.hidden, value="much")
        assert answer.status_code == 422
        await olga.submit("/runs/r1/decide", **form.hidden, value="2")
        assert await site.app.result("r1") == 3
        assert "by olga" in (await olga.get("/runs/r1")).text

    visited(scenario)


def test_decision_about_an_earlier_attempt_is_refused(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await parked(site, "r1")
        fields = Html(await olga.get("/runs/r1/decide")).hidden
        fields["intent"] = "99"
        answer = await olga.submit(
            "/runs/r1/decide", **fields, outcome="did_not", kind="nothing", value=""
        )
        assert answer.status_code == 409
        answer = await olga.submit("/runs/r1/decide", **fields)
        assert answer.status_code == 422

    visited(scenario)


def test_failed_run_is_retried_and_a_second_click_does_nothing_more(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(failing("no"), id="r1")
        with pytest.raises(Exception, match="no"):
            await run.result()
        fields = Html(await olga.get("/runs/r1/retry")).hidden
        for _ in range(2):
            answer = await olga.submit("/runs/r1/retry", **fields)
            assert answer.status_code == 200, answer.text
        history = await site.app.journal("r1")
        assert [entry.kind for entry in history].count("retry") == 1

    visited(scenario)


def test_action_that_the_status_forbids_is_explained(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.start(waiting("?"), id="r1")
        answer = await olga.act("/runs/r1/retry")
        assert answer.status_code == 409
        assert "cannot be retried" in answer.text

    visited(scenario, worker=False)


def test_selected_runs_are_cancelled_and_the_others_stay(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        for id in ("a/1", "a/2", "b"):
            await site.app.submit(waiting("?"), id=id)
        page = await site.page(olga, "/runs")
        assert runs_in(page) == ["b", "a%2F2", "a%2F1"]
        boxes = [one["value"] for one in page.all("input") if one.get("name") == "id"]
        assert boxes == ["b", "a/2", "a/1"]
        page = Html(await olga.get("/bulk", params={"action": "cancel", "id": ["a/1", "a/2"]}))
        answer = await olga.submit("/bulk", **{**page.hidden, "id": ["a/1", "a/2", "gone"]})
        assert "Cancel: 2 runs" in Html(answer).text
        assert "gone" in answer.text
        page = await site.page(olga, "/runs?status=cancelled")
        assert sorted(runs_in(page)) == ["a%2F1", "a%2F2"]

    visited(scenario, worker=False)


def test_all_runs_that_match_are_cancelled_after_they_were_counted(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        for id in ("a1", "a2", "b"):
            await site.app.submit(waiting("?"), id=id)
        page = await site.page(olga, "/runs?prefix=a")
        (link,) = [href for href in page.links() if "action=cancel" in href]
        page = Html(await olga.get(link))
        assert "Cancel 2 runs" in page.text
        answer = await olga.submit("/bulk", **page.hidden)
        assert "Cancel: 2 runs" in Html(answer).text
        assert runs_in(await site.page(olga, "/runs?status=queued")) == ["b"]
        nothing = {**page.hidden, "prefix": ""}
        assert (await olga.submit("/bulk", **nothing)).status_code == 422

    visited(scenario, worker=False)


def test_all_runs_of_a_key_are_cancelled(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        for id, key in (("a1", "ann"), ("a2", "ann"), ("b", "bob")):
            await site.app.submit(waiting("?"), id=id, key=key)
        page = Html(await olga.get("/bulk?action=cancel&key=ann"))
        assert "Cancel 2 runs" in page.text
        answer = await olga.submit("/bulk", **page.hidden)
        assert "Cancel: 2 runs" in Html(answer).text
        assert runs_in(await site.page(olga, "/runs?status=queued")) == ["b"]

    visited(scenario, worker=False)


def test_only_operators_act_on_many_runs(visited):
    async def scenario(site):
        sam = await site.as_("sam")
        await site.app.submit(waiting("?"), id="r1", by="sam")
        page = await site.page(sam, "/runs?prefix=r")
        assert not any("bulk" in href for href in page.links())
        answer = await sam.get("/bulk?action=cancel&prefix=r")
        assert answer.status_code == 403
        fields = Html(await sam.get("/runs/r1/cancel")).hidden
        answer = await sam.submit("/bulk", **fields, action="cancel", prefix="r")
        assert answer.status_code == 403
        answer = await sam.submit("/bulk", **fields, action="retry", id="r1")
        assert "Refused" in answer.text

    visited(scenario, worker=False)
