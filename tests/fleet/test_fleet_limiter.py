"""A fleet that shares a limiter: an outside provider never sees more than the limit in any window."""

import os
import random
from collections import Counter

import pytest
from fleet_flows import limited
from fleet_tools import Fleet

from support.seeds import seeded_random
from support.waiting import wait_until

KILLS = max(2, int(os.environ.get("OUTLAST_TEST_KILLS", "8")) // 4)
LIMIT, PERIOD = 8, 1.0
RUNS, CALLS = 10, 2


def calls_of(fleet: Fleet) -> list[tuple[str, float]]:
    """Return which run called the provider, and when."""
    path = fleet.folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    words = [line.split("\t") for line in lines if line.startswith("asked")]
    return [(run, float(at)) for _, _, run, at in words]


def most_in_a_window(times: list[float]) -> int:
    return max(sum(begin <= at < begin + PERIOD for at in times) for begin in times)


@pytest.mark.timeout(300 + KILLS * 30)
@pytest.mark.parametrize("workers", [3, pytest.param(20, marks=pytest.mark.extended)])
def test_provider_never_sees_more_than_the_limit_while_workers_are_killed(fleet, workers):
    rng = seeded_random("limiter kills")
    fleet.start_many(workers, "limited", poll=0.1)
    count = RUNS * workers // 3
    fleet.submit([limited(CALLS)] * count, [f"r{number}" for number in range(count)])
    for number in range(KILLS):
        enough = (number + 1) * 4
        wait_until(lambda enough=enough: len(calls_of(fleet)) >= enough)
        kill_one(fleet, rng)
        fleet.replace_the_dead("limited", poll=0.1)
    fleet.until_all_are("done")
    calls = calls_of(fleet)
    assert most_in_a_window([at for _, at in calls]) <= LIMIT
    by_run = Counter(run for run, _ in calls)
    assert len(by_run) == count
    assert min(by_run.values()) >= CALLS
    # A death repeats at most the call that it cut off.
    assert len(calls) <= count * CALLS + KILLS * 4


def kill_one(fleet: Fleet, rng: random.Random) -> None:
    rng.choice(fleet.workers).kill()
