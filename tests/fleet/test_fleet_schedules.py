"""Schedules of a fleet whose workers are killed and frozen: each time starts exactly one run."""

import os
import random

import pytest
from fleet_flows import one_step
from fleet_tools import Fleet

from outlast.api.schedule import scheduled_time
from support.seeds import seeded_random

FAULTS = max(4, int(os.environ.get("OUTLAST_TEST_KILLS", "6")) // 4)
FIRINGS_BETWEEN_FAULTS = 2


@pytest.mark.timeout(300 + FAULTS * 30)
def test_each_time_starts_one_run_while_workers_are_killed_and_frozen(fleet):
    rng = seeded_random("schedule faults")
    fleet.start_many(3, "one_step", poll=0.1)
    fleet.do(
        lambda app: app.schedule("tick", one_step(1), every=1, overlap="allow", catch_up=1_000)
    )
    for number in range(FAULTS):
        enough = (number + 1) * FIRINGS_BETWEEN_FAULTS
        fleet.wait_for_statuses(lambda counts, enough=enough: counts["done"] >= enough)
        strike(fleet, rng)
        fleet.replace_the_dead("one_step", poll=0.1)
    for worker in fleet.workers:
        worker.resume()
    fleet.do(lambda app: app.pause_schedule("tick"))
    fleet.until_all_are("done")
    assert_one_run_a_second(fleet)


def strike(fleet: Fleet, rng: random.Random) -> None:
    """Kill one worker, or freeze one and wake the others."""
    for worker in fleet.workers:
        worker.resume()
    victim = rng.choice(fleet.workers)
    if rng.random() < 0.5:
        victim.kill()
    else:
        victim.pause()


def assert_one_run_a_second(fleet: Fleet) -> None:
    """Fail if a time has no run, or a run executed its step again after it was recorded."""
    left = fleet.image()
    times = sorted(scheduled_time(id).timestamp() for id in left.runs)
    assert times == [times[0] + number for number in range(len(times))]
    for id in left.runs:
        assert left.kinds(id).count("step") == 1
