"""Clocks that jump by an hour, forward and back: nobody is charged, the work goes on, and the truly dead are found."""

import signal
import time

import pytest
from fleet_flows import chain, gated
from fleet_tools import Fleet, assert_nothing_recorded_was_redone, until

LEASE = 3.0
HOUR = 3600.0
FLOWS = ("chain", "gated")
OPTIONS = {"clock": True, "lease": LEASE, "heartbeat": 0.3, "concurrency": 4, "poll": 0.5}


def set_clock(fleet: Fleet, seconds: float) -> None:
    """For every worker, at the same moment. (A sleep that begins at a wrong time ends by it: here nobody sleeps.)"""
    new = fleet.folder / "clock.new"
    new.write_text(str(seconds))
    new.rename(fleet.folder / "clock")


@pytest.mark.parametrize("jumps", [(HOUR, 0.0), (-HOUR, 0.0)], ids=["forward and back", "back and forward"])
def test_jumps_of_the_clock_charge_nobody_and_work_goes_on(fleet, jumps):
    set_clock(fleet, 0.0)
    fleet.start_many(3, *FLOWS, **OPTIONS)
    runs = 60
    fleet.submit([chain(n, 6, 0.02) for n in range(runs)], [f"r{n}" for n in range(runs)])
    for number, jump in enumerate(jumps, 1):
        until(lambda: len(fleet.lines("after")) >= number * 100)
        set_clock(fleet, jump)
    fleet.until_all_are("done")
    left = fleet.image()
    assert {id: run["value"] for id, run in left.runs.items()} == {f"r{n}": str(n + 6) for n in range(runs)}
    assert left.deaths() == []
    assert_nothing_recorded_was_redone(left, fleet.log.update())


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_after_a_jump_of_the_clock_the_truly_dead_are_found(fleet, jump, how):
    set_clock(fleet, 0.0)
    first, second = fleet.start_many(2, *FLOWS, **OPTIONS)
    fleet.submit([gated("gate")] * 8, [f"r{n}" for n in range(8)])
    until(lambda: len(fleet.lines(pid=first.pid)) == len(fleet.lines(pid=second.pid)) == 4)
    before = fleet.image()
    (dead_id,) = [id for id, worker in before.workers.items() if worker["pid"] == first.pid]
    set_clock(fleet, jump)
    if how == "killed":
        first.kill()
    else:
        first.stop()
    began = time.monotonic()
    fleet.make("gate")
    fleet.until_all_are("done")
    print(f"{how}: everything had ended after {time.monotonic() - began:.1f} s; the lease is {LEASE} s")
    left = fleet.image()
    assert {line.pid for line in fleet.lines("after")} == {second.pid}
    assert {worker for _, worker in left.deaths()} == {dead_id}, "nobody else is charged"
    assert len(left.deaths()) == 4
    first.signal(signal.SIGCONT)
