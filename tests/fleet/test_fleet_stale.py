"""Workers that were paused, blocked or forked: a run has one owner, and a worker that lost it writes nothing more."""

import json
import os
from collections import Counter

import pytest
from fleet_flows import blocking, forking, gated, gated_here, may_strike, one_step, three_gated_here
from fleet_tools import (
    SETTINGS,
    Fleet,
    assert_nothing_recorded_was_redone,
    assert_nothing_was_recorded_under_a_stale_fence,
)
from process_tools import Program

from outlast.store.rows import SUSPECT_DEATHS
from support.processes import is_running, kill_quietly
from support.waiting import WAIT_SECONDS, wait_until

LEASE_SECONDS = 20.0
"""For the worker that is to lose its runs. No other worker is open while it still executes."""
STALE = {"lease": LEASE_SECONDS, "clock": True}
RACERS = 50 if "OUTLAST_TEST_KILLS" in os.environ else 8
RACES = 10


def test_one_of_many_racing_processes_executes_each_run(fleet):
    options = {**SETTINGS, "heartbeat": 2.0, "poll": 5.0}
    fleet.spawn("racers.py", RACERS, json.dumps(options))
    wait_until(lambda: len(list(fleet.folder.glob("up-*"))) == RACERS)

    async def race(app):
        for n in range(RACES):
            run = await app.submit(one_step(n), id=f"r{n}")
            assert await run.result(timeout=WAIT_SECONDS) == n + 1

    fleet.do(race)
    starts = Counter(line.run for line in fleet.lines())
    assert starts == {f"r{n}": 1 for n in range(RACES)}
    left = fleet.image()
    assert {run["lives"] for run in left.runs.values()} == {1}, "claimed once"
    assert all(left.kinds(id) == ["step"] for id in left.runs)
    print(f"{len({line.pid for line in fleet.lines()})} of {RACERS} got any")


def pause_past_its_lease(fleet: Fleet, stale: Program) -> None:
    stale.pause()
    fleet.let_lease_run_out(LEASE_SECONDS)


def evictions(fleet: Fleet, pid: int) -> list[tuple[str, str]]:
    """Return (run, reason) of every eviction in a process."""
    return [
        (line.run, line.when.removeprefix("evicted: "))
        for line in fleet.log.of(pid)
        if line.when.startswith("evicted: ")
    ]


def takes_new_work(fleet: Fleet, worker, others) -> None:
    """Check that a worker that was taken for dead works again, under another id."""
    for other in others:
        other.kill()

    async def more(app):
        await (await app.submit(one_step(1), id="more")).result(timeout=WAIT_SECONDS)

    fleet.do(more)
    assert [line.pid for line in fleet.lines() if line.run == "more"] == [worker.pid]


def test_worker_paused_past_its_lease_is_evicted_when_it_resumes(fleet):
    flows = ("gated", "one_step")
    fleet.set_clock(0.0)
    fleet.submit([gated("gate")] * 3, ["r0", "r1", "r2"])
    stale = fleet.start(*flows, **STALE, concurrency=3)
    wait_until(lambda: len(fleet.lines(pid=stale.pid)) == 3)
    pause_past_its_lease(fleet, stale)
    successor = fleet.is_up(fleet.start(*flows, clock=True, concurrency=3))
    fleet.make("gate")
    fleet.until_all_are("done")
    before = fleet.image()
    assert [line.pid for line in fleet.lines("after")] == [successor.pid] * 3
    stale.resume()
    wait_until(lambda: len(evictions(fleet, stale.pid)) == 3)
    takes_new_work(fleet, stale, [successor])
    after = fleet.image()
    assert {
        id: journal for id, journal in after.journals.items() if id != "more"
    } == before.journals
    assert {id: run for id, run in after.runs.items() if id != "more"} == before.runs
    evicted = evictions(fleet, stale.pid)
    assert sorted(run for run, _ in evicted) == ["r0", "r1", "r2"], "each once"
    assert all("considered dead" in reason for _, reason in evicted), evicted
    assert after.kinds("r0") == ["death", "step"]
    assert_nothing_recorded_was_redone(after, fleet.log.update())


def test_worker_that_learns_of_its_death_by_a_refused_claim_evicts_its_runs(fleet):
    """With free slots it claims as soon as it resumes, long before its next renewal."""
    flows, options = ("gated_here", "one_step"), {"concurrency": 5}
    fleet.set_clock(0.0)
    fleet.submit([gated_here("gate")] * 2, ["r0", "r1"])
    stale = fleet.start(*flows, **STALE, stall_max=1.0, **options)
    wait_until(lambda: len(fleet.lines(pid=stale.pid)) == 2)
    pause_past_its_lease(fleet, stale)
    successor = fleet.is_up(fleet.start(*flows, clock=True, **options))
    fleet.make(f"gate-{successor.pid}")
    fleet.until_all_are("done")
    stale.resume()
    takes_new_work(fleet, stale, [successor])
    wait_until(lambda: len(evictions(fleet, stale.pid)) == 2)
    assert sorted(run for run, _ in evictions(fleet, stale.pid)) == ["r0", "r1"]


def test_results_of_a_stale_worker_are_refused_while_the_new_owner_executes(fleet):
    """The results arrive as soon as it resumes, before it knows that it was taken for dead."""
    flows = ("three_gated_here", "one_step")
    fleet.set_clock(0.0)
    fleet.submit([three_gated_here("gate")], ["r"])
    stale = fleet.start(*flows, **STALE, stall_max=1.0)
    wait_until(lambda: len(fleet.lines(pid=stale.pid)) == 3)
    pause_past_its_lease(fleet, stale)
    successor = fleet.is_up(fleet.start(*flows, clock=True))
    wait_until(lambda: len(fleet.lines(pid=successor.pid)) == 3)
    fleet.make(f"gate-{stale.pid}")
    stale.resume()
    wait_until(
        lambda: len(fleet.lines("after", stale.pid)) == 3 or "considered dead" in stale.errors
    )
    fleet.wait_until(lambda: len(fleet.image().workers) == 2)  # it works again under another id
    fleet.make(f"gate-{successor.pid}")
    fleet.until_all_are("done")
    left = fleet.image()
    assert left.kinds("r") == ["death", "step", "step", "step"]
    assert_nothing_was_recorded_under_a_stale_fence(left)
    print(f"{len(fleet.lines('after', stale.pid))} results were refused")


def make_suspect(fleet: Fleet, *flows: str) -> None:
    """Make a run whose workers died before it had recorded anything."""
    fleet.make("poison")
    fleet.do(lambda app: app.submit(may_strike("poison"), id="r"), max_attempts=SUSPECT_DEATHS + 2)
    for _ in range(SUSPECT_DEATHS):
        fleet.start(*flows).wait()
    (fleet.folder / "poison").unlink()


def make_interrupted(fleet: Fleet, *flows: str) -> None:
    """Make a run that its worker released."""
    fleet.submit([gated("gate")], ["r"])
    worker = fleet.start(*flows)
    wait_until(fleet.lines)
    fleet.end(worker)
    fleet.make("gate")


@pytest.mark.parametrize("make", [make_suspect, make_interrupted])
def test_worker_that_cannot_read_a_claimed_run_releases_it_and_works_on(fleet, make):
    flows = ("gated", "may_strike", "one_step")
    make(fleet, *flows)
    worker = fleet.start(*flows, concurrency=1, poll=0.3, at_read="fail")
    wait_until(lambda: {"befallen": "fail"} in worker.messages)
    fleet.submit([one_step(1)], ["another"])
    fleet.until_all_are("done")


def test_worker_that_lost_a_suspect_before_it_began_takes_new_work(fleet):
    flows = ("may_strike", "one_step")
    make_suspect(fleet, *flows)
    fleet.set_clock(0.0)
    stale = fleet.start(*flows, **STALE, at_read="stop")
    stale.wait_until_stopped()
    fleet.let_lease_run_out(LEASE_SECONDS)
    successor = fleet.is_up(fleet.start(*flows, clock=True))
    fleet.until_all_are("done")
    stale.resume()
    fleet.wait_until(lambda: len(fleet.image().workers) == 2)  # it knows, and has another id
    fleet.make("known")
    takes_new_work(fleet, stale, [successor])
    assert [line.pid for line in fleet.lines("after") if line.run == "r"] == [successor.pid]


def test_worker_whose_event_loop_is_blocked_loses_its_lease(fleet):
    flows = ("blocking", "one_step")
    fleet.set_clock(0.0)
    fleet.submit([blocking("gate")], ["r"])
    blocked = fleet.start(*flows, **STALE, stall_max=1.0)
    blocked.wait_until(lambda: "The event loop has been blocked" in blocked.errors)
    fleet.let_lease_run_out(LEASE_SECONDS)
    successor = fleet.is_up(fleet.start(*flows, clock=True))
    fleet.until_all_are("done")
    assert [line.pid for line in fleet.lines("after")] == [successor.pid]
    before = fleet.image()
    fleet.make("gate")
    wait_until(lambda: evictions(fleet, blocked.pid))
    takes_new_work(fleet, blocked, [successor])
    ((run, reason),) = evictions(fleet, blocked.pid)
    assert run == "r"
    assert "considered dead" in reason
    after = fleet.image()
    assert after.journals["r"] == before.journals["r"]
    assert after.kinds("r") == ["death", "step"]


@pytest.fixture
def left_behind(fleet):
    """Collect the pids of processes that a worker forked, and kill them at the end."""
    pids = []
    yield pids
    for pid in pids:
        kill_quietly(pid)


def test_forked_child_neither_keeps_a_worker_alive_nor_claims(fleet, left_behind):
    """The lease is ten minutes, so the takeover cannot be due to its end."""
    flows = ("forking", "one_step")
    worker = fleet.is_up(fleet.start(*flows, lease=600))
    fleet.submit([forking()], ["r"])
    (line,) = wait_until(lambda: fleet.lines("child"))
    left_behind.append(line.pid)
    wait_until((fleet.folder / "inherited").exists)
    assert (fleet.folder / "inherited").read_text() == "StoreUnavailable"
    worker.kill()
    successor = fleet.is_up(fleet.start(*flows))
    fleet.wait_until(lambda: fleet.status("r") == "done")
    assert is_running(line.pid)
    fleet.submit([one_step(n) for n in range(10)], [f"more{n}" for n in range(10)])
    fleet.until_all_are("done")
    assert {line.pid for line in fleet.lines() if line.run != "r"} == {successor.pid}
    assert len(fleet.image().deaths()) == 1
