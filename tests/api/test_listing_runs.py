"""Submitting, finding and listing runs."""

import asyncio
from datetime import UTC, timedelta

import pytest

from outlast import OutlastError, RunFailed, UnknownRun, receive, step, workflow


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


@workflow
async def report(topic: str) -> set[str]:
    return {await work(topic)}


@workflow
async def waits() -> str:
    return await receive("word", str)


class Odd(Exception):
    def __init__(self) -> None:
        super().__init__("odd")
        self.thing = object()


@workflow
async def fails() -> None:
    raise Odd


def test_submitted_run_stays_queued_until_started(world):
    async def main(app) -> None:
        run = await app.submit(report("tides"), id="run", queue="slow", priority=3, delay=60)
        info = await run.info()
        assert (info.status, info.queue, info.priority, info.started) == ("queued", "slow", 3, None)
        assert (info.due - info.created).total_seconds() == pytest.approx(60)
        await asyncio.sleep(5)
        assert (await run.info()).status == "queued"

    world.do(main)
    assert world.executed == {}
    world.restart()
    assert world.run(report("tides")) == {"tides"}


def test_submitting_twice_is_harmless(world):
    async def main(app) -> None:
        await asyncio.gather(*[app.submit(report("tides"), id="run") for _ in range(10)])
        assert len(await app.runs()) == 1

    world.do(main)


def test_submit_many_queues_every_run(world):
    async def main(app) -> None:
        runs = await app.submit_many([report(str(n)) for n in range(100)], queue="bulk")
        assert len({run.id for run in runs}) == 100
        assert len(await app.runs(queue="bulk", limit=1000)) == 100

    world.do(main)


def test_a_run_is_found_by_its_id_with_its_type(world):
    world.run(report("tides"))

    async def main(app) -> None:
        assert await app.get(report, "run").result() == {"tides"}
        assert await app.result("run") == ["tides"], "untyped, as plain JSON"
        info = await app.get(report, "run").info()
        assert (info.id, info.workflow, info.status, info.worker) == ("run", "report", "done", None)
        assert info.created.tzinfo is UTC
        assert info.ended >= info.started >= info.created

    world.do(main)


def test_a_run_that_is_not_there_is_an_unknown_run(world):
    async def main(app) -> None:
        for ask in (app.result, app.journal, app.cancel, app.retry, app.resume):
            with pytest.raises(UnknownRun, match="nobody"):
                await ask("nobody")
        with pytest.raises(UnknownRun):
            await app.get(report, "nobody").info()

    world.do(main)


def test_waiting_for_an_unknown_run_raises_instead_of_hanging(world):
    async def main(app) -> None:
        with pytest.raises((UnknownRun, LookupError)):
            await app.get(report, "nobody").result(timeout=100)

    world.do(main)


def test_result_timeout_does_not_affect_the_run(world):
    async def main(app) -> str:
        run = await app.start(waits(), id="run")
        with pytest.raises(TimeoutError):
            await run.result(timeout=5)
        with pytest.raises(TimeoutError):
            await app.result("run", timeout=5)
        await app.send("run", "word", "x")
        return await run.result(timeout=100)

    assert world.do(main) == "x"


def test_cancelling_a_waiter_does_not_cancel_the_run(world):
    async def main(app) -> str:
        run = await app.start(waits(), id="run")
        waiter = asyncio.create_task(run.result())
        await asyncio.sleep(1)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await app.send("run", "word", "x")
        return await run.result(timeout=100)

    assert world.do(main) == "x"


def test_runs_are_listed_newest_first_and_filtered(world):
    async def main(app) -> None:
        await (await app.start(report("a"), id="done")).result()
        with pytest.raises(RunFailed):
            await (await app.start(fails(), id="failed")).result()
        await asyncio.sleep(100)
        await app.start(waits(), id="waiting")
        await app.submit(report("b"), id="queued", queue="slow", key="ann")
        await asyncio.sleep(10)

        async def ids(**query):
            return [info.id for info in await app.runs(**query)]

        assert await ids() == ["queued", "waiting", "failed", "done"]
        assert await ids(limit=2) == ["queued", "waiting"]
        assert await ids(status="done") == ["done"]
        assert await ids(status=["failed", "queued"]) == ["queued", "failed"]
        assert await ids(workflow="report") == ["queued", "done"]
        assert await ids(queue="slow") == ["queued"]
        assert await ids(prefix="d") == ["done"]
        assert await ids(key="ann") == ["queued"]
        assert (await app.bulk("cancel", key="ann", dry_run=True)).examples == ("queued",)
        assert await ids(waiting_for="word") == ["waiting"]
        assert await ids(older_than=50) == ["failed", "done"]
        assert await ids(newer_than=timedelta(seconds=50)) == ["queued", "waiting"]
        assert await ids(status="no such status") == []
        failed = (await app.runs(status="failed"))[0]
        assert "Odd" in failed.error

    world.do(main)


def test_the_last_id_of_a_page_begins_the_next_one(world):
    async def main(app) -> None:
        for n in range(7):
            await app.submit(report(str(n)), id=str(n))
        pages, before = [], None
        while page := await app.runs(limit=3, before=before):
            pages.append([info.id for info in page])
            before = page[-1].id
        assert pages == [["6", "5", "4"], ["3", "2", "1"], ["0"]]
        with pytest.raises(UnknownRun):
            await app.runs(before="nobody")

    world.do(main)


def test_journal_lists_all_entries_in_order(world):
    @workflow
    async def longer() -> None:
        for n in range(50):
            await work(str(n))

    world.run(longer())
    entries = world.do(lambda app: app.journal("run"))
    assert [entry.seq for entry in entries] == list(range(1, 51))
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert all(entry.seconds is not None and entry.attempt == 1 for entry in entries)


def test_a_journal_longer_than_a_page_is_read_whole(world, monkeypatch):
    page = world.store.journal
    monkeypatch.setattr(world.store, "journal", lambda run, after=0, limit=7: page(run, after, 7))

    @workflow
    async def longer() -> int:
        return len([await work(str(n)) for n in range(25)])

    world.run(longer())
    assert len(world.do(lambda app: app.journal("run"))) == 25


def test_prune_deletes_what_ended_long_ago(world):
    async def main(app) -> None:
        for n in range(5):
            await (await app.start(report(str(n)), id=str(n))).result()
        await asyncio.sleep(1000)
        await (await app.start(report("new"), id="new")).result()
        await app.submit(report("q"), id="queued")
        assert await app.prune(500, batch=2) == 5
        assert {info.id for info in await app.runs()} == {"new", "queued"}
        assert await app.prune(500) == 0

    world.do(main)


def test_an_app_that_is_not_open_says_so(world):
    async def main() -> None:
        with pytest.raises(OutlastError, match="not open"):
            await world.app.start(report("x"))
        async with world.app:
            with pytest.raises(OutlastError, match="already open"):
                await world.app.__aenter__()

    world.clock.run(main())


def test_unknown_filter_is_refused_before_anything_is_listed_or_done(world):
    async def main(app) -> None:
        await app.submit(report("tides"), id="run")
        with pytest.raises(TypeError, match="'state' is not a filter of runs"):
            await app.runs(state="queued")
        with pytest.raises(TypeError, match="'state' is not a filter of runs"):
            await app.bulk("cancel", state="queued")
        assert [run.status for run in await app.runs()] == ["queued"]

    world.do(main)
