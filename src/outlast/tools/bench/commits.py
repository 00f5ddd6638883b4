"""Measure one durable commit with the smallest command of a store."""

from __future__ import annotations

import time

from outlast.store.commands import Renew
from outlast.tools.bench.figures import Spread
from outlast.tools.bench.guest import LEASE, Guest

WARM_UP = 10
COUNT_MIN = 10


def commits(guest: Guest, seconds: float) -> Spread:
    """Measure renewals of the guest's own lease: a durable row that notifies no other process."""
    laps: list[float] = []
    command = Renew(guest.worker, LEASE)
    for _ in range(WARM_UP):
        guest.store.commit([command])
    until = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until or len(laps) < COUNT_MIN:
        guest.store.commit([command])
        laps.append(time.perf_counter() - begin)
    return Spread.of(laps)
