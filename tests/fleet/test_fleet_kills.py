"""Workers are killed at random: every run ends exactly once, and no recorded step is repeated.

OUTLAST_TEST_KILLS=200 is the full form: 100 kills among 1,000 runs.
"""

import os
import random
import sqlite3
import time

import pytest
from fleet_flows import hanging, mixed, tidy_gated
from fleet_tools import Fleet, assert_nothing_recorded_was_redone
from process_tools import Program

from support.seeds import seeded_random
from support.waiting import wait_until

KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "6")) // 2
RUNS = KILLS * 10
WORKERS = 3
FLOWS = ("mixed", "chain")


@pytest.mark.timeout(600 + KILLS * 20)
def test_every_run_ends_exactly_once_when_workers_are_killed(fleet):
    rng = seeded_random("fleet kills")
    deaths: set[tuple[str, str]] = set()
    options = {"concurrency": 5}
    fleet.start_many(WORKERS, *FLOWS, **options)
    calls, ids = [mixed(n) for n in range(RUNS)], [f"r{n}" for n in range(RUNS)]
    # A run that is killed alone again and again cannot be told from poison, so it has many attempts.
    fleet.do(lambda app: app.submit_many(calls, ids=ids), max_attempts=20)
    for number in range(KILLS):
        share = (number + 0.5) / (KILLS + 1)
        fleet.wait_for_statuses(lambda counts, share=share: counts["done"] >= share * RUNS)
        time.sleep(rng.uniform(0, 0.2))  # a random moment
        deaths |= kill_one(fleet, rng)
        fleet.replace_the_dead(*FLOWS, **options)
    fleet.until_all_are("done")
    left = fleet.image()
    lines = fleet.log.update()
    assert {id: run["value"] for id, run in left.runs.items() if run["parent"] is None} == {
        f"r{n}": str(n + 7) for n in range(RUNS)
    }
    assert_nothing_recorded_was_redone(left, lines)
    assert left.deaths() == sorted(deaths), (
        "each death is once in the journal of each run that the worker held"
    )
    assert sum(run["deaths"] for run in left.runs.values()) == len(deaths)
    bodies = sum(line.when == "before" for line in lines)
    print(
        f"{RUNS} runs, {KILLS} kills, {len(deaths)} deaths of runs, {bodies} bodies for {len(left.recorded())} steps"
    )


def test_idle_worker_that_died_is_removed(fleet):
    idle, successor = fleet.start_many(2, *FLOWS)
    assert len(fleet.image().workers) == 2
    idle.kill()
    fleet.wait_until(
        lambda: {worker["pid"] for worker in fleet.image().workers.values()} == {successor.pid}
    )


@pytest.mark.parametrize("how", ["its time is up", "killed meanwhile"])
def test_run_whose_worker_dies_while_closing_is_interrupted(fleet, how):
    patience = 0.3 if how == "its time is up" else 60.0
    victim = fleet.is_up(fleet.start("hanging", close_timeout=patience))
    fleet.submit([hanging("gate")], ["r"])
    wait_until(lambda: fleet.lines(pid=victim.pid))
    victim.terminate()
    if how == "killed meanwhile":
        fleet.wait_until(lambda: fleet.ask("SELECT 1 FROM workers WHERE draining"))
        victim.kill()
    victim.wait()
    fleet.make("gate")
    fleet.start("hanging")
    fleet.until_all_are("done")
    left = fleet.image()
    assert left.kinds("r") == ["interruption", "step"]
    assert left.runs["r"]["deaths"] == 0


def test_run_being_cancelled_when_its_worker_dies_is_cancelled_by_the_next(fleet):
    victim = fleet.is_up(fleet.start("tidy_gated"))
    fleet.submit([tidy_gated("gate")], ["r"])
    wait_until(lambda: fleet.lines(pid=victim.pid))
    victim.pause()
    assert fleet.do(lambda app: app.cancel("r", "enough")) == "running"
    victim.kill()
    successor = fleet.start("tidy_gated")
    fleet.until_all_are("cancelled")
    assert [line.pid for line in fleet.lines()] == [victim.pid], (
        "no step is started for a run that is being cancelled"
    )
    assert [line.pid for line in fleet.lines("told")] == [successor.pid]


def kill_one(fleet: Fleet, rng: random.Random) -> set[tuple[str, str]]:
    """Kill a worker that holds runs, if any does. Return what it held as (run, worker)."""
    workers = rng.sample(fleet.workers, len(fleet.workers))
    for worker in workers:
        worker.pause()
        try:
            held = holds(fleet, worker)
        except sqlite3.OperationalError:  # paused inside a commit, which keeps readers out
            worker.resume()
            return kill_one(fleet, rng)
        if held or worker is workers[-1]:
            worker.kill()
            # A commit in progress may have ended since, or the worker may have been swept.
            now = holds(fleet, worker)
            return (held or set()) if now is None else now
        worker.resume()
    raise AssertionError("the loop returns at the last worker")


def holds(fleet: Fleet, worker: Program) -> set[tuple[str, str]] | None:
    """Return what a worker holds, or None if there is no such worker."""
    found = fleet.ask(
        "SELECT runs.id, workers.id FROM workers LEFT JOIN runs ON runs.worker = workers.id WHERE workers.pid = ?",
        worker.pid,
    )
    return {(run, id) for run, id in found if run is not None} if found else None
