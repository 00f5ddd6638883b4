"""Pages offer only what can be done, and say what it is about."""

import pytest
from ui_tools import Html, runs_in, waiting

from outlast.store.commands import RegisterWorker, Submit
from support.store_writes import Writes


@pytest.mark.parametrize(
    ("query", "on_selected", "on_all"),
    [
        ("prefix=r", ["cancel", "retry", "resume"], ["cancel", "retry", "resume"]),
        ("status=failed", ["retry"], ["retry"]),
        ("status=parked", ["cancel", "retry", "resume"], ["cancel", "retry", "resume"]),
        ("status=parked&status=failed", ["cancel", "retry", "resume"], ["retry"]),
        ("status=done", [], []),
    ],
)
def test_runs_offer_only_actions_that_apply_to_the_chosen_statuses(
    visited, query, on_selected, on_all
):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1")
        page = await site.page(olga, f"/runs?{query}")
        buttons = [one["value"] for one in page.all("button") if one.get("name") == "action"]
        assert buttons == on_selected
        links = [href for href in page.links() if "action=" in href]
        assert [href.partition("action=")[2].partition("&")[0] for href in links] == on_all
        for href in links:
            assert (await olga.get(href)).status_code == 200, href

    visited(scenario, worker=False)


def test_number_of_runs_is_followed_by_the_right_word(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1")
        assert "1 run, newest first" in (await site.page(olga, "/runs")).text
        await site.app.submit(waiting("?"), id="r2")
        assert "2 runs, newest first" in (await site.page(olga, "/runs")).text

    visited(scenario, worker=False)


def test_unknown_run_leads_to_the_list_of_runs(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        answer = await olga.get("/runs/gone")
        assert answer.status_code == 404
        page = Html(answer)
        assert "No run has the id 'gone'." in page.text
        assert "Check the id in the Runs list." in page.text
        assert "/v1/" not in page.text
        assert "/runs" in page.links()
        assert "Use a link in this UI." in Html(await olga.get("/nowhere")).text

    visited(scenario, worker=False)


def test_only_processes_that_take_work_are_offered_a_drain(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        writes = Writes(site.app)
        workers = {"pages": (), "consumer": (), "worker": ("default",)}
        for number, (name, queues) in enumerate(workers.items()):
            await writes.commit(RegisterWorker(name, "host", 41 + number, 1e6, queues, (), 4))
            writes.store.acquire_liveness(name)
        held = Submit("r1", "report", "[]", "t1", "00" * 16, worker="consumer")
        await writes.commit(held)
        page = await site.page(olga, "/fleet")
        assert [href for href in page.links() if href.endswith("/drain")] == [
            "/fleet/workers/consumer/drain",
            "/fleet/workers/worker/drain",
        ]
        page = await site.page(olga, "/fleet/workers/consumer/drain")
        assert "releases the 1 run that it holds" in page.text
        assert "only if it consumes items" in page.text
        page = await site.page(olga, "/fleet/workers/worker/drain")
        assert "takes nothing new, and exits" in page.text

    visited(scenario, worker=False)


def test_resumed_queue_with_a_concurrency_of_0_is_still_called_paused(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1", queue="mail")
        await site.app.queue("mail").limit(concurrency=0)
        await site.app.queue("mail").pause()
        page = await site.page(olga, "/fleet/queues/mail/resume")
        assert "The concurrency limit of 0 still stops the queue." in page.text
        assert "/fleet/queues/mail/limits" in page.links()
        answer = await olga.act("/fleet/queues/mail/resume")
        assert "paused by concurrency 0" in Html(answer).text
        assert runs_in(await site.page(olga, "/runs?queue=mail")) == ["r1"]

    visited(scenario, worker=False)
