"""The store is away, or the machine is suspended, for longer than a lease: no worker is charged, every run ends.

The tests move the workers' clock past the lease instead of waiting for it.
"""

import pytest
from fleet_flows import chain
from fleet_tools import assert_nothing_recorded_was_redone

from support.waiting import wait_until

WORKERS, RUNS = 3, 9
OPTIONS = {"clock": True, "heartbeat": 0.3, "concurrency": 2, "poll": 0.5}
LONGER_THAN_A_LEASE = 100.0


def start_work(fleet) -> None:
    fleet.set_clock(0.0)
    fleet.submit([chain(0, 6, 0.2) for _ in range(RUNS)], [f"r{n}" for n in range(RUNS)])


def assert_no_worker_was_charged(fleet) -> None:
    left = fleet.image()
    assert {run["value"] for run in left.runs.values()} == {"6"}
    assert len(left.runs) == RUNS
    assert left.deaths() == []
    assert {run["deaths"] for run in left.runs.values()} == {0}
    assert_nothing_recorded_was_redone(left, fleet.log.update())


def everything_waits_for_the_store(fleet) -> bool:
    return len(fleet.lines("before")) == len(fleet.lines("after"))


@pytest.mark.parametrize("patience", [120.0, 0.5], ids=["patient writers", "writers that give up"])
def test_store_away_for_longer_than_a_lease_charges_no_worker(file_fleet, patience):
    """Writers that give up say so. Patient ones say nothing, but no step begins before the last is recorded."""
    start_work(file_fleet)
    file_fleet.start_many(WORKERS, "chain", store_patience=patience, lease=20.0, **OPTIONS)
    wait_until(lambda: len(file_fleet.lines("after")) >= WORKERS)
    locker = file_fleet.spawn("locker.py")
    locker.wait_for_message("locked")
    assert file_fleet.statuses()["done"] < RUNS, "there is work in progress"
    file_fleet.set_clock(LONGER_THAN_A_LEASE)
    wait_until(lambda: everything_waits_for_the_store(file_fleet))
    for worker in file_fleet.workers if patience < 1 else []:
        worker.wait_until(lambda: "Gave up writing" in worker.errors)
    file_fleet.make("unlock")
    assert locker.result() == "unlocked"
    file_fleet.until_all_are("done")
    assert_no_worker_was_charged(file_fleet)
    assert not any(worker.has_ended for worker in file_fleet.workers)


def test_machine_suspended_for_longer_than_a_lease_charges_no_worker(fleet):
    start_work(fleet)
    fleet.start_many(WORKERS, "chain", **OPTIONS)
    wait_until(lambda: len(fleet.lines("after")) >= WORKERS)
    for worker in fleet.workers:
        worker.pause()
    assert fleet.statuses()["running"]
    fleet.set_clock(LONGER_THAN_A_LEASE)
    for worker in fleet.workers:
        worker.resume()
    fleet.until_all_are("done")
    assert_no_worker_was_charged(fleet)
