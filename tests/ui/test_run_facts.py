"""What the page of a run says beside its timeline: cost, children, waits, keys and fences."""

import json

import pytest
from ui_tools import Html, paying, runs_in

from outlast import RunParked
from outlast.store.commands import Release, Submit
from support.store_writes import Writes


def test_cost_of_a_run_and_of_each_step_is_shown(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        cost = json.dumps({"tokens": 1200, "usd": 0.004})
        await writes.entry(row, 1, "step", "a#1", value="1", seconds=1.0, cost=cost)
        await writes.entry(row, 2, "step", "b#1", value="1", seconds=1.0, cost=cost)
        page = await site.page(await site.as_("olga"), "/runs/r1")
        assert "2,400 tokens, $0.008" in page.text
        assert page.text.count("1,200 tokens, $0.004") == 2

    visited(scenario, worker=False)


def test_children_are_listed_with_their_status_and_a_bar(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        for number in range(35):
            child = Submit(
                f"r1/child#{number}", "part", "[]", f"c{number}", "00" * 16, parent="r1",
                worker="living",
            )  # fmt: skip
            await writes.commit(child)
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1")
        assert "/runs/r1%2Fchild%230" in page.links()
        assert [one["class"] for one in page.all("rect")].count("running") > 30
        assert "/runs?parent=r1" in page.links()
        assert len(runs_in(await site.page(olga, "/runs?parent=r1"))) == 35
        child = await site.page(olga, "/runs/r1%2Fchild%230")
        assert "/runs/r1" in child.links()
        assert row.id == "r1"

    visited(scenario, worker=False)


def test_key_and_fence_of_an_effect_are_shown(visited):
    async def scenario(site):
        with pytest.raises(RunParked):
            await (await site.app.start(paying(7), id="r1")).result()
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1")
        (effect, *_) = await site.app.effects("r1")
        assert effect.key in page.text
        store = site.app._open.store
        (intent, *_) = store.journal(store.run("r1").pk)
        assert f"fence {intent.fence}" in page.text
        assert effect.key in Html(await olga.get("/runs/r1/decide")).text

    visited(scenario)


def test_everything_that_a_run_waits_for_is_named(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        later = writes.store.now() + 3_600
        due = json.dumps(later)
        await writes.entry(row, 1, "attempt", "fetch#1", attempt=1, value=due, error="{}")
        await writes.commit(
            Submit("r1/part#1", "part", "[]", "c1", "00" * 16, parent="r1"),
            Release(
                row.pk, row.fence, "waits", waiting=True, due=later, waits=("approval",),
                children=("r1/part#1",),
            ),
        )  # fmt: skip
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1")
        for words in ("the message", "a timer, until", "the next attempt of", "the child"):
            assert words in page.text, words
        assert "/runs/r1/message?name=approval" in page.links()
        assert "No live worker takes this run." in page.text

    visited(scenario, worker=False)


def test_runs_are_found_by_what_they_wait_for_and_by_their_age(visited):
    async def scenario(site):
        writes = Writes(site.app)
        for id, waits in (("a", ("approval",)), ("b", ("approval", "stop")), ("c", ())):
            row = await writes.held(id)
            await writes.commit(Release(row.pk, row.fence, "waits", waiting=True, waits=waits))
        olga = await site.as_("olga")
        assert runs_in(await site.page(olga, "/runs?waiting_for=approval")) == ["b", "a"]
        assert runs_in(await site.page(olga, "/runs?waiting_for=stop")) == ["b"]
        old = "UPDATE runs SET created = created - 7200 WHERE id = 'a'"
        writes.store._db.execute(old)
        assert runs_in(await site.page(olga, "/runs?newer_than=3600")) == ["c", "b"]
        page = await site.page(olga, "/runs?newer_than=86400&waiting_for=approval")
        assert runs_in(page) == ["b", "a"]

    visited(scenario, worker=False)
