"""What a draining process refuses, and what it no longer claims."""

import asyncio

import pytest
from drain_tools import begun, chain, one, worker

from outlast import Draining
from outlast.store.commands import Claim, RegisterWorker, Release, Sweep
from outlast.store.rows import SUSPECT_DEATHS
from outlast.testing import App


def test_start_and_put_are_refused_but_submit_is_not(world):
    async def main(app):
        await app.drain("test")
        with pytest.raises(Draining, match="not started"):
            await app.start(one("x"), id="refused")
        with pytest.raises(Draining, match="put"):
            await app.queue("q").put(1)
        with pytest.raises(Draining):
            await app.queue("q").put_many([1])
        with pytest.raises(Draining):
            await app.queue("q").claim()
        await app.submit(one("x"), id="submitted")
        assert app.store.run("refused") is None
        return app.store.run("submitted").status, app.draining

    assert world.do(main) == ("queued", True)
    assert begun == []


def test_a_start_under_way_is_refused_or_given_back(world):
    async def main(app):
        starting = [asyncio.create_task(app.start(one(str(n)), id=f"run-{n}")) for n in range(5)]
        await asyncio.sleep(0)
        report = await app.drain("test")
        outcomes = await asyncio.gather(*starting, return_exceptions=True)
        rows = [app.store.run(f"run-{n}") for n in range(5)]
        return report, outcomes, rows

    report, outcomes, rows = world.do(main)
    assert begun == []
    for outcome, row in zip(outcomes, rows, strict=True):
        assert isinstance(outcome, Draining) or row is not None
        assert row is None or (row.status, row.worker, row.interrupted) == ("queued", None, None)
    assert report.left == []


def test_a_drained_worker_claims_nothing_more():
    async def main(app):
        await app.submit_many([one(str(n)) for n in range(3)])
        await asyncio.sleep(1)
        await app.drain("test")
        await app.submit_many([one(f"late {n}") for n in range(3)])
        await asyncio.sleep(100)
        return sorted(begun), (await app.queues())[0].queued

    assert worker().do(main) == (["0", "1", "2"], 3)


def test_claimed_runs_whose_journals_are_being_read_are_given_back():
    app = worker()

    async def first(app):
        await app.submit_many([chain() for n in range(3)], ids=["a", "b", "c"])
        await asyncio.sleep(6)
        await app.drain("first")

    app.do(first)
    before = {id: app.store.run(id) for id in "abc"}
    assert all(row.interruptions == 1 for row in before.values())
    reads = []

    async def second(app):
        engine, journal = app._open, app.store.journal

        def slow(*args, **kwargs):
            if not reads:
                app._shutdown.begin("second")
            reads.append(args)
            return journal(*args, **kwargs)

        app.store.journal = slow
        try:
            await asyncio.shield(engine.shutdown.finished)
        finally:
            del app.store.journal
        return app._shutdown.reporter.report

    report = worker(app.store, clock=app.clock).do(second)
    assert reads
    assert (report.not_started, report.released, report.left) == (3, 0, [])
    for id in "abc":
        row = app.store.run(id)
        assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)


def test_a_claim_committed_before_and_answered_after_the_drain_begins_nothing():
    app = worker()

    async def main(app):
        engine = app._open
        await app.submit(one("x"), id="x", queue="elsewhere")
        claiming = asyncio.create_task(
            engine.acquirer.claim(Claim(engine.worker.id, "t", ids=("x",)))
        )
        await asyncio.sleep(0)
        engine.writer._flush()  # committed; the answer is on its way
        assert app.store.run("x").worker == engine.worker.id
        drain = asyncio.create_task(app.drain("test"))
        rows = await claiming
        await engine.run_queues.starter.begin_claimed(rows)
        report = await drain
        return report, app.store.run("x"), len(engine.in_flight.held())

    report, row, hands = app.do(main)
    assert (row.status, row.worker, row.interrupted, hands) == ("queued", None, None, 0)
    assert (report.not_started, begun) == (1, [])


def test_the_store_refuses_claims_of_a_drained_worker():
    async def main(app):
        await app.submit(one("x"), id="x", queue="elsewhere")
        await app.drain("test")
        rows = await app._open.acquirer.claim(Claim(app._open.worker.id, "t", ids=("x",)))
        return rows, len(await app.workers())

    assert worker().do(main) == ([], 1)


def test_a_lost_lease_in_a_drain_does_not_register_again(world):
    async def main(app):
        await app.start(one("x", 10.0), id="run")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        worker = app._open.worker.id
        app.store._db.execute("DELETE FROM workers WHERE id = ?", (worker,))
        app.store.commit([Sweep()])
        app._open.worker._report_lost(worker)
        await drain
        return app._open.worker.id == worker, [row.id for row in app.store.workers()]

    assert world.do(main) == (True, [])


def test_an_awaited_run_is_not_polled_after_the_drain(world):
    """`start` joined it where another worker had it; that one lets go of it while we drain."""

    async def main(app):
        store = app.store
        await app.submit(one("x"), id="run")
        store.acquire_liveness("other")
        store.commit([RegisterWorker("other", "host", 1, 1e6)])
        (row,) = store.commit([Claim("other", "t", ids=("run",))])[0]
        await app.start(one("x"), id="run")
        await asyncio.sleep(1)
        await app.drain("test")
        store.commit([Release(row.pk, row.fence, "drain")])
        await asyncio.sleep(10)
        before = app._open.writer.commands
        await asyncio.sleep(1000)
        return app._open.writer.commands - before

    world.settings = {"heartbeat": 0.2, "poll": 2.0, "lease": 1e7}
    assert world.do(main) < 5
    assert begun == []


def test_a_suspect_run_is_drained_like_any_other():
    app = worker()

    async def prepare(app):
        await app.submit(chain(), id="suspect")
        for _ in range(SUSPECT_DEATHS):
            app.store.acquire_liveness("dead")
            app.store.commit([RegisterWorker("dead", "host", 1, 1e6)])
            app.store.commit([Claim("dead", "t", ids=("suspect",))])
            app.store.release_liveness("dead")
            app.store.commit([Sweep(backoff=0.0)])
        assert app.store.run("suspect").is_suspect

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        while not begun:
            await asyncio.sleep(0.1)
        assert app._open.isolation.is_active
        await app.submit(one("other"), id="other")
        blocked = asyncio.create_task(app.start(one("blocked"), id="blocked"))
        await asyncio.sleep(0.1)
        report = await app.drain("test")
        with pytest.raises(Draining):
            await blocked
        return report

    report = app.do(main)
    assert (begun, report.released, report.left) == (["a"], 1, [])
    row = app.store.run("suspect")
    assert (row.status, row.deaths_in_a_row, row.worker) == ("queued", 0, None)
