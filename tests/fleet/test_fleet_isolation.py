"""A suspect executes alone, but never waits for ever."""

import asyncio

import pytest
from fleet_tools import die_elsewhere
from fleet_work import (
    RARELY,
    agent,
    begun,
    family,
    gated,
    gates,
    job,
    statuses,
    until_idle,
    virtual,
    worker,
)

from outlast.codec import plain_json
from outlast.store.commands import ITEM
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async


def test_nothing_runs_beside_a_suspect_until_it_records_something():
    app = virtual(suspect_patience=50.0)

    async def prepare(app):
        await die_elsewhere(app, app._open.submissions.for_call(gated("suspect"), "suspect"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        while not begun:
            await asyncio.sleep(0.1)
        await app.queue("q").put("item")
        submitted = await app.submit(job("submitted"))
        starting = asyncio.create_task(app.start(job("started")))
        assert await app.queue("q").claim(wait=20) is None
        assert (begun, list(app._open.in_flight.executions)) == (["suspect"], ["suspect"])
        gates["suspect"].set()
        await app.get(gated, "suspect").result()
        assert (await app.queue("q").claim(wait=1)).payload == "item"
        assert await submitted.result(timeout=1) == "submitted"
        assert await (await starting).result(timeout=1) == "started"

    app.do(main)


def test_start_waits_for_a_suspect_no_longer_than_its_patience():
    app = virtual(suspect_patience=50.0)

    async def prepare(app):
        await die_elsewhere(app, app._open.submissions.for_call(gated("suspect"), "suspect"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        while not begun:
            await asyncio.sleep(0.1)
        start = app.clock()
        assert await (await app.start(job("started"))).result() == "started"
        return app.clock() - start

    assert app.do(main) == pytest.approx(50, abs=1)


def test_suspect_child_runs_beside_its_waiting_parent():
    async def main():
        gates["family"] = asyncio.Event()
        async with worker(suspect_patience=1000.0) as app:
            engine = app._open
            run = await app.submit(family(), id="family")
            await wait_until_async(lambda: begun == ["family"])
            child = engine.submissions.for_call(job("child"), "family/job#1")
            await die_elsewhere(app, child._replace(parent="family"))
            gates["family"].set()
            assert await run.result(timeout=WAIT_SECONDS) == "child"
            assert await statuses(app) == {"family": "done", "family/job#1": "done"}
            await wait_until_async(lambda: not engine.in_flight.held())
            assert engine.isolation.fence is None

    asyncio.run(main())
    assert begun == ["family", "child"]


def test_suspect_runs_beside_others_where_a_worker_never_gets_idle():
    async def main(app):
        engine = app._open
        await app.submit(agent(), id="agent")
        while "turn 0" not in begun:
            await asyncio.sleep(0.01)
        await die_elsewhere(app, engine.submissions.for_call(job("suspect"), "suspect"))
        while not engine.isolation.suspends_claims:
            await asyncio.sleep(0.01)
        late = await app.submit(job("late"))
        assert await app.get(job, "suspect").result(timeout=100) == "suspect"
        assert await late.result(timeout=100) == "late"
        while engine.isolation.suspends_claims:
            await asyncio.sleep(0.01)
        assert list(engine.in_flight.executions) == ["agent"]

    virtual(suspect_patience=1.0).do(main)
    assert begun.index("suspect") < begun.index("late"), "nothing is claimed while it makes room"


def test_run_submitted_beside_a_suspect_item_is_claimed_when_the_item_ends():
    async def main():
        gate = asyncio.Event()

        async def handle(item):
            begun.append(item.id)
            await gate.wait()

        async with worker(**RARELY) as app:
            engine = app._open
            submission = engine.submissions.build("q/x", ITEM, plain_json.encode(1), queue="q")
            await die_elsewhere(app, submission)
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await wait_until_async(lambda: begun == ["x"])
            assert engine.in_flight.is_held(engine.isolation.fence)
            run = await app.submit(job("run"))
            await until_idle(app, engine.claimers.own)
            assert begun == ["x"]
            gate.set()
            assert await run.result(timeout=WAIT_SECONDS) == "run"
            consumer.cancel()
            await asyncio.wait([consumer])

    asyncio.run(main())
