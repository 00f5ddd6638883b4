"""Random workflows that crash at random writes end like undisturbed ones.

OUTLAST_TEST_PROPERTY_CASES is the number of cases on the virtual clock. A fifteenth of them run on each real
event loop and on a file, a twenty-fifth on each other store. OUTLAST_TEST_PROPERTY_SEED is the first seed.
OUTLAST_TEST_PROPERTY_SEED=<seed> OUTLAST_TEST_PROPERTY_CASES=1 repeats a failure, whose seed is in the test's id.
"""

import asyncio
import os
import random

import pytest
import uvloop
from programs import Maker

from outlast.testing import crash_everywhere
from support.crash_stores import LEASE_SECONDS, STORES, new_places

CASES = int(os.environ.get("OUTLAST_TEST_PROPERTY_CASES", "12"))
FIRST = int(os.environ.get("OUTLAST_TEST_PROPERTY_SEED", "1000"))
BLOCK = 10 if CASES > 10 else 1
"""Seeds per test: one test for each would cost more than its work."""

VIRTUAL = range(FIRST, FIRST + CASES, BLOCK)
REAL = range(FIRST, FIRST + max(1, CASES // 15))
FEW = range(FIRST, FIRST + max(1, CASES // 25))
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def broken(seed: int, error: BaseException) -> str:
    return f"OUTLAST_TEST_PROPERTY_SEED={seed} OUTLAST_TEST_PROPERTY_CASES=1: {type(error).__name__}: {error}"


@pytest.mark.parametrize("first", VIRTUAL)
@pytest.mark.parametrize("store", ["memory:"])
def test_generated_workflow_survives_crashes_on_the_virtual_clock(first, store):
    for seed in range(first, min(first + BLOCK, FIRST + CASES)):
        dice = random.Random(seed)
        try:
            crash_everywhere(
                Maker(seed).call(),
                store=store,
                seed=seed if seed % 2 else None,
                writes=sorted(dice.sample(range(1, 25), 3)),
                every_life=seed % 3 == 0,
            )
        except Exception as error:
            pytest.fail(broken(seed, error))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, CASES // 15)))
def test_generated_workflow_survives_crashes_on_a_file(seed):
    dice = random.Random(seed)
    crash_everywhere(
        Maker(seed).call(), store="sqlite", writes=[dice.randint(1, 20)], every_life=seed % 2 == 0
    )


@pytest.fixture(scope="module", params=STORES)
def places(request):
    with new_places(request, request.param) as new_place:
        yield new_place


@pytest.mark.parametrize("seed", FEW)
def test_generated_workflow_survives_crashes_on_every_store(seed, places):
    dice = random.Random(seed)
    writes = sorted(dice.sample(range(1, 20), 1 if CASES < 25 else 2))
    crash_everywhere(
        Maker(seed).call(),
        store=places,
        writes=writes,
        every_life=seed % 2 == 0,
        lease=LEASE_SECONDS,
    )


@pytest.mark.parametrize("seed", REAL)
@pytest.mark.parametrize("loop", LOOPS)
def test_generated_workflow_survives_crashes_in_real_time(seed, loop):
    dice = random.Random(seed)
    crash_everywhere(Maker(seed, unit=0.01).call(), writes=[dice.randint(1, 12)], loop=LOOPS[loop])
