"""The pages around a run: home, runs, deploys, fleet, and who may see them."""

import json

import pytest
from ui_tools import PAGE_BYTES_MAX, Html, doubling, failing, paying, runs_in, waiting

from outlast import RunParked
from outlast.http.web import pages
from outlast.store.commands import Drain, RegisterWorker, Release, Settle, StoreDrainReport, Submit
from support.store_writes import Writes

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_home_names_what_needs_a_person_with_the_action_beside_it(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        assert "Nothing needs a person." in (await site.page(olga, "/")).text
        with pytest.raises(RunParked):
            await (await site.app.start(paying(7), id="p")).result()
        with pytest.raises(ValueError, match="no"):
            await (await site.app.start(failing("no"), id="f")).result()
        page = await site.page(olga, "/")
        assert {"/runs/p/decide", "/runs/p/resume"} <= set(page.links())
        assert "ended in the last hour" in page.text
        assert "1worker alive" in page.text, "beside a number in an element of its own"
        assert "of them failed" in page.text
        vera = await site.page(await site.as_("vera"), "/")
        assert "/runs/p" in vera.links()
        assert "/runs/p/decide" not in vera.links()

    visited(scenario)


def test_home_finds_those_who_wait_for_an_answer_among_many_that_wait_for_a_time(visited):
    async def scenario(site):
        writes = Writes(site.app)
        for number in range(17):
            row = await writes.held(f"ask{number:02}")
            await writes.commit(
                Release(row.pk, row.fence, "waits", waiting=True, waits=("answer",))
            )
        for number in range(110):
            row = await writes.held(f"sleep{number}")
            await writes.commit(Release(row.pk, row.fence, "waits", waiting=True))
        olga = await site.as_("olga")
        page = await site.page(olga, "/")
        asked = [href for href in page.links() if href.endswith("/message")]
        assert len(asked) == 15
        assert "15+" in page.text
        assert "/runs?awaits_message=true" in page.links()
        assert len(runs_in(await site.page(olga, "/runs?awaits_message=true"))) == 17
        page = await site.page(olga, "/bulk?action=cancel&awaits_message=true")
        assert "Cancel 17 runs" in page.text

    visited(scenario, worker=False)


def test_home_offers_a_decision_only_where_there_is_one(visited):
    async def scenario(site):
        writes = Writes(site.app)
        writes.store.acquire_liveness("living")
        row = await writes.held("r1")
        await writes.commit(Settle(row.pk, row.fence, "parked", reason="its code has changed"))
        with pytest.raises(RunParked):
            await (await site.app.start(paying(7), id="p")).result()
        page = await site.page(await site.as_("olga"), "/")
        assert "/runs/p/decide" in page.links()
        assert "/runs/r1/decide" not in page.links()
        assert "/runs/r1/resume" in page.links()

    visited(scenario)


def test_runs_are_filtered_and_paged(visited):
    async def scenario(site):
        for number in range(60):
            await site.app.submit(doubling(number), id=f"d{number}", queue="mail")
        await site.app.submit(waiting("?"), id="w/1")
        olga = await site.as_("olga")
        first = await site.page(olga, "/runs?workflow=doubling")
        assert runs_in(first)[0] == "d59"
        (older,) = [one["href"] for one in first.all("a") if one.get("rel") == "next"]
        assert "workflow=doubling" in older
        second = await site.page(olga, older)
        assert runs_in(first) + runs_in(second) == [f"d{n}" for n in range(59, -1, -1)]
        assert runs_in(await site.page(olga, "/runs?prefix=w%2F")) == ["w%2F1"]
        assert len(runs_in(await site.page(olga, "/runs?queue=mail&prefix=d1&status=queued"))) == 11
        assert runs_in(await site.page(olga, "/runs?status=done")) == []
        assert len(runs_in(await site.page(olga, "/runs?status=&items=&newer_than="))) == 50
        for wrong in ("status=done&status=nonsense", "items=x", "newer_than=y", "undoing=no"):
            answer = await olga.get(f"/runs?{wrong}")
            assert answer.status_code == 422, wrong
            assert "Use one of: " in Html(answer).text

    visited(scenario, worker=False)


def test_submitter_sees_its_own_runs_and_no_fleet(visited):
    async def scenario(site):
        await site.app.submit(waiting("?"), id="mine", by="sam")
        await site.app.submit(waiting("?"), id="other", by="sue")
        sam = await site.as_("sam")
        page = await site.page(sam, "/runs")
        assert runs_in(page) == ["mine"]
        assert "/fleet" not in page.links()
        for path in ("/", "/deploys", "/fleet", "/sessions", "/sessions/x"):
            assert (await sam.get(path)).status_code == 403, path
        assert (await sam.get("/runs/other")).status_code == 404

    visited(scenario, worker=False)


PATHS = [
    path.replace("{id}", "r1")
    .replace("{name}", "default")
    .replace("{seq}", "1")
    .replace("{action}", "cancel" if "runs" in path else "pause")
    for path in (*pages.PAGES, *pages.LIVE_PAGES, *pages.FORMS)
]


@pytest.mark.parametrize("path", [*PATHS, "/live/runs", "/runs/r1/values/0/args"])
def test_no_page_is_shown_to_strangers(visited, path):
    async def scenario(site):
        await site.app.submit(waiting("a secret"), id="r1")
        answer = await site.browser().get(path, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=")
        assert (await site.browser().submit(path)).status_code in (401, 405)

    visited(scenario, worker=False)


@pytest.mark.parametrize("path", [*pages.FORMS])
def test_viewers_get_no_form_that_changes_something(visited, path):
    path = path.replace("{id}", "r1").replace("{name}", "default")

    async def scenario(site):
        await site.app.submit(waiting("?"), id="r1")
        vera = await site.as_("vera")
        actions = {"runs": ("cancel", "retry", "resume", "message", "decide"), "fleet": ("pause",)}
        for action in actions.get(path.split("/")[1], ("",)):
            answer = await vera.get(
                path.replace("{action}", action), params={"action": "cancel", "prefix": "r"}
            )
            assert answer.status_code == 403, answer.text
            assert Html(answer).all("form") == [
                one for one in Html(answer).all("form") if one["action"] == "/logout"
            ]

    visited(scenario, worker=False)


def report(seconds, **fields):
    whole = {"seconds": seconds, "layers": {"coordinate": 0.1, "boundary": seconds / 2}}
    return json.dumps({**whole, "layers": {**whole["layers"], "exit": seconds}, **fields})


def test_drains_of_one_deploy_are_one_picture(visited):
    async def scenario(site):
        writes = Writes(site.app)
        for number in range(3):
            worker = f"w{number}"
            await writes.commit(
                RegisterWorker(worker, "host", 40 + number, 1e6, ("default",), (), 4)
            )
            await drained(writes, worker, report(2.0, completed=1, released=2))
        page = await site.page(await site.as_("olga"), "/deploys")
        assert "3 workers drained" in page.text
        assert "3 completed, 6 released" in page.text
        bars = [one["class"] for one in page.all("rect")]
        assert bars.count("layer-exit") == 3 + 1, "one for each worker, and the legend"
        cells = [one["data-label"] for one in page.all("td") if "data-label" in one]
        assert cells.count("Released") == 3, "and a row of the table"

    visited(scenario, worker=False)


async def drained(writes, worker, text):
    await writes.commit(Drain(worker, "SIGTERM"), StoreDrainReport(worker, text))


def test_limits_of_a_queue_and_of_its_keys_are_set_and_removed(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1", queue="a b&c")
        path = "/fleet/queues/a%20b%26c/limits"
        assert path in (await site.page(olga, "/fleet")).links()
        given = {"depth": "100", "concurrency": "0", "per_key_rate": "", "per_key_concurrency": ""}
        answer = await olga.act(path, **given)
        assert "The limits were set." in answer.text
        assert "paused by concurrency 0" in Html(answer).text
        links = Html(answer).links()
        assert path in links
        assert "/fleet/queues/a%20b%26c/pause" not in links, "a limit of 0 is removed, not resumed"
        assert (await olga.act(path, **{**given, "depth": "many"})).status_code == 422
        assert (await olga.act(path, **{**given, "per_key_rate": "fast"})).status_code == 422
        per_key = {"per_key_rate": "100/1m", "per_key_concurrency": "2"}
        answer = await olga.act(path, depth="", concurrency="", **per_key)
        assert "concurrency 0" not in Html(answer).text
        (row,) = [one for one in Writes(site.app).store.queues() if one.name == "a b&c"]
        assert (row.key_concurrency_max, row.key_rate) == (2, "100/1m")
        shown = {
            one["id"]: one["value"]
            for one in Html(await olga.get(path)).all("input")
            if "id" in one
        }
        assert shown == {"depth": "", "concurrency": "", **per_key}

    visited(scenario, worker=False)


def test_queue_that_the_command_line_paused_is_shown_and_resumed(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1", queue="mail")
        await site.app.queue("mail").limit(concurrency=3)
        await site.app.queue("mail").pause()
        for path in ("/", "/fleet"):
            page = await site.page(olga, path)
            assert "paused" in page.text
        assert "/fleet/queues/mail/resume" in page.links()
        answer = await olga.act("/fleet/queues/mail/resume")
        assert "The queue was resumed." in answer.text
        assert not any(one.get("class") == "status waiting" for one in Html(answer).all("span"))
        answer = await olga.act("/fleet/queues/mail/pause")
        assert "The queue was paused." in answer.text
        (row,) = Writes(site.app).store.queues()
        assert (row.paused, row.concurrency_max) == (True, 3)
        assert (await olga.get("/fleet/queues/mail/stop")).status_code == 404

    visited(scenario, worker=False)


def test_worker_is_asked_to_drain_with_a_reason_and_a_name(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        writes = Writes(site.app)
        await writes.commit(RegisterWorker("w/1", "host", 41, 1e6, ("default",), ("report",), 4))
        writes.store.acquire_liveness("w/1")
        row = await writes.held("held", "w/1")
        await site.app.submit(waiting("?"), id="free")
        page = await site.page(olga, "/fleet")
        assert "/fleet/workers/w%2F1/drain" in page.links()
        (link,) = [href for href in page.links() if "worker=" in href]
        assert runs_in(await site.page(olga, link)) == [row.id]
        answer = await olga.act("/fleet/workers/w%2F1/drain", why="new release")
        assert "The worker was asked to drain." in answer.text
        (row,) = [one for one in writes.store.workers() if one.id == "w/1"]
        assert "new release (by olga)" in row.asked
        assert (await olga.get("/fleet/workers/gone/drain")).status_code == 404

    visited(scenario, worker=False)


def test_schedules_are_paused_and_triggered(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.schedule("nightly", doubling(1), cron="0 3 * * *", tz="UTC")
        assert "0 3 * * *" in (await site.page(olga, "/fleet")).text
        await olga.act("/fleet/schedules/nightly/pause")
        assert "paused" in (await site.page(olga, "/fleet")).text
        await olga.act("/fleet/schedules/nightly/resume")
        answer = await olga.act("/fleet/schedules/nightly/trigger")
        assert "A run of the schedule was submitted." in answer.text
        assert len(await site.app.runs()) == 1

    visited(scenario, worker=False)


def test_sessions_show_their_values_by_role(visited):
    async def scenario(site):
        await site.app.session("chat/1").set("mood", HOSTILE)
        await site.app.session("chat/1").append("turns", "hello there")
        olga, vera = await site.as_("olga"), await site.as_("vera")
        assert "/sessions/chat%2F1" in (await site.page(olga, "/sessions?prefix=chat")).links()
        page = await site.page(olga, "/sessions/chat%2F1")
        assert "hello there" in page.text
        assert page.all("img") == []
        assert "hello there" not in (await site.page(vera, "/sessions/chat%2F1")).text

    visited(scenario, worker=False, masked_roles="viewer")


def test_hostile_names_stay_text_and_pages_stay_small(visited):
    async def scenario(site):
        writes = Writes(site.app)
        for number in range(60):
            name = f"{HOSTILE}{number}"
            await writes.commit(
                RegisterWorker(f"{name}w", name, 41, 1e6, (name,), (name,), 4),
                Submit(
                    ("<b>&" * 100 + f"{number:03}")[:480], name, '"<u>x</u>"', f"t{number}",
                    "00" * 16, queue=name, by="<i>ann</i>",
                ),
            )  # fmt: skip
            await drained(writes, f"{name}w", report(1.0, left=[{"what": "run", "id": HOSTILE}]))
        olga = await site.as_("olga")
        for path in ("/", "/runs", "/deploys", "/fleet"):
            page = await site.page(olga, path)
            for tag in ("img", "u", "i"):
                assert page.all(tag) == [], (path, tag)
            assert len(page.answer.content) < PAGE_BYTES_MAX

    visited(scenario, worker=False)
