"""Values that a page cuts can be read whole, as text."""

import json

import pytest
from ui_tools import paying

from outlast import RunParked
from outlast.store.commands import SaveProgress, Send
from support.store_writes import Writes

LONG = "<script>" + 50_000 * "x"


async def check_whole(site, browser, page, link):
    """Check that the page cuts the value, and that the address has all of it as text."""
    shown = await site.page(browser, page)
    assert link in shown.links()
    assert "Show all" in shown.text
    whole = await browser.get(link)
    assert LONG in whole.text
    assert whole.headers["content-type"].startswith("text/plain")
    assert "sandbox" in whole.headers["content-security-policy"]


def test_message_and_progress_are_shown_whole(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("a/b", by="sam")
        await writes.commit(Send(row.id, "draft", "m1", json.dumps(LONG)))
        await writes.commit(SaveProgress(row.pk, row.fence, "s/1#1", 1, json.dumps(LONG)))
        olga, sue, vera = [await site.as_(name) for name in ("olga", "sue", "vera")]
        for link in ("/runs/a%2Fb/messages/1", "/runs/a%2Fb/progress/s%2F1%231"):
            await check_whole(site, olga, "/runs/a%2Fb", link)
            assert (await sue.get(link)).status_code == 404, "it is a run of another submitter"
            assert (await vera.get(link)).json() == {"masked": True}
        for link in ("/runs/a%2Fb/messages/2", "/runs/a%2Fb/progress/s", "/runs/c/messages/1"):
            assert (await olga.get(link)).status_code == 404

    visited(scenario, worker=False, masked_roles="viewer")


def test_values_of_a_session_are_shown_whole(visited):
    async def scenario(site):
        session = site.app.session("chat/1")
        await session.set("mood", LONG)
        for _ in range(30):
            await session.append("turns", LONG[:3_000])
        await session.append("turns", LONG)
        olga, sam = await site.as_("olga"), await site.as_("sam")
        for name in ("mood", "turns"):
            link = f"/sessions/chat%2F1/values/{name}"
            await check_whole(site, olga, "/sessions/chat%2F1", link)
            assert (await sam.get(link)).status_code == 403
        whole = await olga.get("/sessions/chat%2F1/values/turns")
        assert len(json.loads(whole.text)) == 31
        assert (await olga.get("/sessions/chat%2F1/values/none")).status_code == 404

    visited(scenario, worker=False)


def test_recorded_arguments_of_an_effect_are_shown_before_a_decision(visited):
    async def scenario(site):
        run = await site.app.start(paying(10**2_500), id="r1")
        with pytest.raises(RunParked):
            await run.result()
        olga = await site.as_("olga")
        page = await site.page(olga, "/runs/r1/decide")
        (link,) = [href for href in page.links() if "/values/" in href]
        whole = await olga.get(link)
        assert whole.headers["content-type"].startswith("text/plain")
        assert whole.text.startswith('{"cents":1000')

    visited(scenario)
