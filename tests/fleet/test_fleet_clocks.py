"""Move the clocks by an hour, forward and back: no worker is charged, work goes on, the dead are found."""

import pytest
from fleet_flows import chain, gated
from fleet_tools import assert_nothing_recorded_was_redone

from support.waiting import wait_until

LEASE_SECONDS, LONG_LEASE_SECONDS = 20.0, 600.0
"""The lease of the worker that dies, and of the one that lives on while the clock passes the end of the other."""
HOUR = 3600.0
FLOWS = ("chain", "gated")
OPTIONS = {"clock": True, "heartbeat": 0.3, "concurrency": 4, "poll": 0.5}


@pytest.mark.parametrize(
    "jumps", [(HOUR, 0.0), (-HOUR, 0.0)], ids=["forward and back", "back and forward"]
)
def test_clock_jumps_charge_no_worker_and_work_continues(fleet, jumps):
    fleet.set_clock(0.0)
    fleet.start_many(2, *FLOWS, **OPTIONS)
    runs = 12
    fleet.submit([chain(n, 6, 0.05) for n in range(runs)], [f"r{n}" for n in range(runs)])
    for number, jump in enumerate(jumps, 1):
        wait_until(lambda: len(fleet.lines("after")) >= number * 24)
        fleet.set_clock(jump)
    fleet.until_all_are("done")
    left = fleet.image()
    assert {id: run["value"] for id, run in left.runs.items()} == {
        f"r{n}": str(n + 6) for n in range(runs)
    }
    assert left.deaths() == []
    assert_nothing_recorded_was_redone(left, fleet.log.update())


@pytest.mark.parametrize(("how", "jump"), [("killed", HOUR), ("paused", -HOUR), ("paused", HOUR)])
def test_dead_worker_is_found_after_a_clock_jump(fleet, jump, how):
    fleet.set_clock(0.0)
    fleet.submit([gated("gate")] * 8, [f"r{n}" for n in range(8)])
    first = fleet.start(*FLOWS, **OPTIONS, lease=LEASE_SECONDS)
    wait_until(lambda: len(fleet.lines(pid=first.pid)) == 4)
    (dead_id,) = fleet.image().workers
    first.pause()
    (second,) = fleet.start_many(1, *FLOWS, **OPTIONS, lease=LONG_LEASE_SECONDS)
    wait_until(lambda: len(fleet.lines(pid=second.pid)) == 4)
    fleet.set_clock(jump)
    if how == "killed":
        first.kill()
    fleet.let_lease_run_out(LEASE_SECONDS)
    fleet.make("gate")
    fleet.until_all_are("done")
    left = fleet.image()
    assert {line.pid for line in fleet.lines("after")} == {second.pid}
    assert {worker for _, worker in left.deaths()} == {dead_id}, "no other worker is charged"
    assert len(left.deaths()) == 4
    first.kill()
