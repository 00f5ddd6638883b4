"""Workers that are slow, stopped, blocked or forked: one run has one holder, and who has lost it writes nothing more."""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from fleet_flows import blocking, forking, gated, gated_here, may_strike, one_step, three_gated_here
from fleet_tools import (
    SETTINGS,
    Fleet,
    assert_nothing_recorded_was_redone,
    assert_nothing_was_recorded_under_a_stale_fence,
    json,
    until,
)

from outlast.store.rows import SUSPECT_DEATHS

LEASE = 3.0
RACERS = 50


def test_of_fifty_processes_that_race_for_one_run_one_executes_it(fleet):
    options = {**SETTINGS, "lease": 30, "heartbeat": 2.0, "poll": 5.0}
    fleet.spawn("racers.py", RACERS, json.dumps(options))
    until(lambda: len(list(fleet.folder.glob("up-*"))) == RACERS)

    async def race(app):
        for n in range(20):
            run = await app.submit(one_step(n), id=f"r{n}")
            assert await run.result(timeout=20) == n + 1

    fleet.do(race)
    starts = Counter(line.run for line in fleet.lines())
    assert starts == {f"r{n}": 1 for n in range(20)}
    left = fleet.image()
    assert {run["lives"] for run in left.runs.values()} == {1}, "claimed once"
    assert all(left.kinds(id) == ["step"] for id in left.runs)
    print(f"{len({line.pid for line in fleet.lines()})} of {RACERS} got any")


def evictions(fleet: Fleet, pid: int) -> list[tuple[str, str]]:
    """(run, reason) of every life that was evicted in a process."""
    return [
        (line.run, line.when.removeprefix("evicted: "))
        for line in fleet.log.of(pid)
        if line.when.startswith("evicted: ")
    ]


def takes_new_work(fleet: Fleet, worker, others) -> None:
    """It has come back under another id, and is a worker like any other."""
    for other in others:
        other.kill()

    async def more(app):
        await (await app.submit(one_step(1), id="more")).result(timeout=20)

    fleet.do(more)
    assert [line.pid for line in fleet.lines() if line.run == "more"] == [worker.pid]


def test_a_worker_that_was_stopped_past_its_lease_is_refused_when_it_wakes(fleet):
    flows = ("gated", "one_step")
    stale = fleet.is_up(fleet.start(*flows, lease=LEASE, concurrency=3))
    fleet.submit([gated("gate")] * 3, ["r0", "r1", "r2"])
    until(lambda: len(fleet.lines(pid=stale.pid)) == 3)
    stale.stop()
    heir = fleet.is_up(fleet.start(*flows, lease=LEASE, concurrency=3))
    fleet.make("gate")
    fleet.until_all_are("done")
    before = fleet.image()
    assert [line.pid for line in fleet.lines("after")] == [heir.pid] * 3
    stale.signal(signal.SIGCONT)
    until(lambda: len(evictions(fleet, stale.pid)) == 3)
    takes_new_work(fleet, stale, [heir])
    after = fleet.image()
    assert {id: journal for id, journal in after.journals.items() if id != "more"} == before.journals
    assert {id: run for id, run in after.runs.items() if id != "more"} == before.runs
    evicted = evictions(fleet, stale.pid)
    assert sorted(run for run, _ in evicted) == ["r0", "r1", "r2"], "each once"
    assert all("taken for dead" in reason for _, reason in evicted), evicted
    assert after.kinds("r0") == ["death", "step"]
    assert_nothing_recorded_was_redone(after, fleet.log.update())


def test_a_worker_that_learns_of_its_death_by_a_claim_evicts_what_it_had_all_the_same(fleet):
    """With free slots it asks for more as soon as it wakes, long before its next renewal."""
    flows, options = ("gated_here", "one_step"), {"lease": 4.0, "stall_max": 1.0, "concurrency": 5}
    stale = fleet.is_up(fleet.start(*flows, **options))
    fleet.submit([gated_here("gate")] * 2, ["r0", "r1"])
    until(lambda: len(fleet.lines(pid=stale.pid)) == 2)
    stale.stop()
    heir = fleet.is_up(fleet.start(*flows, **options))
    fleet.make(f"gate-{heir.pid}")
    fleet.until_all_are("done")
    stale.signal(signal.SIGCONT)
    takes_new_work(fleet, stale, [heir])
    until(lambda: len(evictions(fleet, stale.pid)) == 2, 2.0)
    assert sorted(run for run, _ in evictions(fleet, stale.pid)) == ["r0", "r1"]


def test_a_stale_workers_results_are_refused_while_its_heir_still_executes(fleet):
    """Its results come in at once when it wakes, before it knows that it was taken for dead."""
    flows, options = ("three_gated_here", "one_step"), {"lease": LEASE, "stall_max": 1.0}
    stale = fleet.is_up(fleet.start(*flows, **options))
    fleet.submit([three_gated_here("gate")], ["r"])
    until(lambda: len(fleet.lines(pid=stale.pid)) == 3)
    stale.stop()
    heir = fleet.is_up(fleet.start(*flows, **options))
    until(lambda: len(fleet.lines(pid=heir.pid)) == 3)
    fleet.make(f"gate-{stale.pid}")
    stale.signal(signal.SIGCONT)
    until(lambda: len(fleet.lines("after", stale.pid)) == 3 or "taken for dead" in stale.errors())
    until(lambda: len(fleet.image().workers) == 2)  # it has come back under another id
    fleet.make(f"gate-{heir.pid}")
    fleet.until_all_are("done")
    left = fleet.image()
    assert left.kinds("r") == ["death", "step", "step", "step"]
    assert_nothing_was_recorded_under_a_stale_fence(left)
    print(f"{len(fleet.lines('after', stale.pid))} results were refused")


def make_suspect(fleet: Fleet, *flows: str) -> None:
    """A run whose workers died before it had recorded anything."""
    fleet.make("poison")
    fleet.do(lambda app: app.submit(may_strike("poison"), id="r"), max_attempts=SUSPECT_DEATHS + 2)
    for _ in range(SUSPECT_DEATHS):
        fleet.start(*flows).wait()
    (fleet.folder / "poison").unlink()


def make_interrupted(fleet: Fleet, *flows: str) -> None:
    """A run that its worker gave back."""
    fleet.submit([gated("gate")], ["r"])
    worker = fleet.start(*flows)
    until(fleet.lines)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.errors()
    fleet.make("gate")


@pytest.mark.parametrize("make", [make_suspect, make_interrupted])
def test_a_worker_that_cannot_read_what_it_has_claimed_gives_it_back_and_goes_on(fleet, make):
    flows = ("gated", "may_strike", "one_step")
    make(fleet, *flows)
    worker = fleet.start(*flows, concurrency=1, poll=0.3, at_read="fail")
    until(lambda: {"befallen": "fail"} in worker.said())
    fleet.submit([one_step(1)], ["another"])
    fleet.until_all_are("done", seconds=15)


def test_a_worker_that_lost_a_suspect_before_it_could_begin_it_takes_new_work(fleet):
    flows = ("may_strike", "one_step")
    make_suspect(fleet, *flows)
    stale = fleet.start(*flows, lease=LEASE, at_read="stop")
    until(lambda: " (stopped)" in Path(f"/proc/{stale.pid}/status").read_text())
    heir = fleet.is_up(fleet.start(*flows, lease=LEASE))
    fleet.until_all_are("done")
    stale.signal(signal.SIGCONT)
    takes_new_work(fleet, stale, [heir])
    assert [line.pid for line in fleet.lines("after") if line.run == "r"] == [heir.pid]


def test_a_worker_whose_loop_is_blocked_loses_its_lease_and_is_evicted_when_it_wakes(fleet):
    flows, options = ("blocking", "one_step"), {"lease": LEASE, "stall_max": 1.0}
    blocked = fleet.is_up(fleet.start(*flows, **options))
    fleet.submit([blocking("gate")], ["r"])
    until(lambda: fleet.lines(pid=blocked.pid))
    heir = fleet.is_up(fleet.start(*flows, **options))
    fleet.until_all_are("done")
    assert [line.pid for line in fleet.lines("after")] == [heir.pid]
    assert "the event loop has stood still" in blocked.errors()
    before = fleet.image()
    fleet.make("gate")
    until(lambda: evictions(fleet, blocked.pid))
    takes_new_work(fleet, blocked, [heir])
    ((run, reason),) = evictions(fleet, blocked.pid)
    assert run == "r"
    assert "taken for dead" in reason
    after = fleet.image()
    assert after.journals["r"] == before.journals["r"]
    assert after.kinds("r") == ["death", "step"]


@pytest.fixture
def left_behind(fleet):
    """A child process that a worker forked, killed at the end."""
    pids = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_forked_child_neither_keeps_a_worker_alive_nor_claims(fleet, left_behind):
    flows = ("forking", "one_step")
    worker = fleet.is_up(fleet.start(*flows, lease=60))
    fleet.submit([forking()], ["r"])
    (line,) = until(lambda: fleet.lines("child"))
    left_behind.append(line.pid)
    until((fleet.folder / "inherited").exists)
    assert (fleet.folder / "inherited").read_text() == "StoreUnavailable"
    worker.kill()
    killed = time.monotonic()
    heir = fleet.is_up(fleet.start(*flows, lease=60))
    until(lambda: fleet.status("r") == "done")
    seconds = time.monotonic() - killed
    print(f"the heir had it {seconds:.2f} s after the kill; the lease is 60 s")
    assert seconds < 20
    os.kill(line.pid, 0)  # the child lives all the while
    fleet.submit([one_step(n) for n in range(10)], [f"more{n}" for n in range(10)])
    fleet.until_all_are("done")
    assert {line.pid for line in fleet.lines() if line.run != "r"} == {heir.pid}
    assert len(fleet.image().deaths()) == 1
