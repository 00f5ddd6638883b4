"""Random choices that a failing test can repeat."""

import os
import random
from zlib import crc32

_OWN_SEED = random.randrange(2**32)


def seed() -> str:
    """Return the seed of this run of the tests. All of xdist's workers have the same one."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    own = _OWN_SEED if run is None else crc32(run.encode())
    return os.environ.get("OUTLAST_TEST_KILL_SEED") or str(own)


def seeded_random(name: str) -> random.Random:
    """Return a generator for `name`. OUTLAST_TEST_KILL_SEED=N repeats a failure; pytest shows the seed."""
    print(f"{name}: OUTLAST_TEST_KILL_SEED={seed()}")
    return random.Random(f"{name} {seed()}")
