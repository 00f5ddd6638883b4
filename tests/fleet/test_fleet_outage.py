"""The store gone, or the whole machine stopped, for longer than a lease: nobody is charged with a death, everything ends."""

import signal
import time

import pytest
from fleet_flows import chain
from fleet_tools import assert_nothing_recorded_was_redone, until

LEASE = 3.0


def assert_nobody_was_charged(fleet, runs: int) -> None:
    left = fleet.image()
    assert {run["value"] for run in left.runs.values()} == {"6"}
    assert len(left.runs) == runs
    assert left.deaths() == []
    assert {run["deaths"] for run in left.runs.values()} == {0}
    assert_nothing_recorded_was_redone(left, fleet.log.update())


@pytest.mark.parametrize(
    ("count", "patience"), [(20, 30.0), (4, 0.5)], ids=["patient writers", "writers that give up"]
)
def test_a_store_that_is_away_for_longer_than_a_lease_costs_nobody_a_death(file_fleet, count, patience):
    options = {
        "lease": LEASE,
        "heartbeat": 0.5,
        "concurrency": 2,
        "store_patience": patience,
        "poll": 0.5,
    }
    file_fleet.start_many(count, "chain", **options)
    runs = count * 3
    file_fleet.submit([chain(0, 6, 0.2) for _ in range(runs)], [f"r{n}" for n in range(runs)])
    until(lambda: len(file_fleet.lines("after")) >= count)
    locker = file_fleet.spawn("locker.py", LEASE * 1.5)
    until(lambda: "locked" in locker.said())
    away = time.monotonic()
    assert file_fleet.statuses()["done"] < runs, "there is work under way"
    assert locker.result() == "unlocked"
    print(f"away for {time.monotonic() - away:.1f} s")
    file_fleet.until_all_are("done")
    assert_nobody_was_charged(file_fleet, runs)
    assert not any(worker.ended for worker in file_fleet.workers)


def test_a_machine_that_was_suspended_for_longer_than_a_lease_costs_nobody_a_death(fleet):
    count, runs = 6, 18
    fleet.start_many(count, "chain", lease=LEASE, heartbeat=0.5, concurrency=2)
    fleet.submit([chain(0, 6, 0.2) for _ in range(runs)], [f"r{n}" for n in range(runs)])
    until(lambda: len(fleet.lines("after")) >= count)
    for worker in fleet.workers:
        worker.stop()
    held = fleet.statuses()["running"]
    assert held
    time.sleep(LEASE * 1.3)  # how long it was away: nothing is waited for
    assert fleet.statuses()["running"] == held
    for worker in fleet.workers:
        worker.signal(signal.SIGCONT)
    fleet.until_all_are("done")
    assert_nobody_was_charged(fleet, runs)
