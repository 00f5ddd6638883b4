"""The client for sync programs does the same, and blocks."""

import asyncio
import inspect
from contextlib import contextmanager

import pytest
from client_tools import TOKENS, Report, Unlucky, failing, remote, reporting, speaking

import outlast.client
import outlast.client.sync
import outlast.sync
from outlast import NotInRun, OutlastError, UnknownRun
from outlast.client import call
from outlast.client.sync import Client
from outlast.sync.portal import Portal


@contextmanager
def served():
    """Serve on another thread's event loop, and yield what is served and an open client."""
    portal = Portal()
    ended = asyncio.Event()
    found = []
    ready = asyncio.Event()

    async def serve():
        async with remote() as one:
            found.append(one)
            ready.set()
            await ended.wait()

    async def start():
        asyncio.ensure_future(serve())
        await ready.wait()

    portal.call(start)
    try:
        url = found[0].url
        with Client(url, token=TOKENS["olga"][1], backoff=0.01, patience=60.0) as client:
            yield found[0], client
    finally:
        portal.close(30.0)


def test_sync_client_submits_lists_and_watches():
    with served() as (_, client):
        run = client.submit(reporting("tides"), id="r-1")
        assert run.result(timeout=60) == Report("tides", 5)
        assert run.info().by == "olga"
        assert client.get("reporting", "r-1").result() == {"topic": "tides", "words": 5}
        assert [one.id for one in client.runs()] == ["r-1"]
        (named,) = client.submit_many([call("reporting", "wind")], ids=["r-2"])
        assert named.result() == {"topic": "wind", "words": 4}
        with pytest.raises(Unlucky):
            client.submit(failing(1)).result()
        with pytest.raises(UnknownRun):
            client.result("unknown")
        assert client.queue("emails").put({"to": "ann"}, id="1") == "1"
        assert client.queue("emails").size() == 1
        client.session("s").set("name", "Ada")
        assert client.session("s").get("name") == "Ada"
        client.checkpoint("c").save(page=1)
        assert client.checkpoint("c").get("page") == 1
        client.submit(speaking(["a", "b"]), id="r-3")
        with client.watch("r-3", "answer") as watch:
            assert [event.kind for event in watch] == ["data", "data", "end"]
        with client.watch("r-3", "answer") as watch:
            next(watch)
            watch.close()
            assert list(watch) == []


def test_sync_client_repeats_what_was_not_answered():
    with served() as (remote, client):
        remote.proxy.cut_replies(b"POST /v1/runs ", 2)
        client.submit(reporting("tides"))
        assert remote.proxy.cuts == 2
        assert len(client.runs()) == 1


def test_sync_client_must_be_open_and_off_event_loops():
    client = Client("http://127.0.0.1:1", patience=0.01)
    with pytest.raises(OutlastError, match="not open"):
        client.runs()

    async def within():
        with pytest.raises(NotInRun):
            client.__enter__()

    asyncio.run(within())
    with client, pytest.raises(OutlastError, match="did not answer"):
        client.runs()


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", outlast.client.sync.__all__)
def test_sync_names_have_what_the_async_ones_have(name):
    theirs, ours = getattr(outlast.client, name), getattr(outlast.client.sync, name)
    assert public(theirs) - public(ours) - {"aclose"} == set()
    if name != "Client":
        return
    for method in public(ours):
        wanted = inspect.signature(getattr(theirs, method))
        assert inspect.signature(getattr(ours, method)).parameters == wanted.parameters
