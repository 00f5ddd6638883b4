"""A program that is not a worker submits runs: into queues that may be full, to workers that a notification wakes."""

import asyncio
import math
import time

import pytest
from fleet_flows import gated, one_step

from outlast import Backpressure, Conflict
from outlast.store.sqlite.notifier import PREFIX
from support.waiting import WAIT_SECONDS

NO_POLL = 3600.0
"""A poll that cannot help."""


def test_program_that_is_not_a_worker_submits_and_gets_results(fleet):
    fleet.start("one_step")

    async def submit(app):
        one = await app.submit(one_step(1), id="one")
        again = await app.submit(one_step(1), id="one")
        many = await app.submit_many([one_step(n) for n in range(30)])
        with pytest.raises(Conflict):
            await app.submit(one_step(2), id="one")
        with pytest.raises(Conflict):
            await app.submit_many([one_step(7), one_step(8)], ids=["seven", "one"])
        results = [await run.result(timeout=WAIT_SECONDS) for run in (one, again, *many)]
        return results, len(await app.runs(limit=1000))

    assert fleet.do(submit) == ([2, 2, *range(1, 31)], 31)
    assert len(fleet.lines()) == 31
    assert {line.pid for line in fleet.lines()} == {fleet.workers[0].pid}


def test_full_queue_rejects_a_submit_or_makes_it_wait(fleet):
    async def submit(app):
        queue = app.queue("default")
        await queue.limit(depth=10)
        await app.submit_many([gated("gate")] * 8)
        with pytest.raises(Backpressure) as refused:
            await app.submit_many([one_step(n) for n in range(3)])
        assert (refused.value.queue, refused.value.depth, refused.value.limit) == ("default", 8, 10)
        await app.submit_many([one_step(n) for n in range(2)])
        with pytest.raises(Backpressure):
            await app.submit(one_step(9), wait=0.1)
        with pytest.raises(Backpressure):  # there can never be room for eleven
            await app.submit_many([one_step(n) for n in range(11)], wait=math.inf)
        waiting = asyncio.create_task(app.submit(one_step(99), id="waited", wait=math.inf))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert await queue.size() == 10
        fleet.make("gate")
        fleet.start("gated", "one_step", concurrency=4)
        run = await asyncio.wait_for(waiting, WAIT_SECONDS)
        return await run.result(timeout=WAIT_SECONDS), len(await app.runs(limit=100))

    assert fleet.do(submit) == (100, 11)
    fleet.until_all_are("done")


def test_submitted_run_is_claimed_without_polling(fleet):
    fleet.start_many(2, "one_step", poll=NO_POLL)

    async def submit(app):
        return [
            await (await app.submit(one_step(n))).result(timeout=WAIT_SECONDS) for n in range(5)
        ]

    assert fleet.do(submit, poll=NO_POLL) == [1, 2, 3, 4, 5]


def test_delayed_run_is_claimed_when_it_is_due_without_polling(fleet):
    fleet.start_many(1, "gated", "one_step", poll=NO_POLL)

    async def submit(app):
        began = time.monotonic()
        run = await app.submit(one_step(1), delay=1.0)
        await app.submit(gated("gate"), id="long")
        await run.result(timeout=WAIT_SECONDS)
        return time.monotonic() - began

    assert fleet.do(submit, poll=NO_POLL) >= 1.0
    assert fleet.status("long") == "running", "a busy worker claims it as well"


def test_lost_notification_delays_a_run_by_one_poll(file_fleet):
    """The FIFOs are removed, so no process is woken."""
    file_fleet.start_many(1, "one_step", poll=0.5)

    async def submit(app):
        for fifo in (file_fleet.folder / "outlast.db.d").glob(f"{PREFIX}*"):
            fifo.unlink()
        return await (await app.submit(one_step(1))).result(timeout=WAIT_SECONDS)

    assert list((file_fleet.folder / "outlast.db.d").glob(f"{PREFIX}*"))
    assert file_fleet.do(submit, poll=0.5) == 2
