"""Open a store on Postgres with a run that a live worker executes."""

from collections.abc import Iterator
from contextlib import contextmanager

from outlast.store.commands import (
    RegisterWorker,
    Submit,
)
from outlast.store.postgres.store import PostgresStore


@contextmanager
def opened(address: str, heartbeat: float = 0.2) -> Iterator[PostgresStore]:
    store = PostgresStore.at(address, heartbeat=heartbeat)
    store.open()
    try:
        yield store
    finally:
        store.close()


def held(store: PostgresStore, id: str = "r"):
    """A run that a living worker executes."""
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    (submitted,) = store.commit([Submit(id, "flow", "[]", "t", "s", worker="w")])
    return submitted.row
