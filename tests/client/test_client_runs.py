"""A client does what an Outlast does, and returns the same."""

import asyncio

import pytest
from client_tools import (
    Report,
    Unlucky,
    asking,
    failing,
    napping,
    paying,
    reporting,
    run_remote,
    speaking,
)

from outlast import (
    BadName,
    Conflict,
    OutlastError,
    RunCancelled,
    RunParked,
    UnknownEffect,
    UnknownRun,
    Unrecordable,
    WrongStatus,
)
from outlast.client import ApiError, Client, call


def test_result_has_the_type_that_the_workflow_returns():
    async def scenario(remote, client):
        run = await client.submit(reporting("tides", "and", "wind", loud=True), id="r-1")
        assert await run.result() == Report("TIDES", 14)
        assert await client.get(reporting, "r-1").result() == Report("TIDES", 14)
        assert await client.result("r-1") == {"topic": "TIDES", "words": 14}

    run_remote(scenario)


def test_workflow_without_its_code_is_called_by_name():
    async def scenario(remote, client):
        run = await client.submit(call("reporting", "tides", loud=True))
        assert await run.result() == {"topic": "TIDES", "words": 5}
        assert await client.get("reporting", run.id).result() == {"topic": "TIDES", "words": 5}
        with pytest.raises(ApiError, match="does not know the workflow 'unknown'") as wrong:
            await client.submit(call("unknown"))
        assert wrong.value.status == 422

    run_remote(scenario)


def test_several_runs_are_submitted_in_one_commit():
    async def scenario(remote, client):
        runs = await client.submit_many(
            [reporting("a"), reporting("bc")], ids=["r-1", "r-2"], priority=3
        )
        assert [(await run.result()).words for run in runs] == [1, 2]
        assert {one.priority for one in await client.runs()} == {3}
        assert await client.submit_many([]) == []

    run_remote(scenario)


def test_failure_is_raised_as_the_exception_of_the_workflow():
    async def scenario(remote, client):
        with pytest.raises(Unlucky) as raised:
            await (await client.submit(failing(13), id="r-1")).result()
        assert raised.value.number == 13
        with pytest.raises(Unlucky) as here:
            await remote.app.get(failing, "r-1").result()
        assert raised.value.__notes__ == here.value.__notes__

    run_remote(scenario)


def test_run_without_a_result_says_how_it_ended():
    async def scenario(remote, client):
        parked = await client.submit(paying(5), id="parked")
        with pytest.raises(RunParked):
            await parked.result()
        cancelled = await client.submit(napping(1000.0), id="cancelled")
        assert await client.cancel("cancelled", "not needed") in (
            "queued",
            "running",
            "waiting",
            "cancelled",
        )
        with pytest.raises(RunCancelled, match=r"not needed.*by olga"):
            await cancelled.result()
        waiting = await client.submit(napping(1000.0), id="waiting")
        with pytest.raises(TimeoutError):
            await waiting.result(timeout=0.05)
        with pytest.raises(UnknownRun, match="no run has the id 'unknown'"):
            await client.result("unknown")

    run_remote(scenario)


def test_run_is_asked_answered_and_resumed():
    async def scenario(remote, client):
        run = await client.submit(asking("why?"), id="r-1")
        await client.send("r-1", "answer", "because", message_id="m-1")
        assert await run.result() == "why? because"
        with pytest.raises(WrongStatus, match="run 'r-1' is done"):
            await client.retry("r-1")
        parked = await client.submit(paying(5), id="r-2")
        with pytest.raises(RunParked):
            await parked.result()
        with pytest.raises(UnknownEffect) as wrong:
            await client.decide("r-2", "unknown", did_not=True)
        assert wrong.value.there == ["charge#1"]
        await client.decide("r-2", "charge", happened="paid")
        assert await parked.result() == "paid"

    run_remote(scenario)


def test_lists_are_those_of_the_store():
    async def scenario(remote, client):
        app = remote.app
        for number in range(3):
            await (await client.submit(reporting("x" * number), id=f"r/{number}")).result()
        with pytest.raises(RunParked):
            await (await client.submit(paying(5), id="p.1")).result()
        with pytest.raises(Unlucky):
            await (await client.submit(failing(1), id="..")).result()
        await client.queue("emails").put_many([{"to": "ann"}, None], ids=["1", "2"])
        assert await client.runs() == await app.runs()
        assert await client.runs(limit=2) == await app.runs(limit=2)
        assert await client.runs(before="r/2") == await app.runs(before="r/2")
        assert await client.runs(status=["done", "failed"], prefix="r/") == await app.runs(
            status=["done", "failed"], prefix="r/"
        )
        await app.submit(reporting("x"), id="k", queue="elsewhere", key="ann")
        assert [run.id for run in await client.runs(key="ann")] == ["k"]
        assert (await client.bulk("cancel", key="ann", dry_run=True)).examples == ("k",)
        assert await client.runs(items=True) == await app.runs(items=True)
        assert await client.queues() == await app.queues()
        assert await client.effects("p.1") == await app.effects("p.1")
        assert await client.drains() == await app.drains()
        for mine, theirs in zip(await client.workers(), await app.workers(), strict=True):
            assert (mine.id, mine.queues, mine.started) == (
                theirs.id,
                theirs.queues,
                theirs.started,
            )
        for id in ("r/0", "p.1", ".."):
            assert await client.get("any", id).info() == await app.get(reporting, id).info()

    run_remote(scenario)


def test_journal_is_that_of_the_store():
    async def scenario(remote, client):
        await (await client.submit(reporting("tides"), id="r-1")).result()
        await client.submit(asking("why?"), id="r-2")
        await client.send("r-2", "answer", {"a": [1, None]})
        await client.result("r-2")
        for id in ("r-1", "r-2"):
            # Times have microseconds.
            entries = await remote.app.journal(id)
            journal = [entry._replace(at=pytest.approx(entry.at, abs=1e-5)) for entry in entries]
            assert await client.journal(id) == journal

    run_remote(scenario)


def test_queue_takes_items_and_limits():
    async def scenario(remote, client):
        queue = client.queue("emails")
        assert await queue.put({"to": "ann"}, id="1") == "1"
        assert await queue.put({"to": "ann"}, id="1") == "1"
        with pytest.raises(Conflict):
            await queue.put({"to": "bob"}, id="1")
        assert await queue.size() == 1
        await queue.limit(depth=1, concurrency=0)
        await queue.limit(concurrency=None)
        (info,) = await client.queues()
        assert (info.depth_max, info.concurrency_max) == (1, None)

    run_remote(scenario)


def test_runs_that_match_are_acted_on_together():
    async def scenario(remote, client):
        runs = await client.submit_many([failing(1)] * 3, ids=["a", "b", "c"])
        for run in runs:
            with pytest.raises(Unlucky):
                await run.result()
        counted = await client.bulk("retry", workflow="failing", dry_run=True)
        assert (counted.matched, counted.done, counted.examples) == (3, 0, ("c", "b", "a"))
        report = await client.bulk("prune", workflow="failing", limit=2)
        assert (report.matched, report.done) == (2, 2)
        assert [one.id for one in await client.runs()] == ["a"]
        assert await client.prune(0.0) == 1

    run_remote(scenario)


def test_refusal_reads_as_it_does_where_the_store_is():
    async def scenario(remote, client):
        await (await client.submit(reporting("tides"), id="r-1")).result()
        for wrong in (
            lambda one: one.submit(reporting("wind"), id="r-1"),
            lambda one: one.submit(napping(1.0), id="r-1"),
            lambda one: one.cancel("r-1"),
            lambda one: one.resume("unknown"),
            lambda one: one.submit(reporting("x"), id="x" * 501),
            lambda one: one.send("r-1", "n", "x" * 300_000),
            lambda one: one.get(reporting, "a\nb").info(),
        ):
            messages = []
            for one in (remote.app, client):
                with pytest.raises(OutlastError) as raised:
                    await wrong(one)
                messages.append((type(raised.value), str(raised.value)))
            assert messages[0] == messages[1]

    run_remote(scenario)


def test_values_that_http_cannot_carry_are_refused():
    async def scenario(remote, client):
        with pytest.raises(Unrecordable, match="NaN"):
            await client.submit(napping(float("nan")))
        with pytest.raises(Unrecordable):
            await client.send("r-1", "answer", object())
        with pytest.raises(TypeError, match="submit a call"):
            await client.submit("reporting")
        with pytest.raises(BadName):
            await client.cancel("")

    run_remote(scenario)


def test_submitter_sees_its_own_runs():
    async def scenario(remote, client):
        async with remote.client("sam") as sam:
            await client.submit(reporting("tides"), id="r-1")
            run = await sam.submit(reporting("wind"), id="r-2")
            await run.result()
            assert [one.id for one in await sam.runs()] == ["r-2"]
            assert (await run.info()).by == "sam"
            with pytest.raises(Conflict, match="belongs to a run with another workflow"):
                await sam.submit(reporting("tides"), id="r-1")
            with pytest.raises(ApiError, match="A submitter may not do this") as refused:
                await sam.workers()
            assert refused.value.status == 403

    run_remote(scenario)


def test_client_must_be_open_and_know_its_server(monkeypatch):
    with pytest.raises(OutlastError, match="OUTLAST_SERVER"):
        Client()
    with pytest.raises(OutlastError, match="not the URL"):
        Client("agents.example.com")
    with pytest.raises(OutlastError, match="Pass the token"):
        Client("http://ann:secret@agents.example.com")
    monkeypatch.setenv("OUTLAST_SERVER", "http://127.0.0.1:1")
    client = Client()
    with pytest.raises(OutlastError, match="not open"):
        asyncio.run(client.runs())


def test_watch_of_a_stream_ends_with_the_run():
    async def scenario(remote, client):
        await client.submit(speaking(["a", "b"]), id="r-1")
        async with client.watch("r-1", "answer") as watch:
            events = [event async for event in watch]
        assert [event.kind for event in events] == ["data", "data", "end"]
        assert "".join(event.value for event in events[:2]) == events[2].result == "ab"
        assert events == [event async for event in remote.app.watch("r-1", "answer")]
        again = client.watch("r-1", "answer", after=events[0].cursor)
        assert [event async for event in again] == events[1:]
        async with client.watch("r-1", "answer", after=events[2].cursor) as seen:
            assert seen.is_final
            assert await seen.next_events() == events[2:]

    # Each watch is closed before the next one opens.
    run_remote(scenario, api_streams_max=1)
