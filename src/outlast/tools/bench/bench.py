"""Run a bench, from its first commit to the deletion of its last run."""

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
"""Shares of the time: commits, one run alone, a hundred runs at once."""


def bench(loaded: Loaded, seconds: float) -> Figures:
    """Measure for `seconds`, plus some seconds for recovery. Call this from the main thread.

    The bench deletes its runs however it ends. After a kill -9, the next bench deletes them. The
    parts open the store one after another, because a file: store allows one process at a time.
    """
    address = loaded.address()
    settings = loaded.settings
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
            # Entering and leaving the guest deletes the runs.
            pass
    with guest(store(), settings) as here:
        recovered = recovery(here, address)
    found = limits(address, commit, lone, hundred)
    return Figures(place, time.monotonic() - began, commit, lone, hundred, recovered, found)
