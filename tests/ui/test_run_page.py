"""The page of a run: its timeline, the handovers between executions, and its values."""

import asyncio
import json

from ui_tools import Html

from outlast.engine.executing_steps import EXECUTING
from outlast.http.rest import journals
from outlast.store.commands import (
    Claim,
    Record,
    RegisterWorker,
    Send,
    Settle,
    SetWaiting,
    Sweep,
    UpdateSession,
)
from outlast.store.commands import SaveProgress as Progress
from support.store_writes import Writes

ERROR = json.dumps(
    {"type": "builtins:ValueError", "message": "no ink", "args": [], "traceback": "line 7 in write"}
)
HOSTILE = "<script>alert('1')</script>\"'><img src=x onerror=alert(2)>\u202e"


async def taken_over(writes, id="r1", **fields):
    """A run with a retried step whose worker died, and which another worker continues."""
    await writes.commit(RegisterWorker("first", "host-a", 41, 0.0, ("default",), ("report",), 4))
    row = await writes.held(id, "first", lease=0.0, **fields)
    await writes.entry(row, 1, "attempt", "search#1", attempt=1, error=ERROR, seconds=0.2)
    await writes.entry(
        row, 2, "step", "search#1", args='{"topic":"ink"}', value='"notes"', seconds=1.5, attempt=2
    )
    await writes.entry(row, 3, "step", "search#2", value='"more notes"', seconds=1.0, attempt=1)
    await writes.commit(Sweep())
    await writes.commit(RegisterWorker("second", "host-b", 42, 1e6, ("default",), ("report",), 4))
    writes.store.acquire_liveness("second")
    (row,) = (await writes.commit(Claim("second", "c2", (), ("default",), ("report",))))[0]
    seq = writes.store.last_seq(row.pk)
    await writes.entry(row, seq + 1, "step", "write#1", value='"the report"', seconds=2.0)
    return row


def test_timeline_shows_who_died_who_took_over_and_what_was_kept(visited):
    async def scenario(site):
        await taken_over(Writes(site.app), by="sam")
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1")
        assert "Worker died" in page.text
        assert "worker second took over" in page.text
        assert "executes it now" in page.text
        assert "2.5 s of work saved" in page.text
        lines = [line.strip() for line in page.text.splitlines()]
        order = [lines.index(one) for one in ("search#1", "search#2", "Worker died", "write#1")]
        assert order == sorted(order)
        assert "no ink" in page.text
        assert "line 7 in write" in page.text
        assert "by sam" in page.text
        found = (await olga.get("/runs/r1")).text
        assert found.count('<rect class="bad"') >= 2, "a failed attempt, and a lost execution"
        assert '<line class="cut"' in found

    visited(scenario, worker=False)


def test_bars_of_parallel_steps_begin_at_the_same_place(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        await writes.entry(row, 2, "step", "a#1", value="1", seconds=2.0)
        await writes.entry(row, 4, "step", "b#1", value="1", seconds=4.0)
        page = await site.page(await site.as_("olga"), "/runs/r1")
        bars = [one for one in page.all("rect") if one["class"] == "ok"]
        assert bars[0]["x"] == bars[1]["x"]
        shorter, longer = (float(one["width"].removesuffix("%")) for one in bars)
        assert abs(2 * shorter - longer) < 1

    visited(scenario, worker=False)


def test_step_that_executes_has_a_bar_from_its_beginning_until_now(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        began = writes.store.now() - 40
        failed = Record(row.pk, 1, row.fence, "attempt", "slow#1", began - 1, error=ERROR)
        await writes.commit(failed._replace(attempt=1, seconds=0.5))
        steps = [("slow#1", "slow", "step", 2, began), ("pay#1", "pay", "effect", 1, began + 30)]
        fields = {str(row.pk): json.dumps([row.fence, steps])}
        await writes.commit(UpdateSession("living", "t", fields, 60.0, space=EXECUTING))
        await writes.commit(Progress(row.pk, row.fence, "slow#1", 2, '"half"'))
        page = await site.page(await site.as_("olga"), "/runs/r1")
        bars = [float(one["width"][:-1]) for one in page.all("rect") if one["class"] == "running"]
        _, slow, pay = bars
        assert slow > 3 * pay > 0
        rows = [one for one in page.all("details") if one.get("id", "").startswith("e")]
        assert len(rows) == 2, "the attempts and the progress of a step are in one row"
        assert "the next attempt of" not in page.text
        assert "executing, with saved progress" in page.text
        assert "half" in page.text

    visited(scenario, worker=False)


def test_hostile_values_stay_text(visited):
    async def scenario(site):
        writes = Writes(site.app)
        error = json.dumps({"type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE})
        text = json.dumps({HOSTILE: HOSTILE})
        row = await writes.held("<b>r</b>'\"&?#", by="<i>sam</i>")
        await writes.entry(
            row, 1, "step", "<u>s</u>#1", args=text, value=json.dumps(HOSTILE), seconds=1.0
        )
        await writes.entry(row, 2, "attempt", HOSTILE[:60], error=error, attempt=1)
        await writes.commit(Send(row.id, "<q>name</q>", "m1", text, by="<i>sue</i>"))
        await writes.commit(SetWaiting(row.pk, row.fence, ("<q>name</q>",)))
        await writes.commit(Progress(row.pk, row.fence, "draft#1", 1, text))
        olga = await site.as_("olga")
        path = "/runs/%3Cb%3Er%3C%2Fb%3E%27%22%26%3F%23"
        answer = await olga.get(path)
        page = Html(answer)
        for tag in ("b", "u", "i", "q", "img"):
            assert page.all(tag) == [], tag
        assert "\u202e" not in answer.text
        assert HOSTILE[:20] in page.text
        assert "in progress" in page.text
        for href in page.links():
            assert href.startswith(("/", "#")), href
            assert not href.startswith("//")
        await writes.commit(Settle(row.pk, row.fence, "failed", error=error, failed_at=2))
        assert Html(await olga.get(path)).all("img") == []
        assert Html(await olga.get(f"{path}/entries/1")).all("img") == []

    visited(scenario, worker=False)


def test_huge_values_are_cut_and_can_be_read_whole_as_text(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        huge = "<script>" + 5_000_000 * "x"
        await writes.entry(row, 1, "step", "s#1", args='["a"]', value=json.dumps(huge), seconds=1.0)
        for seq in range(2, 50):
            value = json.dumps(10_000 * "<&")
            await writes.entry(row, seq, "step", f"s#{seq}", args=value, value=value, seconds=1.0)
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1")
        assert "/runs/r1/values/1/value" in page.links()
        assert "Show all 5,000,008 characters" in page.text
        assert "/runs/r1/values/1/value" in (await site.page(olga, "/runs/r1/entries/1")).links()
        whole = await olga.get("/runs/r1/values/1/value")
        assert whole.text == huge
        assert whole.headers["content-type"].startswith("text/plain")
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in whole.headers["content-security-policy"]
        for part in ("1/fence", "77/value", "x/value", "1/id"):
            assert (await olga.get(f"/runs/r1/values/{part}")).status_code == 404

    visited(scenario, worker=False)


def test_long_runs_are_paged_and_journals_beyond_a_timeline_are_listed(visited, monkeypatch):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        for seq in range(1, 121):
            await writes.entry(row, seq, "step", f"s#{seq}", value="1", seconds=1.0)
        olga = await site.as_("olga")
        keys, path = [], "/runs/r1"
        while path is not None:
            page = await site.page(olga, path)
            keys += [line for line in page.text.split() if line.startswith("s#")]
            path = next((one["href"] for one in page.all("a") if one.get("rel") == "next"), None)
        assert keys == [f"s#{seq}" for seq in range(1, 121)]
        monkeypatch.setattr(journals, "TIMELINE_MAX", 100)
        page = await site.page(olga, "/runs/r1")
        assert "too large for a timeline" in page.text
        assert "/runs/r1/entries/50" in page.links()

    visited(scenario, worker=False)


def test_roles_see_what_the_api_shows_them(visited):
    async def scenario(site):
        await taken_over(Writes(site.app), by="sam")
        vera, sue, sam = [await site.as_(name) for name in ("vera", "sue", "sam")]
        page = await site.page(vera, "/runs/r1")
        assert "Hidden from your role." in page.text
        for secret in ("notes", "no ink", "the report", "line 7"):
            assert secret not in page.answer.text
        assert not any(href.endswith("/cancel") for href in page.links())
        assert (await vera.get("/runs/r1/values/2/value")).json() == {"masked": True}
        for path in ("", "/entries/1", "/values/1/value", "/cancel", "/streams/x"):
            assert (await sue.get(f"/runs/r1{path}")).status_code == 404, path
        assert "/runs/r1/cancel" in (await site.page(sam, "/runs/r1")).links()
        assert "/runs/r1/retry" not in (await site.page(sam, "/runs/r1")).links()

    visited(scenario, worker=False, masked_roles="viewer")


def test_stream_is_shown_without_a_script(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        from ui_tools import telling

        run = await site.app.start(telling(f"once {HOSTILE}"), id="r1")
        await run.result()
        page = await site.page(olga, "/runs/r1")
        assert [one["data-stream"] for one in page.all("pre") if "data-stream" in one] == [
            "/live/streams/r1/answer"
        ]
        page = await site.page(olga, "/runs/r1/streams/answer")
        assert "once <script>" in page.text
        assert page.all("img") == []
        async with asyncio.timeout(60):
            answer = await olga.get("/live/streams/r1/answer")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "event: end" in answer.text

    visited(scenario)


def test_links_have_the_path_of_the_mount(visited):
    async def scenario(site):
        from ui_tools import doubling

        await (await site.app.start(doubling(2), id="a/b")).result()
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/a%2Fb")
        inside = [href for href in page.links() if not href.startswith("#")]
        assert inside
        assert all(href.startswith("/tools/ui/") for href in inside), inside
        assert page.all("script")[0]["src"].startswith("/tools/ui/static/")
        (live,) = [one["data-live"] for one in page.all("div") if "data-live" in one]
        assert live == "/tools/ui/live/runs/a%2Fb"
        assert (await olga.get(page.all("script")[0]["src"])).status_code == 200

    visited(scenario, root="/tools/ui")
