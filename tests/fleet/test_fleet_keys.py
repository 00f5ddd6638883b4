"""A fleet on a queue with a limit per key: never exceeded, and no key is starved.

How many runs of a key execute is judged by the log that their steps write outside the store. Whether
a key had to wait too long is judged by the times of claims and ends, which are the store's.
"""

import os
from collections import Counter
from typing import Any, NamedTuple

import pytest
from fleet_flows import one_step
from fleet_tools import Fleet

from outlast import Outlast
from support.seeds import seeded_random

KILLS = max(3, int(os.environ.get("OUTLAST_TEST_KILLS", "8")) // 4)
LIMIT = 2
SLOTS = 4
KEYS = 6
LARGE = 5
"""How many times more runs the first key has than any other."""


@pytest.mark.timeout(300 + KILLS * 30)
@pytest.mark.parametrize(
    ("workers", "runs"), [(4, 12), pytest.param(50, 60, marks=pytest.mark.extended)]
)
def test_a_key_never_executes_more_than_its_limit_and_none_is_starved(fleet, workers, runs):
    rng = seeded_random("key kills")
    keys = ["k0"] * runs * LARGE + [f"k{number}" for number in range(1, KEYS)] * runs

    async def submit(app: Outlast) -> None:
        await app.queue("default").limit(per_key_concurrency=LIMIT)
        calls = [one_step(1, 0.02)] * len(keys)
        ids = [f"{key}-{number}" for number, key in enumerate(keys)]
        await app.submit_many(calls, ids=ids, keys=keys)

    fleet.do(submit)
    fleet.start_many(workers, "one_step", poll=0.1, concurrency=SLOTS)
    for number in range(1, KILLS + 1):
        enough = len(keys) * number // (KILLS + 1)
        fleet.wait_for_statuses(lambda counts, enough=enough: counts["done"] >= enough)
        kill_noted(fleet, rng.choice(fleet.workers))
        fleet.replace_the_dead("one_step", poll=0.1, concurrency=SLOTS)
    fleet.until_all_are("done")
    most = most_at_once(fleet)
    assert set(most) == {f"k{number}" for number in range(KEYS)}
    assert set(most.values()) == {LIMIT}, "each key uses its limit, and none exceeds it"
    assert longest_wait(fleet) <= 2 * (KEYS + SLOTS)


def kill_noted(fleet: Fleet, worker: Any) -> None:
    """Kill a worker, and say so in the log before another one can take over its runs.

    While it is stopped it still has its lock, so nobody takes it for dead.
    """
    worker.pause()
    with (fleet.folder / "log").open("a") as log:
        log.write(f"killed\t{worker.pid}\n")
    worker.kill()


def most_at_once(fleet: Fleet) -> Counter[str]:
    """Return the largest number of runs of each key that executed at the same time."""
    under_way: dict[tuple[int, str], str] = {}
    most: Counter[str] = Counter()
    for line in fleet.log.update():
        if line.when == "before":
            key = line.run.partition("-")[0]
            under_way[line.pid, line.run] = key
            most[key] = max(most[key], sum(one == key for one in under_way.values()))
        elif line.when == "after":
            del under_way[line.pid, line.run]
        elif line.when == "killed":
            for pid, run in list(under_way):
                if pid == line.pid:
                    del under_way[pid, run]
    return most


class Span(NamedTuple):
    """What the store knows of a run."""

    key: str
    claimed: float
    ended: float


def longest_wait(fleet: Fleet) -> int:
    """Return the most runs of other keys that were claimed while a key had a free slot and work.

    A run that died counts as executing until its end, so such a key seems to have no free slot.
    """
    rows = fleet.ask("SELECT key, started, ended FROM runs ORDER BY started")
    runs = [Span(*row) for row in rows]
    longest = 0
    for key in {run.key for run in runs}:
        own = [run for run in runs if run.key == key]
        for number, run in enumerate(own[1:], 1):
            before = own[:number]
            ends = sorted(one.ended for one in before)
            # It had a free slot from the end that left fewer than the limit.
            free = max(before[-1].claimed, ends[number - LIMIT] if number >= LIMIT else 0.0)
            waited = sum(free < one.claimed < run.claimed for one in runs if one.key != key)
            longest = max(longest, waited)
    return longest
