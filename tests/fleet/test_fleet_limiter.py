"""A fleet that shares a limiter: an outside provider never sees more than the limit in any window.

Nor is the provider idle while there is room. How long that was is counted by the ticks that all
workers write into the same log, so a machine that is slow counts slowly.
"""

import os
import random
from collections import Counter
from statistics import median

import pytest
from fleet_flows import limited
from fleet_tools import Fleet

from outlast.engine.limiter_state import SLICES, margin_of
from support.seeds import seeded_random
from support.waiting import wait_until

KILLS = max(2, int(os.environ.get("OUTLAST_TEST_KILLS", "8")) // 4)
LIMIT, PERIOD = 8, 1.0
RUNS, CALLS = 10, 2
TICK = PERIOD / 10
IDLE_TICKS_MAX = 40
"""How many ticks a worker may write while there is room and work. A worker that was killed had reserved
a call, which counts for a period, and its runs are taken over."""


def calls_of(fleet: Fleet) -> list[tuple[str, float]]:
    """Return which run called the provider, and when."""
    path = fleet.folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    words = [line.split("\t") for line in lines if line.startswith("asked")]
    return [(run, float(at)) for _, _, run, at in words]


def longest_idle(fleet: Fleet) -> float:
    """Return the most ticks per worker between two calls, from when there was room for the second.

    By the limiter's promise, an amount counts for a period, the slice that it is in, and the time
    within which its use may begin.
    """
    counts_for = PERIOD * (1 + 1 / SLICES) + margin_of(PERIOD)
    lines = [line.split("\t") for line in (fleet.folder / "log").read_text().splitlines()]
    ticks = [
        (int(pid), float(at)) for word, pid, at in (line for line in lines if line[0] == "tick")
    ]
    calls = sorted(at for _, at in calls_of(fleet))
    longest = 0.0
    for number, at in enumerate(calls[1:], 1):
        full = number - LIMIT
        room = max(calls[number - 1], calls[full] + counts_for if full >= 0 else 0.0)
        seen = Counter(pid for pid, tick in ticks if room < tick < at)
        longest = max(longest, median(seen.values()) if seen else 0.0)
    return longest


def most_in_a_window(times: list[float]) -> int:
    return max(sum(begin <= at < begin + PERIOD for at in times) for begin in times)


@pytest.mark.timeout(300 + KILLS * 30)
@pytest.mark.parametrize("workers", [3, pytest.param(50, marks=pytest.mark.extended)])
def test_provider_never_sees_more_than_the_limit_while_workers_are_killed(fleet, workers):
    rng = seeded_random("limiter kills")
    fleet.start_many(workers, "limited", poll=0.1, tick=TICK)
    count = RUNS * workers // 3
    fleet.submit([limited(CALLS)] * count, [f"r{number}" for number in range(count)])
    for number in range(KILLS):
        enough = (number + 1) * 4
        wait_until(lambda enough=enough: len(calls_of(fleet)) >= enough)
        kill_one(fleet, rng)
        fleet.replace_the_dead("limited", poll=0.1, tick=TICK)
    fleet.until_all_are("done")
    calls = calls_of(fleet)
    assert most_in_a_window([at for _, at in calls]) <= LIMIT
    assert longest_idle(fleet) <= IDLE_TICKS_MAX
    by_run = Counter(run for run, _ in calls)
    assert len(by_run) == count
    assert min(by_run.values()) >= CALLS
    # A death repeats at most the call that it cut off.
    assert len(calls) <= count * CALLS + KILLS * 4


def kill_one(fleet: Fleet, rng: random.Random) -> None:
    rng.choice(fleet.workers).kill()
