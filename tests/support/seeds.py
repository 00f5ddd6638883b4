"""Random choices that a failing test can repeat."""

import os
import random


def seeded_random(name: str) -> random.Random:
    """Return a generator for `name`. OUTLAST_TEST_KILL_SEED=N repeats a failure; pytest shows the seed."""
    seed = os.environ.get("OUTLAST_TEST_KILL_SEED") or str(random.randrange(2**32))
    print(f"{name}: OUTLAST_TEST_KILL_SEED={seed}")
    return random.Random(f"{name} {seed}")
