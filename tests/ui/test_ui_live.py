"""Open pages follow what happens, and share one reader."""

import asyncio
import json

import pytest
from ui_tools import Browser, doubling, waiting

from outlast.http.rest import journals, runs
from outlast.http.web import live
from support.store_writes import Writes
from support.waiting import WAIT_SECONDS


class Stream:
    """A stream of events, read from the ASGI app itself: httpx's transport waits for its end."""

    def __init__(self, web, browser, path):
        path, _, query = path.partition("?")
        cookies = "; ".join(f"{one.name}={one.value}" for one in browser.cookies.jar)
        self._scope = {
            "type": "http", "method": "GET", "scheme": "http", "http_version": "1.1",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "client": ("203.0.113.9", 1), "server": ("server", 80),
            "headers": [(b"host", b"server"), (b"cookie", cookies.encode()),
                        (b"accept", b"text/event-stream")],
        }  # fmt: skip
        self.web, self.status, self.text = web, None, ""
        self._news, self._gone = asyncio.Event(), asyncio.Event()

    async def __aenter__(self):
        self._task = asyncio.ensure_future(self.web(self._scope, self._receive, self._send))
        return self

    async def __aexit__(self, *exc):
        self._gone.set()
        await asyncio.wait_for(self._task, WAIT_SECONDS)

    async def _receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.text += message.get("body", b"").decode()
        self._news.set()

    async def until(self, text):
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in self.text:
                self._news.clear()
                await self._news.wait()


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch):
    monkeypatch.setattr(live, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(live.every_tick, "__defaults__", (0.02,))
    monkeypatch.setattr(live.after_news, "__defaults__", (0.02,))


def test_open_page_of_a_run_follows_it_to_its_end(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        run = await site.app.start(waiting("ready? "), id="r1")
        async with Stream(site.web, olga, "/live/runs/r1") as stream:
            await stream.until("event: page")
            assert "<html" not in stream.text, "only the live part"
            await site.app.send("r1", "answer", "yes, go")
            await run.result()
            await stream.until("status done")
            await stream.until("yes, go")

    visited(scenario)


def test_open_list_shows_new_runs(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        async with Stream(site.web, olga, "/live/runs?prefix=new") as stream:
            await stream.until("No runs match")
            await site.app.submit(doubling(1), id="other")
            await site.app.submit(doubling(1), id="new-1")
            await stream.until("/runs/new-1")
            assert "other" not in stream.text

    visited(scenario, worker=False)


def test_browsers_with_equal_rights_share_one_reader(visited, monkeypatch):
    reads = []
    page = runs.each_document

    def counted(rows, *args):
        reads.append(1)
        return page(rows, *args)

    monkeypatch.setattr(runs, "each_document", counted)

    async def scenario(site):
        await site.app.submit(doubling(1), id="r1", by="sam")
        olga = await site.as_("olga")
        streams = [Stream(site.web, olga, "/live/runs") for _ in range(50)]
        for one in streams:
            await one.__aenter__()
        for one in streams:
            await one.until("/runs/r1")
        before = len(reads)
        assert before < 50
        await site.app.submit(doubling(2), id="r2", by="sue")
        for one in streams:
            await one.until("/runs/r2")
        assert len(reads) - before < 50
        sam = await site.as_("sam")
        async with Stream(site.web, sam, "/live/runs") as own:
            await own.until("/runs/r1")
            assert "r2" not in own.text
        for one in streams:
            await one.__aexit__()
        ended = len(reads)
        await asyncio.sleep(0)
        assert len(reads) == ended, "nobody reads any more"

    visited(scenario, worker=False)


def test_journal_is_read_only_after_news(visited, monkeypatch):
    reads = []
    document = journals.timeline_document

    def counted(*args, **options):
        reads.append(1)
        return document(*args, **options)

    monkeypatch.setattr(journals, "timeline_document", counted)

    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        olga = await site.as_("olga")
        async with Stream(site.web, olga, "/live/runs/r1") as stream:
            await stream.until("event: page")
            await writes.entry(row, 1, "step", "first#1", value='"x"', seconds=1.0)
            await stream.until("first#1")
            after = len(reads)
            async with Stream(site.web, olga, "/live/runs") as other:
                for number in range(3):
                    await site.app.submit(doubling(number), id=f"tick-{number}")
                    await other.until(f"/runs/tick-{number}")
            assert len(reads) <= after + 1, "ticks of other pages read no timeline"

    visited(scenario, worker=False)


def test_live_part_says_nothing_of_its_visitor(visited):
    async def scenario(site):
        await site.app.submit(waiting("?"), id="r1", by="sam")
        olga = await site.as_("olga")
        for path in ("/runs", "/runs/r1", "/", "/deploys", "/fleet"):
            async with Stream(site.web, olga, f"/live{path}") as stream:
                await stream.until("event: page")
                await stream.until("\n\n")
                for word in ("olga", "csrf", "<form", "<script"):
                    assert word not in stream.text, (path, word)

    visited(scenario, worker=False)


def test_streams_end_with_the_process_and_with_too_many(visited):
    async def scenario(site):
        await site.app.submit(waiting("?"), id="r1")
        olga = await site.as_("olga")
        async with Stream(site.web, olga, "/live/runs") as one:
            await one.until("event: page")
            async with Stream(site.web, olga, "/live/fleet") as other:
                await other.until("event: page")
                refused = await olga.get("/live/deploys")
                assert refused.status_code == 429
            site.app.status_provider.begin_drain("the test")
            await asyncio.wait_for(one._task, WAIT_SECONDS)

    visited(scenario, worker=False, settings={"api_streams_max": 2})


def test_runs_of_others_are_not_followed(visited):
    async def scenario(site):
        await site.app.submit(waiting("?"), id="r1", by="sue")
        sam = await site.as_("sam")
        async with Stream(site.web, sam, "/live/runs/r1") as stream:
            await stream.until("event: gone")
            assert "r1" not in stream.text
        async with Stream(site.web, Browser(site.web), "/live/runs/r1") as stream:
            await asyncio.wait_for(stream._task, WAIT_SECONDS)
            assert stream.status == 401
        assert (await sam.get("/live/streams/r1/answer")).status_code == 404

    visited(scenario, worker=False)


def test_lines_of_values_cannot_end_an_event(visited):
    async def scenario(site):
        writes = Writes(site.app)
        row = await writes.held("r1")
        text = json.dumps("a\r\n\r\nevent: gone\rdata: x\n\nb\u2028c\x85d")
        await writes.entry(row, 1, "step", "s#1", value=text, seconds=1.0)
        olga = await site.as_("olga")
        async with Stream(site.web, olga, "/live/runs/r1") as stream:
            await stream.until("b\\u2028c")
            for line in stream.text.replace("\r", "\n").split("\n"):
                assert not line.startswith("event: gone")

    visited(scenario, worker=False)


def test_viewer_that_does_not_read_is_dropped_and_the_others_go_on(visited, caplog):
    class Stuck(Stream):
        """A browser whose connection takes nothing after the first event."""

        async def _send(self, message):
            await super()._send(message)
            if "event: page" in self.text:
                await asyncio.Event().wait()

    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r0")
        async with (
            Stuck(site.web, olga, "/live/runs") as stuck,
            Stream(site.web, olga, "/live/runs") as reading,
        ):
            await stuck.until("event: page")
            await reading.until("r0")
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.wait((stuck._task,))
            await site.app.submit(waiting("?"), id="r1")
            await reading.until("r1")
            assert "r1" not in stuck.text
        assert any(one.event == "viewer_dropped" for one in caplog.records if "event" in vars(one))

    visited(scenario, worker=False, settings={"api_send_timeout": 0.2})


@pytest.mark.parametrize(("took", "rest"), [(0.0, 0.0), (0.001, 0.0), (0.5, 9.98), (60.0, 30.0)])
def test_reader_of_a_slow_store_rests_in_proportion(took, rest):
    assert live.rest_after(took) == pytest.approx(rest)
