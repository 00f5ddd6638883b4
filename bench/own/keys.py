"""Claims with keys: what it costs to let 100, 10,000 or 100,000 keys take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.own.fleet import enlist
from outlast.store.address import store_at
from outlast.store.commands import Claim, SetQueueLimits, Settle, Submit, SubmitMany
from outlast.store.protocol import Store
from outlast.testing.servers import postgres_server, redis_server

SIZES = (0, 100, 10_000, 100_000)
LAPS = 120
LIMIT = 20
SUBMITTED = 10_000
"""How many runs are submitted in one transaction."""
REVIEWED = 1_000
"""How many changes of keys a claim reviews."""


def keys(folder: Path) -> dict[str, float]:
    return _measure(f"sqlite:///{folder}/keys.db")


def postgres_keys(folder: Path) -> dict[str, float]:
    with postgres_server(folder, durable=True) as server:
        return _measure(server.url)


def redis_keys(folder: Path) -> dict[str, float]:
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        return _measure(server.url)


def _measure(address: str) -> dict[str, float]:
    """Claim and settle 20 runs at a time, from a queue of each size in turn, in one store.

    Each key may execute five runs at once. The median of the laps counts. Filling a queue is not
    measured, nor are the first claims, which review the keys of the runs that were added.
    """
    with closing(store_at(address)) as store:
        store.open()
        enlist(store)
        laps: dict[int, list[float]] = {size: [] for size in SIZES}
        claims = {size: _filled(store, size) for size in SIZES}
        for _ in range(LAPS):
            for size, claim in claims.items():
                start = time.perf_counter()
                claim()
                laps[size].append(time.perf_counter() - start)
    return {
        f"claims_per_second_{size}": LIMIT / statistics.median(found)
        for size, found in laps.items()
    }


def _filled(store: Store, size: int) -> Callable[[], None]:
    """Fill a queue with runs of this many keys. Return a claim of some that settles them."""
    queue, turn = f"keys-{size}", 0
    count = max(2 * size, (LAPS + 2) * LIMIT)
    if size:
        store.commit(
            [SetQueueLimits(queue, None, None, key_concurrency_max=5, keep_key_concurrency=False)]
        )
    for first in range(0, count, SUBMITTED):
        runs = [
            Submit(
                f"{queue}-{n}", "flow", "{}", "t", "s", queue, key=f"k{n % size}" if size else None
            )
            for n in range(first, min(first + SUBMITTED, count))
        ]
        store.commit([SubmitMany(tuple(runs))])

    def claim(limit: int = LIMIT) -> None:
        nonlocal turn
        turn += 1
        (rows,) = store.commit([Claim("w", f"{queue}-{turn}", (), (queue,), ("flow",), limit)])
        assert len(rows) == limit
        store.commit([Settle(row.pk, row.fence, "done") for row in rows])

    for _ in range(2 * size // REVIEWED + 2):
        claim(1)
    return claim
