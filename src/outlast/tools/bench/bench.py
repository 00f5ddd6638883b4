"""A bench, from its first commit to the last run deleted."""

from __future__ import annotations

import asyncio
import time

from outlast.settings.load import Loaded
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.tools.bench.commits import commits
from outlast.tools.bench.figures import Figures
from outlast.tools.bench.guest import guest
from outlast.tools.bench.limits import limits
from outlast.tools.bench.recovery import recovery
from outlast.tools.bench.steps import lone_and_hundred

SHARES = (1 / 6, 1 / 3, 1 / 2)
"""Of the time: for commits, the lone run, a hundred at once."""


def bench(loaded: Loaded, seconds: float) -> Figures:
    """Steps are measured for so long; recovery takes what it takes, some seconds. From the main thread. However it ends, its runs are deleted, but
    for a kill -9: then by the next one. The store is opened by one part after the other, since a file: store has one process at a time."""
    address, settings = loaded.address(), loaded.settings
    began = time.monotonic()

    def store() -> Store:
        return store_at(address, heartbeat=settings.heartbeat)

    of_commits, of_lone, of_hundred = (seconds * share for share in SHARES)
    with guest(store(), settings) as here:
        place = here.store.place
        commit = commits(here, of_commits)
    try:
        lone, hundred = asyncio.run(lone_and_hundred(address, (of_lone, of_hundred)))
    finally:
        with guest(store(), settings):
            pass  # it clears
    with guest(store(), settings) as here:
        recovered = recovery(here, address)
    found = limits(address, commit, lone, hundred)
    return Figures(place, time.monotonic() - began, commit, lone, hundred, recovered, found)
