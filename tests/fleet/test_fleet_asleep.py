"""Runs that wait hold no worker: they are released, cost nothing, and continue when there is something to do.

Sleeps last an hour; the tests move the workers' clock. OUTLAST_TEST_KILLS=200 is the full form.
"""

import asyncio
import os
import time
from pathlib import Path

import pytest
from fleet_flows import one_step, receiver, short_of_time, sleeper, tidy_sleeper, waiting_parent
from fleet_sync_flows import sync_sleeper
from fleet_tools import Fleet, assert_nothing_recorded_was_redone

from outlast import RunCancelled, RunTimeout
from support.seeds import seeded_random
from support.waiting import WAIT_SECONDS, wait_until

LONG_FORM = "OUTLAST_TEST_KILLS" in os.environ
SLEEPERS = 10_000 if LONG_FORM else 15
HOUR = 3600.0
CLOCK = {"clock": True, "poll": 0.5}
"""A worker notices that its clock has jumped when it polls."""
NO_POLL = 3600.0
"""A poll that cannot help."""
WAKE_UPS_PER_SECOND_MAX = 200
"""An idle worker has 20 to 60, with eight threads."""


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def is_idle(pid: int) -> bool:
    """Watch a process for a moment. Return whether all its threads sleep and seldom wake up.

    A thread that spins never sleeps, one that polls wakes up often, and both are so on a busy machine too.
    """
    began, before = time.monotonic(), wake_ups(pid)
    for _ in range(40):
        if is_runnable(pid):
            return False
        time.sleep(0.005)  # the time between two looks
    return (wake_ups(pid) - before) / (time.monotonic() - began) < WAKE_UPS_PER_SECOND_MAX


def is_runnable(pid: int) -> bool:
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return any(stat.read_text().rpartition(")")[2].split()[0] == "R" for stat in stats)


def wake_ups(pid: int) -> int:
    """Return how often its threads went to sleep so far."""
    found = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in found)


def until_asleep(fleet: Fleet) -> None:
    """Wait until no worker holds a run."""
    fleet.until_all_are("waiting")


def held(fleet: Fleet) -> list[int]:
    async def look(app):
        return [worker.held for worker in await app.workers() if worker.concurrency]

    return fleet.do(look)


@pytest.mark.timeout(600 + SLEEPERS / 5)
def test_sleeping_runs_hold_no_worker_and_continue_when_due(fleet):
    fleet.set_clock(0.0)
    fleet.start_many(1, "sleeper", "one_step", concurrency=100, **CLOCK)
    fleet.submit([sleeper(n, HOUR) for n in range(SLEEPERS)], [f"r{n}" for n in range(SLEEPERS)])
    until_asleep(fleet)
    assert held(fleet) == [0]

    async def meanwhile(app):
        return await (await app.submit(one_step(1), id="meanwhile")).result(timeout=WAIT_SECONDS)

    assert fleet.do(meanwhile) == 2
    fleet.set_clock(HOUR + 1)
    fleet.until_all_are("done")
    left = fleet.image()
    sleepers = [run for id, run in left.runs.items() if id != "meanwhile"]
    assert sorted(int(run["value"]) for run in sleepers) == list(range(2, SLEEPERS + 2))
    assert {run["lives"] for run in sleepers} == {2}, "claimed once before its sleep and once after"
    assert_nothing_recorded_was_redone(left, fleet.log.update())
    assert {run["deaths"] + run["interruptions"] for run in left.runs.values()} == {0}


def test_worker_whose_runs_all_sleep_is_idle(fleet):
    (worker,) = fleet.start_many(1, "sleeper", concurrency=100, heartbeat=1.0)
    fleet.submit([sleeper(n, HOUR) for n in range(50)], [f"r{n}" for n in range(50)])
    until_asleep(fleet)
    wait_until(lambda: threads(worker.pid) < 20)
    wait_until(lambda: is_idle(worker.pid))


def test_message_wakes_a_sleeping_run_on_another_worker(fleet):
    first, second = fleet.start_many(2, "receiver", poll=NO_POLL)
    fleet.submit([receiver(n) for n in range(10)], [f"r{n}" for n in range(10)])
    until_asleep(fleet)
    first.kill()

    async def send(app):
        assert {info.waiting_for for info in await app.runs()} == {("word",)}
        for n in range(10):
            await app.send(f"r{n}", "word", f"hello {n}")
        return [await app.get(receiver, f"r{n}").result(timeout=WAIT_SECONDS) for n in range(10)]

    assert fleet.do(send) == [f"hello {n} {n + 2}" for n in range(10)]
    assert {line.pid for line in fleet.lines() if line.key == "add#2"} == {second.pid}
    assert fleet.image().deaths() == []


def test_parent_sleeps_while_its_child_sleeps(fleet):
    fleet.set_clock(0.0)
    fleet.start_many(2, "waiting_parent", "sleeper", **CLOCK)
    fleet.submit([waiting_parent(n, HOUR) for n in range(5)], [f"p{n}" for n in range(5)])
    fleet.wait_until(lambda: fleet.statuses() == {"waiting": 10})
    assert held(fleet) == [0, 0]
    fleet.set_clock(HOUR + 1)
    fleet.until_all_are("done")
    left = fleet.image()
    parents = {id: run["value"] for id, run in left.runs.items() if run["parent"] is None}
    assert parents == {f"p{n}": str(n + 12) for n in range(5)}
    assert_nothing_recorded_was_redone(left, fleet.log.update())


def test_event_that_comes_while_a_run_is_released_is_not_missed(fleet):
    """A message, a cancellation or the end of a child comes at a random moment around the release."""
    rng, count = seeded_random("falling asleep"), 40 if LONG_FORM else 8
    flows = ("receiver", "tidy_sleeper", "waiting_parent", "sleeper")
    fleet.start_many(2, *flows, poll=NO_POLL, linger=0.05, concurrency=100)
    calls, ids = [], []
    for n in range(count):
        calls += [receiver(n), tidy_sleeper(HOUR), waiting_parent(n, rng.uniform(0.02, 0.4))]
        ids += [f"receiver{n}", f"cancelled{n}", f"parent{n}"]
    fleet.submit(calls, ids)
    fleet.wait_until(lambda: not fleet.statuses()["queued"])

    async def disturb(app):
        async def later(action):
            await asyncio.sleep(rng.uniform(0, 0.25))  # a random moment
            await action

        await asyncio.gather(
            *(later(app.send(f"receiver{n}", "word", "x")) for n in range(count)),
            *(later(app.cancel(f"cancelled{n}")) for n in range(count)),
        )

    fleet.do(disturb)
    fleet.until_all_are("done", "cancelled")
    left = fleet.image()
    assert {left.runs[f"cancelled{n}"]["status"] for n in range(count)} == {"cancelled"}
    assert [left.runs[f"parent{n}"]["value"] for n in range(count)] == [
        str(n + 12) for n in range(count)
    ]
    assert_nothing_recorded_was_redone(left, fleet.log.update())


def test_cancelled_sleeping_run_wakes_to_clean_up(fleet):
    fleet.start_many(2, "tidy_sleeper", poll=NO_POLL)
    fleet.submit([tidy_sleeper(HOUR)] * 5, [f"r{n}" for n in range(5)])
    until_asleep(fleet)
    before = len(fleet.lines("tidied"))

    async def cancel(app):
        for n in range(5):
            await app.cancel(f"r{n}", "enough")
        for n in range(5):
            with pytest.raises(RunCancelled, match="enough"):
                await app.result(f"r{n}", timeout=WAIT_SECONDS)

    fleet.do(cancel)
    assert len(fleet.lines("tidied")) == before + 5
    assert fleet.statuses() == {"cancelled": 5}


def test_sleeping_run_is_ended_by_its_timeout(fleet):
    fleet.set_clock(0.0)
    fleet.start_many(1, "short_of_time", **CLOCK)
    fleet.submit([short_of_time(HOUR)], ["r"])
    until_asleep(fleet)
    fleet.set_clock(1000.0)

    async def wait(app):
        with pytest.raises(RunTimeout):
            await app.result("r", timeout=WAIT_SECONDS)

    fleet.do(wait)
    assert fleet.status("r") == "failed"


def test_sync_workflow_gives_up_its_thread_while_it_sleeps(fleet):
    fleet.set_clock(0.0)
    (worker,) = fleet.start_many(1, module="fleet_sync_flows", concurrency=30, **CLOCK)
    at_rest = threads(worker.pid)
    fleet.submit([sync_sleeper(n, HOUR) for n in range(30)], [f"r{n}" for n in range(30)])
    until_asleep(fleet)
    assert held(fleet) == [0]
    # The pool keeps a thread for each of the 30 steps; the threads of the workflows are gone.
    wait_until(lambda: threads(worker.pid) < at_rest + 30 + 15)
    fleet.set_clock(HOUR + 1)
    fleet.until_all_are("done")
    left = fleet.image()
    assert sorted(int(run["value"]) for run in left.runs.values()) == list(range(2, 32))
    assert_nothing_recorded_was_redone(left, fleet.log.update())
