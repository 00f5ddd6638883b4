"""The drain report: it adds up, is stored, logged once, and completed by the worker that sweeps."""

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest
from kubelet import LONG

from outlast import StoreUnavailable, receive, sleep, step, workflow
from outlast.logs import JSONFormatter
from outlast.shutdown.report import CleanupResult, DrainReport, Remaining
from outlast.store.commands import Claim, Drain, RegisterWorker, Sweep
from outlast.testing import App


@step
async def act(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "end"


@step
async def stubborn() -> None:
    for _ in range(40):
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            pass


@workflow(name="ends")
async def ends() -> str:
    return await act(5)


@workflow(name="goes on")
async def goes_on() -> str:
    await act(5)
    return await act(5)


@workflow(name="sleeps")
async def sleeps() -> None:
    await sleep(10_000)


@workflow(name="receives")
async def receives() -> str:
    return await receive("go", str)


@workflow(name="takes long")
async def takes_long() -> str:
    return await act(10_000)


@workflow(name="hangs")
async def hangs() -> None:
    await stubborn()


@workflow(name="parent")
async def parent() -> str:
    return await takes_long()


@workflow(name="fails")
async def fails() -> None:
    await act(3)
    raise ValueError("no")


FLOWS = [ends, goes_on, sleeps, receives, takes_long, hangs, parent, fails]


def counted(report) -> int:
    return (
        report.completed + report.released + report.waiting + report.checkpointed + len(report.left)
    )


@pytest.mark.parametrize("seed", range(8 if LONG else 3))
def test_everything_held_is_in_the_report_once(seed):
    async def main(app):
        for number, flow in enumerate(FLOWS * 3):
            await app.start(flow(), id=f"{flow.name}-{number}")
        queue = app.queue("q")
        await queue.put_many([3, 3, 10_000], ids=["a", "b", "c"])

        async def handle(item):
            await asyncio.sleep(item.payload)

        asyncio.create_task(queue.consume(handle))
        await app.queue("hand").put_many([1, 2], ids=["acked", "kept"])
        acked, kept = await app.queue("hand").claim(), await app.queue("hand").claim()
        await asyncio.sleep(1)
        (row,) = await app.workers()
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        await acked.ack()
        report = await drain
        assert kept.id == "kept"
        (drain,) = app.store.drains(1)
        return report, row.held, drain.held

    report, held, recorded = App(seed=seed, ramp=0).do(main)
    assert held == recorded == 3 * (len(FLOWS) + 1) + 3 + 2
    assert counted(report) == held
    assert (report.completed, report.released, report.waiting) == (3 + 3 + 2 + 1, 3, 6 + 3)
    assert (report.checkpointed, len(report.left)) == (3 + 3 + 1, 3 + 1)


def test_the_report_is_stored_and_read_back_equal(world):
    async def main(app):
        app.on_cleanup(lambda: None)
        for flow in FLOWS:
            await app.start(flow(), id=flow.name)
        await asyncio.sleep(1)
        report = await app.drain("deploy of v2")
        (stored,) = await app.drains()
        assert stored == report
        return stored

    stored = world.do(main)
    assert stored.reason == "deploy of v2"
    assert stored.seconds == pytest.approx(27.7, abs=0.2)
    assert set(stored.layers) == {"coordinate", "boundary", "checkpoint"}, "the process goes on"
    assert list(stored.layers.values()) == sorted(stored.layers.values())


def test_the_report_has_the_clean_up_after_the_app_is_closed(world):
    async def main(app):
        def clean():
            raise OSError("disk")

        app.on_cleanup(clean)
        report = await app.drain("test")
        await asyncio.sleep(3600)
        return report.seconds

    seconds = world.do(main)

    async def look(app):
        return await app.drains()

    world.restart()
    (stored,) = world.do(look)
    assert [one.name.rpartition(".")[2] for one in stored.cleanup] == ["clean", "lifespan"]
    assert "disk" in stored.cleanup[0].error
    assert stored.seconds == seconds < 1, "an hour of the program's own is no part of the drain"


def test_the_report_is_logged_once_as_a_sentence(world, caplog):
    caplog.set_level(logging.INFO, logger="outlast.drain")

    async def main(app):
        await app.start(ends(), id="run")
        await asyncio.sleep(1)
        await asyncio.gather(app.drain("test"), app.drain("again"))
        await app.drain("and again")

    world.do(main)
    lines = [one for one in caplog.records if getattr(one, "event", "") == "drained"]
    assert len(lines) == 1
    record = lines[0]
    worker = record.worker
    message = record.getMessage()
    assert message.startswith(f"Worker {worker} drained in ")
    assert " s (test): 1 completed. `outlast drains " in message
    assert message.endswith(f" `outlast drains {worker}` shows the report.")
    assert (record.report["completed"], record.report["reason"]) == (1, "test")
    assert json.loads(JSONFormatter().format(record))["report"] == record.report


def test_the_report_is_logged_when_the_app_is_closed(world, caplog):
    caplog.set_level(logging.INFO, logger="outlast.drain")

    async def main(app):
        app._shutdown.begin("test")

    world.do(main)
    assert len([one for one in caplog.records if getattr(one, "event", "") == "drained"]) == 1


def test_several_drains_are_listed_newest_first(world):
    async def main(app):
        await app.drain(f"drain {len(await app.drains())}")

    for _ in range(3):
        world.do(main)
        world.restart()

    async def look(app):
        return [one.reason for one in await app.drains()], [
            one.reason for one in await app.drains(limit=1)
        ]

    assert world.do(look) == (["drain 2", "drain 1", "drain 0"], ["drain 2"])


def test_the_time_until_another_worker_claims_a_released_run_is_recorded(file_world):
    async def main(app):
        for number in range(4):
            await app.start(goes_on(), id=f"run-{number}")
        await app.start(sleeps(), id="asleep")
        await asyncio.sleep(1)
        report = await app.drain("test")
        assert report.recoveries == {}
        await asyncio.sleep(2)
        settings = {"worker": True, "workflows": FLOWS, "ramp": 0, "new_share": 0}
        async with file_world.another(**settings) as other:
            for number in range(4):
                await other.result(f"run-{number}")
            (stored,) = await app.drains()
            return stored

    stored = file_world.do(main)
    assert stored.recoveries["count"] == 4, "one that waited was not interrupted"
    assert 2 <= stored.recoveries["p50"] <= stored.recoveries["p95"] <= stored.recoveries["max"] < 5


def test_a_drain_cut_short_by_a_death_is_reported_by_the_sweep():
    """The process is killed in the middle of its drain; another sweeps."""

    async def main(app):
        store = app.store
        await app.submit(goes_on(), id="run")
        store.acquire_liveness("dying")
        store.commit([RegisterWorker("dying", "host", 7, 60)])
        (row,) = store.commit([Claim("dying", "t", ids=("run",))])[0]
        store.commit([Drain("dying", "SIGTERM", (row.fence,))])
        (open_one,) = await app.drains()
        assert (open_one.seconds, open_one.cut_short, open_one.reason) == (None, False, "SIGTERM")
        await asyncio.sleep(5)
        store.release_liveness("dying")
        await asyncio.sleep(600)
        store.commit([Sweep()])
        (closed,) = await app.drains()
        return closed, store.run("run")

    closed, row = App().do(main)
    assert closed.cut_short
    assert (closed.worker, closed.pid, closed.host) == ("dying", 7, "host")
    assert [(one.what, one.id) for one in closed.left] == [("run", "run")]
    assert closed.seconds == 60, "until its last sign of life, here its lease, not until the sweep"
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("queued", None, 0, 1)


def test_two_apps_on_one_store_have_reports_of_their_own(file_world):
    async def main(app):
        async with file_world.another() as other:
            await app.start(ends(), id="mine")
            await other.start(goes_on(), id="others")
            await asyncio.sleep(1)
            both = await asyncio.gather(app.drain("one"), other.drain("two"))
            stored = sorted(await app.drains(), key=lambda one: one.reason)
            assert stored == both
            return stored

    assert [(one.completed, one.released) for one in file_world.do(main)] == [(1, 0), (0, 1)]


def test_the_metrics_have_the_numbers_of_the_report(world):
    async def main(app):
        for flow in FLOWS:
            await app.start(flow(), id=flow.name)
        await asyncio.sleep(1)
        report = await app.drain("test")
        samples = {
            (one.name, one.labels.get("end")): one.value for one in app.status_provider.samples()
        }
        return report, samples

    report, samples = world.do(main)
    for end in ("completed", "released", "waiting", "checkpointed", "not_started"):
        assert samples["outlast_drain_runs_total", end] == getattr(report, end), end
    assert samples["outlast_drain_runs_total", "left"] == len(report.left) == 1
    assert samples["outlast_drain_seconds", None] == report.seconds
    assert (samples["outlast_draining", None], samples["outlast_ready", None]) == (1.0, 0.0)


def test_the_drain_view_shows_what_is_under_way(world):
    async def main(app):
        before = app.status_provider.drain_view()
        await app.start(takes_long(), id="run")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        during = app.status_provider.drain_view()
        await drain
        return before, during, app.status_provider.drain_view()

    before, during, after = world.do(main)
    assert (before["draining"], before["reason"], before["seconds_left"], before["layer"]) == (
        False,
        None,
        None,
        None,
    )
    assert (during["draining"], during["reason"], during["layer"]) == (True, "test", "boundary")
    assert during["seconds_left"] == pytest.approx(29, abs=0.1)
    ((seen),) = during["under_way"]
    assert (seen["what"], seen["id"], seen["step"], seen["why"]) == (
        "run",
        "run",
        "act#1",
        "a step is in flight",
    )
    assert seen["seconds"] == pytest.approx(2, abs=0.1)
    assert (after["layer"], after["under_way"]) == ("exit", [])


@pytest.mark.parametrize(
    ("error", "said"), [(StoreUnavailable("disk full"), "disk full"), (TimeoutError(), "no answer")]
)
def test_a_store_that_refuses_the_report_does_not_hold_up_the_drain(world, caplog, error, said):
    from outlast.store.commands import StoreDrainReport

    async def main(app):
        ask = app._open.writer.execute

        async def refusing(command):
            if isinstance(command, StoreDrainReport):
                raise error
            return await ask(command)

        app._open.writer.execute = refusing
        return await app.drain("test")

    assert world.do(main).reason == "test"
    assert f"could not be stored: {said}" in caplog.text


def test_the_report_counts_units(world):
    async def main(app):
        async with app.unit("a"):
            pass
        with pytest.raises(ValueError):
            async with app.unit("b"):
                raise ValueError
        return await app.drain("test")

    assert world.do(main).units == {"committed": 1, "rolled_back": 1}


def test_unknown_fields_of_a_stored_report_are_ignored():
    from outlast.store.rows import DrainRow

    text = json.dumps(
        {
            "completed": 3,
            "something new": [1],
            "left": [{"what": "run", "id": "x"}],
            "cleanup": [{"name": "n", "seconds": 1.0}],
        }
    )
    report = DrainReport.of(DrainRow("w", "h", 1, "why", 100.0, 107.0, 3, text, (1.0, 2.0, 9.0)))
    assert (report.completed, report.left, report.cleanup) == (
        3,
        [Remaining("run", "x")],
        [CleanupResult("n", 1.0)],
    )
    assert (report.seconds, report.began) == (7.0, datetime.fromtimestamp(100, UTC))
    assert report.recoveries == {"count": 3, "p50": 2.0, "p95": 9.0, "max": 9.0}
