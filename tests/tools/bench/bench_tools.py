"""Start `outlast bench` as a process, and see what it and others have in the store."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from outlast.store.address import store_at
from outlast.store.commands import (
    Claim,
    DeregisterWorker,
    Record,
    RegisterWorker,
    Release,
    Settle,
    Submit,
)
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.tools.bench.names import QUEUE
from support.processes import Program, clean_environment

SHORT_BENCH = Path(__file__).parent / "programs" / "short_bench.py"
QUICK = (0.02, 0.03, 0.05)
"""Shares of the time for commits, one run and a hundred runs: the shortest bench that measures everything."""
COMMITS, LONE_RUN, HUNDRED_RUNS = (1, 0, 0), (0, 1, 0), (0, 0, 1)
"""A bench that comes to this part at once and stays there."""


def started(
    address: str,
    folder: Path,
    *words: object,
    shares: Sequence[float] = QUICK,
    kills: int = 1,
    at_work: float = 0.02,
    **env: str,
) -> Program:
    """Start a bench. It is killed when the `with` block ends."""
    parts = json.dumps({"shares": shares, "kills": kills, "at_work": at_work})
    return Program.python(
        SHORT_BENCH,
        parts,
        "bench",
        "--store",
        address,
        *words,
        folder=folder,
        env=clean_environment(**env),
    )


@contextmanager
def opened(address: str) -> Iterator[Store]:
    store = store_at(address)
    store.open()
    with closing(store):
        yield store


def made(address: str) -> str:
    """Create the store and return its address."""
    with opened(address):
        return address


def runs_of_benches(store: Store) -> list[RunRow]:
    return store.runs(RunQuery(queue=QUEUE, items=False, limit=10_000))


def others_work(store: Store) -> None:
    """Write runs of others in every state, one of them an item in the bench's own queue."""
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", os.getpid(), 60.0)])
    for id in ("queued", "done", "failed", "returned", "parked"):
        store.commit([Submit(id, "flow", "{}", f"t-{id}", "seed")])
    store.commit([Submit("item", "", "{}", "t-item", "seed", queue=QUEUE)])
    rows = store.commit([Claim("w", "token", ("done", "failed", "returned", "parked"), limit=9)])[0]
    by_id = {row.id: row for row in rows}
    store.commit(
        [Record(row.pk, 1, row.fence, "step", "s#1", store.now(), value="1") for row in rows]
    )
    for status in ("done", "failed", "parked"):
        store.commit([Settle(by_id[status].pk, by_id[status].fence, status)])
    store.commit([Release(by_id["returned"].pk, by_id["returned"].fence, "its worker drains")])
    store.commit([DeregisterWorker("w")])
    store.release_liveness("w")


def others_seen(store: Store) -> dict[str, Any]:
    """Return all runs of others with their journals."""
    rows = [row for row in store.runs(RunQuery(limit=10_000)) if not row.id.startswith(QUEUE)]
    return {row.id: (row, store.journal(row.pk)) for row in rows}


def nothing_is_left(store: Store) -> None:
    """Check that the store has no trace of a bench."""
    assert runs_of_benches(store) == []
    assert store.workers() == []
    assert store.drains() == []
    assert store.measured() == []


def members_of(pid: int) -> list[int]:
    """Return the pids of the workers that this bench has started."""
    words = f"outlast.tools.chaos.worker_main\0{pid}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if words in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def document(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
