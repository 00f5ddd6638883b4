"""Submitting: from a program that is no worker, into queues that can be full, to workers that are idle and hear the bell."""

import asyncio
import math
import time

import pytest
from fleet_flows import gated, one_step
from fleet_tools import cpu_seconds, until

from outlast import Backpressure, Conflict


def test_a_program_that_is_no_worker_submits_and_gets_the_results(fleet):
    fleet.start("one_step")

    async def submit(app):
        one = await app.submit(one_step(1), id="one")
        again = await app.submit(one_step(1), id="one")
        many = await app.submit_many([one_step(n) for n in range(30)])
        with pytest.raises(Conflict):
            await app.submit(one_step(2), id="one")
        with pytest.raises(Conflict):
            await app.submit_many([one_step(7), one_step(8)], ids=["seven", "one"])
        results = [await run.result(timeout=20) for run in (one, again, *many)]
        return results, len(await app.runs(limit=1000))

    assert fleet.do(submit) == ([2, 2, *range(1, 31)], 31)
    assert len(fleet.lines()) == 31
    assert {line.pid for line in fleet.lines()} == {fleet.workers[0].pid}


def test_a_full_queue_refuses_or_makes_wait(fleet):
    async def submit(app):
        queue = app.queue("default")
        await queue.limit(depth=10)
        await app.submit_many([gated("gate")] * 8)
        with pytest.raises(Backpressure) as refused:
            await app.submit_many([one_step(n) for n in range(3)])
        assert (refused.value.queue, refused.value.depth, refused.value.limit) == ("default", 8, 10)
        await app.submit_many([one_step(n) for n in range(2)])
        began = time.monotonic()
        with pytest.raises(Backpressure):
            await app.submit(one_step(9), wait=0.3)
        assert time.monotonic() - began >= 0.3
        with pytest.raises(Backpressure):  # there never can be room for so many
            await app.submit_many([one_step(n) for n in range(11)], wait=math.inf)
        waiting = asyncio.create_task(app.submit(one_step(99), id="waited", wait=math.inf))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert await queue.size() == 10
        fleet.make("gate")
        fleet.start("gated", "one_step", concurrency=4)
        run = await asyncio.wait_for(waiting, 20)
        return await run.result(timeout=20), len(await app.runs(limit=100))

    assert fleet.do(submit) == (100, 11)
    fleet.until_all_are("done")


def test_what_is_submitted_is_picked_up_by_the_bell_not_by_a_poll(fleet):
    fleet.start_many(2, "one_step", poll=60)

    async def submit(app):
        seconds = []
        for n in range(20):
            began = time.monotonic()
            run = await app.submit(one_step(n))
            assert await run.result(timeout=20) == n + 1
            seconds.append(time.monotonic() - began)
        return sorted(seconds)

    seconds = fleet.do(submit, poll=60)
    print(f"submit to result: median {seconds[10] * 1000:.1f} ms, slowest {seconds[-1] * 1000:.1f} ms")
    assert seconds[10] < 1.0
    assert seconds[-1] < 10


def test_a_delayed_run_is_picked_up_when_it_is_due_not_by_a_poll(fleet):
    fleet.start_many(1, "one_step", poll=60)

    async def submit(app):
        began = time.monotonic()
        run = await app.submit(one_step(1), delay=1.0)
        await run.result(timeout=20)
        return time.monotonic() - began

    assert 1.0 <= fleet.do(submit, poll=60) < 10


def test_a_delayed_run_is_picked_up_when_it_is_due_by_a_worker_that_is_busy_with_others(fleet):
    fleet.start_many(1, "gated", "one_step", poll=60)

    async def submit(app):
        began = time.monotonic()
        run = await app.submit(one_step(1), delay=1.0)
        await app.submit(gated("gate"), id="long")
        await run.result(timeout=20)
        return time.monotonic() - began

    assert 1.0 <= fleet.do(submit, poll=60) < 10
    assert fleet.status("long") == "running"


def test_an_idle_worker_costs_next_to_nothing(fleet):
    (worker,) = fleet.start_many(1, "one_step", heartbeat=0.2, lease=30)
    fleet.submit([one_step(1)], ["r"])
    fleet.until_all_are("done")
    until(
        lambda: (
            fleet.ask("SELECT 1 FROM workers")
            and not fleet.ask("SELECT 1 FROM runs WHERE worker IS NOT NULL")
        )
    )
    began, used = time.monotonic(), cpu_seconds(worker.pid)
    time.sleep(3.0)  # the time over which it is measured
    share = (cpu_seconds(worker.pid) - used) / (time.monotonic() - began)
    print(f"an idle worker uses {share:.2%} of a core")
    assert share < 0.05


def test_a_lost_bell_costs_a_poll_and_no_more(file_fleet):
    """The FIFOs are gone: nobody hears anything any more."""
    file_fleet.start_many(1, "one_step", poll=0.5)

    async def submit(app):
        for bell in (file_fleet.folder / "outlast.db.d").glob("bell-*"):
            bell.unlink()
        return await (await app.submit(one_step(1))).result(timeout=20)

    assert list((file_fleet.folder / "outlast.db.d").glob("bell-*"))
    assert file_fleet.do(submit, poll=0.5) == 2
