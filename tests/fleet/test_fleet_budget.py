"""A fleet that shares a budget: an outside provider never counts more than the limit."""

import os

import pytest
from fleet_flows import paid
from fleet_tools import Fleet

from support.seeds import seeded_random

KILLS = max(3, int(os.environ.get("OUTLAST_TEST_KILLS", "8")) // 2)
RUNS, CALLS = 6, 6
LIMIT = 12
"""The limit of `fleet_flows.SPEND`. Each call reserves 1 and takes less."""


def paid_cents(fleet: Fleet) -> list[int]:
    """Return what the provider has counted."""
    path = fleet.folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split("\t")[3]) for line in lines if line.startswith("paid")]


def total(fleet: Fleet) -> float:
    return sum(paid_cents(fleet)) / 100


@pytest.mark.timeout(300 + KILLS * 30)
def test_provider_never_counts_more_than_the_budget_while_workers_are_killed(fleet):
    rng = seeded_random("budget kills")
    fleet.start_many(3, "paid", poll=0.1)
    count = RUNS + 2 * KILLS
    fleet.submit(
        [paid(CALLS)] * count,
        [f"r{number}" for number in range(count)],
        keys=["customer"] * count,
    )
    limit, kills = LIMIT, 0
    while not fleet.all_are("done"):
        if kills < KILLS:
            # Kill while calls are in flight, or while runs are about to be parked.
            seen = len(paid_cents(fleet))
            fleet.wait_until(
                lambda seen=seen: len(paid_cents(fleet)) > seen or fleet.all_are("parked", "done")
            )
            rng.choice(fleet.workers).kill()
            kills += 1
            fleet.replace_the_dead("paid", poll=0.1)
        else:
            fleet.until_all_are("parked", "done")
        assert total(fleet) <= limit
        if fleet.all_are("parked", "done") and not fleet.all_are("done"):
            limit += LIMIT
            raised = limit
            fleet.do(lambda app, raised=raised: raise_to(app, raised))
    assert kills == KILLS
    assert total(fleet) <= limit
    # Each call was made, and a death repeats at most those that it cut off.
    assert count * CALLS <= len(paid_cents(fleet)) <= count * CALLS + KILLS * 20
    assert limit > LIMIT


async def raise_to(app, usd: float) -> None:
    await app.raise_budget("key:customer/fleet", {"usd": usd}, by="olga")
