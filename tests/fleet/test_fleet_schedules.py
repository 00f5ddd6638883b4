"""Schedules of a fleet whose workers are killed and frozen: each time starts exactly one run."""

import os
import random
from collections import defaultdict

import pytest
from fleet_flows import one_step
from fleet_tools import Fleet

from outlast.api.schedule import scheduled_time
from support.seeds import seeded_random

FAULTS = max(4, int(os.environ.get("OUTLAST_TEST_KILLS", "6")) // 4)
WORKERS = 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("schedules", "firings"),
    [(2, 4 * FAULTS), pytest.param(10, 1_000, marks=pytest.mark.extended)],
)
def test_each_time_starts_one_run_while_workers_are_killed_and_frozen(fleet, schedules, firings):
    """Several schedules fire every second, so that a thousand firings take two minutes."""
    rng = seeded_random("schedule faults")
    fleet.start_many(WORKERS, "one_step", poll=0.1)
    names = [f"tick-{number}" for number in range(schedules)]

    async def set_all(app):
        for name in names:
            await app.schedule(name, one_step(1), every=1, overlap="allow", catch_up=1_000)

    async def pause_all(app):
        for name in names:
            await app.pause_schedule(name)

    fleet.do(set_all)
    for number in range(1, FAULTS + 1):
        enough = firings * number // FAULTS
        fleet.wait_for_statuses(lambda counts, enough=enough: counts["done"] >= enough)
        strike(fleet, rng)
        fleet.replace_the_dead("one_step", poll=0.1)
    for worker in fleet.workers:
        worker.resume()
    fleet.do(pause_all)
    fleet.until_all_are("done")
    assert_one_run_a_second(fleet, names, firings)


def strike(fleet: Fleet, rng: random.Random) -> None:
    """Kill one worker, or freeze one and wake the others."""
    for worker in fleet.workers:
        worker.resume()
    victim = rng.choice(fleet.workers)
    if rng.random() < 0.5:
        victim.kill()
    else:
        victim.pause()


def assert_one_run_a_second(fleet: Fleet, names: list[str], firings: int) -> None:
    """Fail if a time has no run, or a run executed its step again after it was recorded."""
    left = fleet.image()
    times: dict[str, list[float]] = defaultdict(list)
    for id in left.runs:
        times[id.rpartition("@")[0]].append(scheduled_time(id).timestamp())
        assert left.kinds(id).count("step") == 1
    assert sorted(times) == sorted(names)
    assert len(left.runs) >= firings
    for found in times.values():
        found.sort()
        assert found == [found[0] + number for number in range(len(found))]
