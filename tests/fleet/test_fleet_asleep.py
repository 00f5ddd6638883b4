"""Runs that wait hold no worker: they are given back, cost nothing, and come back when there is something to do.

OUTLAST_TEST_KILLS=200 is the full form: ten thousand of them.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest
from fleet_flows import one_step, receiver, short_of_time, sleeper, tidy_sleeper, waiting_parent
from fleet_sync_flows import sync_sleeper
from fleet_tools import Fleet, assert_nothing_recorded_was_redone, cpu_seconds, until
from process_tools import chance

from outlast import RunCancelled, RunTimeout

SLEEPERS = 10_000 if "OUTLAST_TEST_KILLS" in os.environ else 500
LONG = 3600.0


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def until_asleep(fleet: Fleet, *ids: str) -> None:
    """Until these, or everybody, are in nobody's hands."""

    def are_asleep() -> bool:
        awake = {id for (id,) in fleet.ask("SELECT id FROM runs WHERE status <> 'waiting'")}
        return not (awake & set(ids) if ids else awake)

    until(are_asleep, pause=0.02)


def held(fleet: Fleet) -> list[int]:
    async def look(app):
        return [worker.held for worker in await app.workers() if worker.concurrency]

    return fleet.do(look)


@pytest.mark.timeout(60 + SLEEPERS / 20)
def test_sleeping_runs_hold_no_worker_and_come_back_when_due(fleet):
    fleet.start_many(1, "sleeper", "one_step", concurrency=100, poll=60)
    seconds = 4.0 + SLEEPERS / 100
    fleet.submit([sleeper(n, seconds) for n in range(SLEEPERS)], [f"r{n}" for n in range(SLEEPERS)])
    until(lambda: fleet.all_are("waiting"), 60 + SLEEPERS / 50, pause=0.05)
    assert held(fleet) == [0]

    async def meanwhile(app):
        began = time.monotonic()
        await (await app.submit(one_step(1), id="meanwhile")).result(timeout=20)
        return time.monotonic() - began

    quick = fleet.do(meanwhile)
    print(f"{SLEEPERS} sleep; another took {quick * 1000:.0f} ms")
    fleet.until_all_are("done", seconds=60 + seconds * 2)
    left = fleet.image()
    sleepers = [run for id, run in left.runs.items() if id != "meanwhile"]
    assert sorted(int(run["value"]) for run in sleepers) == list(range(2, SLEEPERS + 2))
    assert {run["lives"] for run in sleepers} == {2}, "one life before its sleep, one after"
    assert all(run["ended"] - run["started"] >= seconds for run in sleepers)
    assert_nothing_recorded_was_redone(left, fleet.log.update())
    assert {run["deaths"] + run["interruptions"] for run in left.runs.values()} == {0}


def test_a_worker_whose_runs_all_sleep_is_idle(fleet):
    (worker,) = fleet.start_many(1, "sleeper", concurrency=100)
    fleet.submit([sleeper(n, LONG) for n in range(200)], [f"r{n}" for n in range(200)])
    until_asleep(fleet)
    until(lambda: threads(worker.pid) < 20)
    began, used = time.monotonic(), cpu_seconds(worker.pid)
    time.sleep(2.0)  # the time over which it is measured
    share = (cpu_seconds(worker.pid) - used) / (time.monotonic() - began)
    print(f"{share:.1%} of a core with 200 runs asleep")
    assert share < 0.05


def test_a_message_wakes_a_run_that_sleeps_on_another_worker_too(fleet):
    first, second = fleet.start_many(2, "receiver", poll=60)
    fleet.submit([receiver(n) for n in range(20)], [f"r{n}" for n in range(20)])
    until_asleep(fleet)
    first.kill()

    async def send(app):
        assert {info.waiting_for for info in await app.runs()} == {("word",)}
        began = time.monotonic()
        for n in range(20):
            await app.send(f"r{n}", "word", f"hello {n}")
        results = [await app.get(receiver, f"r{n}").result(timeout=20) for n in range(20)]
        return results, time.monotonic() - began

    results, seconds = fleet.do(send)
    assert results == [f"hello {n} {n + 2}" for n in range(20)]
    assert seconds < 10, "the poll is 60 s: it is the message that wakes them"
    assert {line.pid for line in fleet.lines() if line.key == "add#2"} == {second.pid}
    assert fleet.image().deaths() == []


def test_a_parent_sleeps_with_its_child_and_wakes_with_it(fleet):
    fleet.start_many(2, "waiting_parent", "sleeper", poll=60)
    fleet.submit([waiting_parent(n, 2.0) for n in range(10)], [f"p{n}" for n in range(10)])
    until(lambda: fleet.statuses() == {"waiting": 20}, pause=0.02)
    assert held(fleet) == [0, 0]
    fleet.until_all_are("done")
    left = fleet.image()
    parents = {id: run["value"] for id, run in left.runs.items() if run["parent"] is None}
    assert parents == {f"p{n}": str(n + 12) for n in range(10)}
    assert_nothing_recorded_was_redone(left, fleet.log.update())


def test_what_comes_just_as_a_run_falls_asleep_is_not_missed(fleet):
    """A message, a cancellation or a child's end at any moment, also while the run is being given back."""
    rng, count = chance("falling asleep"), 40
    flows = ("receiver", "tidy_sleeper", "waiting_parent", "sleeper")
    fleet.start_many(2, *flows, poll=60, linger=0.05, concurrency=100)
    calls, ids = [], []
    for n in range(count):
        calls += [receiver(n), tidy_sleeper(LONG), waiting_parent(n, rng.uniform(0.02, 0.4))]
        ids += [f"receiver{n}", f"cancelled{n}", f"parent{n}"]

    async def disturb(app):
        async def later(id, act):
            while fleet.status(id) == "queued":
                await asyncio.sleep(0.01)
            await asyncio.sleep(rng.uniform(0, 0.25))
            await act

        await app.submit_many(calls, ids=ids)
        await asyncio.gather(
            *(later(f"receiver{n}", app.send(f"receiver{n}", "word", "x")) for n in range(count)),
            *(later(f"cancelled{n}", app.cancel(f"cancelled{n}")) for n in range(count)),
        )

    fleet.do(disturb, poll=60)
    fleet.until_all_are("done", "cancelled", seconds=20)
    left = fleet.image()
    assert {left.runs[f"cancelled{n}"]["status"] for n in range(count)} == {"cancelled"}
    assert [left.runs[f"parent{n}"]["value"] for n in range(count)] == [str(n + 12) for n in range(count)]
    assert_nothing_recorded_was_redone(left, fleet.log.update())


def test_a_sleeping_run_that_is_cancelled_wakes_to_tidy_up(fleet):
    fleet.start_many(2, "tidy_sleeper", poll=60)
    fleet.submit([tidy_sleeper(LONG)] * 5, [f"r{n}" for n in range(5)])
    until_asleep(fleet)
    before = len(fleet.lines("tidied"))

    async def cancel(app):
        for n in range(5):
            await app.cancel(f"r{n}", "enough")
        for n in range(5):
            with pytest.raises(RunCancelled, match="enough"):
                await app.result(f"r{n}", timeout=20)

    fleet.do(cancel)
    assert len(fleet.lines("tidied")) == before + 5
    assert fleet.statuses() == {"cancelled": 5}


def test_a_sleeping_run_is_ended_by_its_timeout(fleet):
    fleet.start_many(1, "short_of_time", poll=60)
    fleet.submit([short_of_time(LONG)], ["r"])
    until_asleep(fleet)

    async def wait(app):
        with pytest.raises(RunTimeout):
            await app.result("r", timeout=20)

    fleet.do(wait)
    run = fleet.image().runs["r"]
    assert run["status"] == "failed"
    assert 1.5 <= run["ended"] - run["started"] < 10


def test_a_sync_workflow_gives_up_its_thread_while_it_sleeps(fleet):
    (worker,) = fleet.start_many(1, module="fleet_sync_flows", concurrency=30)
    at_rest = threads(worker.pid)
    fleet.submit([sync_sleeper(n, 3.0) for n in range(30)], [f"r{n}" for n in range(30)])
    until_asleep(fleet)
    assert held(fleet) == [0]
    # The pool keeps a thread for each of the 30 steps that were under way at once; the workflows' own are gone.
    until(lambda: threads(worker.pid) < at_rest + 30 + 15)
    fleet.until_all_are("done")
    left = fleet.image()
    assert sorted(int(run["value"]) for run in left.runs.values()) == list(range(2, 32))
    assert_nothing_recorded_was_redone(left, fleet.log.update())
