"""Cancelling, retrying, resuming and pruning all runs that match a filter."""

import pytest

from outlast import RunParked, SettingsError, effect, receive, step, workflow
from outlast.engine import bulk

FAILING: set[str] = set()


@step
async def work(name: str) -> str:
    if name in FAILING:
        raise ValueError(name)
    return name


@workflow
async def job(name: str) -> str:
    return await work(name)


@workflow
async def asks() -> str:
    return await receive("word", str)


async def submit(app, count, call=lambda n: job(f"j{n}"), prefix="j"):
    ids = [f"{prefix}{n:03}" for n in range(count)]
    await app.submit_many([call(n) for n in range(count)], ids=ids, queue="later")
    return ids


async def statuses(app, **filters):
    return {info.id: info.status for info in await app.runs(limit=1000, **filters)}


def test_dry_run_counts_and_changes_nothing(memory_world):
    async def main(app):
        ids = await submit(app, 30)
        report = await app.bulk("cancel", prefix="j", dry_run=True)
        assert (report.matched, report.done, report.skipped, report.dry_run) == (30, 0, 0, True)
        assert list(report.examples) == ids[::-1][:20]
        assert set((await statuses(app)).values()) == {"queued"}

    memory_world.do(main)


def test_every_run_that_matches_is_cancelled_with_the_reason_and_who_asked(world):
    async def main(app):
        ids = await submit(app, 250)
        await submit(app, 3, prefix="other")
        report = await app.bulk("cancel", prefix="j", why="wrong import", by="ann")
        assert (report.matched, report.done, report.skipped) == (250, 250, 0)
        infos = await app.runs(prefix="j", limit=1000)
        assert {info.id for info in infos if info.status == "cancelled"} == set(ids)
        assert {info.reason for info in infos} == {"wrong import (by ann)"}
        assert set((await statuses(app, prefix="other")).values()) == {"queued"}

    world.do(main)


def test_repeat_after_a_crash_between_batches_continues(world, monkeypatch):
    monkeypatch.setattr(bulk, "PAGE", 10)

    async def first(app):
        await submit(app, 35)
        report = await app.bulk("cancel", prefix="j", limit=20)
        assert (report.matched, report.done) == (20, 20)

    async def second(app):
        report = await app.bulk("cancel", prefix="j")
        assert (report.matched, report.done) == (15, 15)
        assert set((await statuses(app)).values()) == {"cancelled"}

    world.do(first)
    world.restart()
    world.do(second)


def test_runs_that_fail_again_are_retried_once_by_one_action_and_its_repeat(world, caplog):
    FAILING.update({"j0", "j1"})

    async def main(app):
        for name in ("j0", "j1"):
            with pytest.raises(ValueError, match=name):
                await (await app.start(job(name), id=name)).result()
        # A run that is queued again executes when it is started.
        report = await app.bulk("retry", prefix="j", token="t-1", by="ann")
        assert (report.matched, report.done) == (2, 2)
        with pytest.raises(ValueError, match="j0"):
            await (await app.start(job("j0"), id="j0")).result()
        report = await app.bulk("retry", prefix="j", token="t-1")
        assert (report.matched, report.done) == (1, 1)
        assert (await app.get(job, "j0").info()).status == "failed"
        retries = [one for one in await app.journal("j0") if one.kind == "retry"]
        assert len(retries) == 1
        assert '"by": "ann"' in retries[0].value or '"by":"ann"' in retries[0].value

    try:
        world.do(main)
    finally:
        FAILING.clear()


def test_cancelled_runs_and_dead_letters_need_their_status(memory_world):
    async def main(app):
        await submit(app, 3)
        await app.bulk("cancel", prefix="j")
        assert (await app.bulk("retry", prefix="j")).matched == 0
        assert (await app.bulk("retry", prefix="j", status="cancelled")).done == 3
        assert set((await statuses(app)).values()) == {"queued"}

    memory_world.do(main)


def test_ended_runs_that_match_are_pruned(world):
    async def main(app):
        await submit(app, 120)
        await submit(app, 2, prefix="other")
        await app.bulk("cancel", queue="later")
        report = await app.bulk("prune", prefix="j")
        assert (report.matched, report.done, report.skipped) == (120, 120, 0)
        assert set(await statuses(app)) == {"other000", "other001"}

    world.do(main)


def test_child_of_an_unfinished_run_is_skipped_with_the_reason(world):
    @workflow
    async def parent() -> str:
        await job("j1")
        return await receive("word", str)

    async def main(app):
        run = await app.start(parent(), id="p")
        while "done" not in (found := await statuses(app, parent="p")).values():
            await app._open.loop.create_task(_nothing())
        report = await app.bulk("prune", parent="p")
        assert (report.matched, report.done, report.skipped) == (1, 0, 1)
        ((id, message),) = report.problems
        assert id in found
        assert "part of a run that has not ended" in message
        await app.cancel(run.id)

    world.do(main)


async def _nothing():
    import asyncio

    await asyncio.sleep(0.1)


def test_resume_queues_parked_runs_again(memory_world):
    """An effect that fails has an unknown outcome, so its run is parked."""

    @effect(timeout=1, undo=None)
    async def act() -> str:
        raise ConnectionResetError("unknown")

    @workflow
    async def acts() -> str:
        return await act()

    async def main(app):
        for name in ("p1", "p2"):
            with pytest.raises(RunParked):
                await (await app.start(acts(), id=name)).result()
        await submit(app, 1)
        report = await app.bulk("resume", prefix="p", by="ann")
        assert (report.matched, report.done, report.skipped) == (2, 2, 0)
        assert await statuses(app) == {"p1": "queued", "p2": "queued", "j000": "queued"}

    memory_world.do(main)


@pytest.mark.parametrize(
    ("action", "filters", "message"),
    [
        ("cancel", {}, "needs a condition"),
        ("explode", {"prefix": "j"}, "must be one of cancel"),
        ("cancel", {"status": "done"}, "never applies to done"),
        ("prune", {"status": ["done", "running"]}, "never applies to running"),
        ("resume", {"status": "failed"}, "It applies to: parked"),
        ("cancel", {"prefix": "j", "limit": 0}, "limit=0"),
    ],
)
def test_wrong_filter_is_refused_before_anything_is_changed(memory_world, action, filters, message):
    async def main(app):
        await submit(app, 1)
        with pytest.raises(SettingsError, match=message):
            await app.bulk(action, **filters)
        assert set((await statuses(app)).values()) == {"queued"}

    memory_world.do(main)
