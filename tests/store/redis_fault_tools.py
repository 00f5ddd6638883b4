"""Servers, commits and faults for the tests of the Redis store."""

from contextlib import contextmanager

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import (
    Record,
    RegisterWorker,
    Submit,
)
from outlast.store.protocol import CommitUnknown
from support.waiting import wait_until

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always", "--hz", "100")
"""Durable, and ten times as quick to see the signal that ends it."""


@contextmanager
def opened(url, **options):
    store = store_at(url, **options)
    store.open()
    try:
        yield store
    finally:
        store.close()


def held(store, id="r", worker="w"):
    store.commit([RegisterWorker(worker, "host", 1, 600.0)])
    return store.commit([Submit(id, "flow", "[]", f"t-{id}", "seed", worker=worker)])[0].row


def step(row, seq, value="1"):
    return Record(row.pk, seq, row.fence, "step", f"flow/step#{seq}", 1.0, value=value)


def persist(store, commands):
    """Commit as the writer does: repeat until the outcome is definite."""
    unknown = False

    def outcomes():
        nonlocal unknown
        try:
            if unknown:
                store.recover()
            return store.commit(commands)
        except (StoreUnavailable, CommitUnknown) as error:
            unknown = unknown or isinstance(error, CommitUnknown)
            return None

    return wait_until(outcomes)
