"""A worker on the virtual clock: which runs it claims, and when runs wait."""

import asyncio
import math

import pytest
from worker_work import (
    claimed_elsewhere,
    died,
    done,
    fresh_work,  # noqa: F401 - a fixture
    job,
    letter,
    nap,
    parent,
    strange,
    worker,
)

from outlast import (
    Backpressure,
    Conflict,
    LimitExceeded,
    Outlast,
    SettingsError,
)
from outlast.store.commands import Claim, Release
from outlast.store.rows import SUSPECT_DEATHS
from outlast.testing import App
from outlast.testing.inline_mode import INLINE


def test_submitted_run_is_executed_by_a_worker():
    async def main(app):
        run = await app.submit(job("x"))
        return await run.result()

    assert worker().do(main) == "x"


def test_app_that_is_not_a_worker_executes_nothing():
    async def main(app):
        await app.submit(job("x"), id="r")
        await asyncio.sleep(100)
        return (await app.runs())[0].status

    assert App().do(main) == "queued"
    assert done == []


def test_runs_are_claimed_by_priority_then_age():
    async def main(app):
        # One slot, and it is taken.
        await app.submit(job("first", 10))
        await asyncio.sleep(1)
        runs = [
            await app.submit(job("low"), priority=-1),
            await app.submit(job("a")),
            await app.submit(job("b")),
            await app.submit(job("high"), priority=7),
        ]
        for run in runs:
            await run.result()

    worker(concurrency=1).do(main)
    assert done == ["first", "high", "a", "b", "low"]


def test_delayed_run_is_claimed_when_it_is_due_and_not_before():
    async def main(app):
        start = app.clock()
        run = await app.submit(job("x"), delay=3600)
        await run.result()
        return app.clock() - start

    assert worker().do(main) == pytest.approx(3600, abs=1)


def test_worker_claims_no_more_runs_than_it_has_slots():
    async def main(app):
        await app.submit_many([job(str(number), 10) for number in range(7)])
        await asyncio.sleep(1)
        return [(await app.queues())[0].running, (await app.workers())[0].held, len(done)]

    assert worker(concurrency=3).do(main) == [3, 3, 3]


def test_queue_limit_is_kept():
    async def main(app):
        await app.queue("narrow").limit(concurrency=2)
        await app.submit_many([job(str(number), 10) for number in range(5)], queue="narrow")
        await app.submit(job("wide", 10))
        await asyncio.sleep(1)
        running = {queue.name: queue.running for queue in await app.queues()}
        await asyncio.sleep(100)
        return running, len(done)

    assert worker(queues="default,narrow", concurrency=10).do(main) == (
        {"default": 1, "narrow": 2},
        6,
    )


def test_unknown_workflows_wait_and_are_reported(caplog):
    async def main(app):
        await app.submit(job("known"))
        # Submitted by a program with newer code.
        newer = Outlast(app._config.store)
        newer._lifecycle.mode = INLINE
        async with newer:
            await newer.submit(strange("x"), id="strange")
        await asyncio.sleep(10)
        return app.store.run("strange").status

    assert worker().do(main) == "queued"
    assert done == ["known"]
    assert "Runs of workflow strange wait for a worker that knows it" in caplog.text


def test_sleeping_run_is_released_and_claimed_when_due():
    async def main(app):
        runs = await app.submit_many([nap(3600.0) for _ in range(50)])
        await asyncio.sleep(60)
        held = (await app.workers())[0].held
        waiting = (await app.queues())[0].waiting
        await asyncio.gather(*[run.result() for run in runs])
        return held, waiting, app._open.claimers.own.slots.used, app._open.in_flight.executions

    assert worker(concurrency=5).do(main) == (0, 50, 0, {})
    assert done.count("before") == done.count("after") == 50


def test_receiving_run_is_released_and_claimed_when_a_message_comes():
    async def main(app):
        run = await app.submit(letter(), id="letter")
        await asyncio.sleep(60)
        info = await run.info()
        await app.send("letter", "other", "not this one")
        await asyncio.sleep(1)
        still = (await run.info()).status
        await app.send("letter", "go", "hello")
        return info.status, info.waiting_for, info.worker, still, await run.result(timeout=5)

    assert worker().do(main) == ("waiting", ("go",), None, "waiting", "hello")


def test_parent_of_a_sleeping_child_is_released():
    async def main(app):
        run = await app.submit(parent(3600.0), id="parent")
        await asyncio.sleep(60)
        statuses = {info.workflow: info.status for info in await app.runs()}
        result = await run.result()
        return statuses, result, {info.queue for info in await app.runs()}

    statuses, result, queues = worker().do(main)
    assert statuses == {"parent": "waiting", "nap": "waiting"}
    assert result == "child said after"
    assert queues == {"default"}
    assert done == ["before", "after"]


def test_child_gets_the_queue_and_priority_of_its_parent():
    async def main(app):
        await (await app.submit(parent(3600.0), queue="gpu", priority=3)).result()
        return {(info.queue, info.priority) for info in await app.runs()}

    assert worker(queues=["gpu"]).do(main) == {("gpu", 3)}


def test_sleeping_run_can_be_cancelled():
    async def main(app):
        run = await app.submit(nap(1e6), id="nap")
        await asyncio.sleep(60)
        assert await app.cancel("nap", "enough") == "waiting"
        await asyncio.sleep(1)
        return (await run.info()).status

    assert worker().do(main) == "cancelled"


def test_worker_with_a_suspect_claims_nothing_until_it_records_something():
    app = worker(concurrency=10)

    async def main(app):
        store = app.store
        await app.submit(job("suspect", 1.0), id="suspect")
        for _ in range(SUSPECT_DEATHS):
            claimed_elsewhere(store, "suspect")
            died(store, "elsewhere")
        assert store.run("suspect").is_suspect

    App(app.store, clock=app.clock).do(main)  # no worker yet

    async def work(app):
        held = []
        run = app.get(job, "suspect")
        others = await app.submit_many([job(str(number), 5) for number in range(5)])
        for _ in range(40):
            held.append((app._open.isolation.fence, list(app._open.in_flight.executions)))
            await asyncio.sleep(0.05)
        for other in [run, *others]:
            await other.result()
        return held

    held = app.do(work)
    assert any(alone is not None and lives == ["suspect"] for alone, lives in held)
    assert all(lives in (["suspect"], []) for alone, lives in held if alone is not None), (
        "nothing beside it"
    )
    assert done[0] == "suspect"
    assert app.store.run("suspect").status == "done"


def test_claim_whose_answer_was_lost_is_released():
    async def stray(app):
        await app.submit(job("y"), id="stray", queue="elsewhere")
        (rows,) = app.store.commit([Claim(app._open.worker.id, "lost answer", ids=("stray",))])
        assert rows[0].worker == app._open.worker.id
        await asyncio.sleep(30)
        return app.store.run("stray")

    row = App(worker=True, workflows=[job], poll=2.0, heartbeat=0.2, lease=1e6).do(stray)
    assert (row.status, row.worker, row.interruptions, row.deaths) == ("queued", None, 0, 0)


def test_interrupted_runs_go_first_but_leave_new_runs_their_share():
    app = worker(concurrency=5, new_share=0.2, returned_rate=1e6)

    async def give_back(app):
        for number in range(20):
            await app.submit(job(f"back-{number}", 10), id=f"back-{number}")
            (row,) = claimed_elsewhere(app.store, f"back-{number}")
            assert app.store.commit([Release(row.pk, row.fence, "deploy")]) == ["queued"]
        await app.submit_many([job(f"new-{number}", 10) for number in range(20)])

    App(app.store, clock=app.clock).do(give_back)

    async def work(app):
        await asyncio.sleep(1)
        first = sorted(done)
        await asyncio.sleep(1000)
        return first

    first = app.do(work)
    assert [label.split("-")[0] for label in first] == ["back"] * 4 + ["new"]
    assert len(done) == 40


def test_submit_to_a_full_queue_raises_backpressure_and_writes_nothing():
    async def main(app):
        await app.queue("small").limit(depth=2)
        await app.submit(job("a"), queue="small", id="a")
        with pytest.raises(Backpressure) as refused:
            await app.submit_many([job("b"), job("c")], queue="small")
        assert (refused.value.queue, refused.value.depth, refused.value.limit) == ("small", 1, 2)
        assert "outlast limit" in str(refused.value)
        await app.submit(job("b"), queue="small", id="b")
        with pytest.raises(Backpressure):
            await app.submit(job("c"), queue="small", wait=1)
        await app.submit(job("a"), queue="small", id="a")  # it is there: nothing to refuse
        with pytest.raises(Backpressure):  # would never fit
            await app.submit_many([job("d")] * 3, queue="small", wait=math.inf)
        return len(await app.runs())

    assert App().do(main) == 2


def test_submit_that_waits_for_room_gets_it():
    async def main(app):
        await app.queue("default").limit(depth=1)
        await app.submit_many([job("a", 4)])
        await asyncio.sleep(1)  # claimed: there is room again
        await app.submit(job("b", 4))
        start = app.clock()
        last = await app.submit(job("c"), wait=math.inf)
        waited = app.clock() - start
        await last.result()
        return waited

    assert worker(concurrency=1).do(main) == pytest.approx(3, abs=0.5)


def test_submit_many_is_all_or_nothing():
    async def main(app):
        await app.submit(job("x"), id="taken")
        with pytest.raises(Conflict, match="taken"):
            await app.submit_many([job("y"), job("z")], ids=["free", "taken"])
        with pytest.raises(Conflict, match="twice"):
            await app.submit_many([job("y"), job("z")], ids=["twice", "twice"])
        with pytest.raises(ValueError, match="pass one id for each call"):
            await app.submit_many([job("y")], ids=[])
        with pytest.raises(SettingsError, match="delay"):
            await app.submit(job("y"), delay=-1)
        with pytest.raises(SettingsError, match="wait"):
            await app.submit(job("y"), wait=float("nan"))
        with pytest.raises(LimitExceeded, match="submit_many_max"):
            await app.submit_many([job("y")] * 11)
        assert await app.submit_many([]) == []
        return [info.id for info in await app.runs()]

    assert App(submit_many_max=10).do(main) == ["taken"]
