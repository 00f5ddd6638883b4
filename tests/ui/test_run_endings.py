"""The page of a run says how its executions ended, and ends its axis where the run ended."""

import re

import pytest
from ui_tools import paying, waiting

from outlast import RunParked
from outlast.store.commands import Claim, Resume, Retry, Settle
from support.store_writes import Writes

ERROR = '{"type": "builtins:ValueError", "message": "no ink"}'


def labels(page):
    """Return the labels of the time axis."""
    found = re.search(r'class="axis".*?</svg>', page.answer.text, re.DOTALL)
    return re.findall(r">([^<>]+)</text>", found[0])


@pytest.mark.parametrize(
    ("status", "again", "label"),
    [("failed", Retry, "Failed"), ("parked", Resume, "Parked"), ("cancelled", Retry, "Cancelled")],
)
def test_handover_says_how_the_execution_before_it_ended(visited, status, again, label):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        await writes.entry(row, 1, "step", "a#1", value="1", seconds=0.1)
        await writes.commit(Settle(row.pk, row.fence, status, error=ERROR, reason="it ended"))
        await writes.commit(again("r1", "t1"))
        writes.store.acquire_liveness("living")
        (row,) = (await writes.commit(Claim("living", "c1", (), ("default",), ("report",))))[0]
        await writes.entry(row, writes.store.last_seq(row.pk) + 1, "step", "b#1", value="1")
        page = await site.page(await site.as_("olga"), "/runs/r1")
        handovers = re.findall(
            r'<li class="handover handover">\s*<strong>([^<]+)', page.answer.text
        )
        assert handovers == [label]
        assert "the same worker continued" in page.text
        assert f"fence {row.fence}" in page.text
        assert "fence -" not in page.text
        entry = await site.page(await site.as_("olga"), "/runs/r1/entries/2")
        assert "Fence" not in entry.text, "no worker wrote this entry"

    visited(scenario, worker=False)


def test_received_message_is_shown_instead_of_its_number(visited):
    async def scenario(site):
        olga, vera = await site.as_("olga"), await site.as_("vera")
        run = await site.app.start(waiting("?"), id="r1")
        await site.app.send("r1", "answer", True)
        await run.result()
        page = await site.page(olga, "/runs/r1")
        assert re.search(r"Message</h4>\s*<pre[^>]*>true</pre>", page.answer.text)
        assert not re.search(r"Result</h4>\s*<pre[^>]*>1</pre>", page.answer.text)
        assert "Number of the message" in (await site.page(olga, "/runs/r1/entries/1")).text
        assert "true" not in (await site.page(vera, "/runs/r1")).text

    visited(scenario, masked_roles="viewer")


def test_axis_of_a_run_that_failed_at_once_ends_with_the_run(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        await writes.commit(Settle(row.pk, row.fence, "failed", error=ERROR))
        past = "UPDATE runs SET created = created - 100, started = started - 100"
        writes.store._db.execute(f"{past}, ended = started - 100 + 0.007")
        page = await site.page(await site.as_("olga"), "/runs/r1")
        assert labels(page)
        assert all(label == "0" or label.endswith(" ms") for label in labels(page)), labels(page)

    visited(scenario, worker=False)


def test_delayed_run_has_a_due_time_an_age_and_an_axis_until_now(visited):
    async def scenario(site):
        writes = Writes(site.app)
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1", delay=3_600)
        page = await site.page(olga, "/runs/r1")
        facts = re.findall(r"<dt>([^<]+)</dt>", page.answer.text)
        assert {"Due", "Age"} <= set(facts)
        assert "Runs for" not in facts
        writes.store._db.execute("UPDATE runs SET created = created - 7200")
        page = await site.page(olga, "/runs/r1")
        assert re.search("<dt>Age</dt><dd>2 h", page.answer.text)
        held = await writes.held("r2")
        await writes.entry(held, 1, "step", "a#1", value="1", seconds=0.3)
        writes.store._db.execute("UPDATE entries SET at = at - 7200")
        writes.store._db.execute(
            "UPDATE runs SET created = created - 7200, started = started - 7200, worker = NULL, "
            "status = 'queued', due = due + 3600 WHERE id = 'r2'"
        )
        writes.store._db.execute("UPDATE executions SET ended = began")
        assert labels(await site.page(olga, "/runs/r2"))[-1] == "+2 h"

    visited(scenario, worker=False)


def test_retry_that_will_be_refused_is_announced(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(waiting("?"), id="r1")
        await site.app.send("r1", "answer", "x")
        await run.result()
        page = await site.page(olga, "/runs/r1/retry")
        assert "This run is done, so retrying it will be refused." in page.text
        assert (await olga.act("/runs/r1/retry")).status_code == 409
        with pytest.raises(RunParked):
            await (await site.app.start(paying(7), id="p1")).result()
        page = await site.page(olga, "/runs/p1/retry")
        assert "This run is parked, so this will probably be refused." in page.text

    visited(scenario)
