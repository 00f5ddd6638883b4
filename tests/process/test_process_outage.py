"""The store is away for longer than `store_patience`: the program ends, and its run is not charged with a death."""

import sqlite3
from contextlib import closing, contextmanager

import pytest

from outlast.store.address import store_at
from outlast.store.file.store import FileStore
from outlast.store.protocol import whole_journal
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing import servers
from outlast.testing.conformance.harness import ManualClock, StoreDriver
from outlast.testing.store_hooks import kill
from support.clocks import MovableClock, let_lease_run_out
from support.waiting import wait_until

LEASE_SECONDS = 600
ENV = {
    "OUTLAST_LEASE": str(LEASE_SECONDS),
    "OUTLAST_MAX_ATTEMPTS": "1",
    "OUTLAST_HEARTBEAT": "0.1",
}
# The program's clock passes a minute in a few seconds once the store is away.
IMPATIENT = {**ENV, "OUTLAST_STORE_PATIENCE": "60"}


@contextmanager
def postgres(tmp_path):
    with servers.postgres_server(tmp_path) as server:
        yield server.url, server.stop, server.start


@contextmanager
def redis(tmp_path):
    with servers.redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server.url, server.stop, server.start


@contextmanager
def sqlite(tmp_path):
    path = tmp_path / "o.db"
    held = []

    def stop() -> None:
        held.append(sqlite3.connect(path, isolation_level=None))
        held[0].execute("BEGIN EXCLUSIVE")

    yield f"sqlite:///{path}", stop, lambda: held.pop().close()


@contextmanager
def opened(address):
    store = store_at(address)
    store.open()
    with closing(store):
        yield store


@pytest.mark.parametrize("place", [postgres, redis, sqlite])
def test_program_that_ends_because_its_store_is_away_is_not_charged_with_a_death(
    tmp_path, spawn, place
):
    with place(tmp_path) as (store, stop, start):
        with opened(store):  # no call of the program's has to create the tables
            pass
        first = spawn("outage.py", store, env=IMPATIENT)
        first.wait_for_message("begins")
        stop()
        (tmp_path / "go").touch()
        assert "unavailable" in first.result(), first.describe()
        start()
        if place is not sqlite:  # there a lock file tells that the program has ended
            let_lease_run_out(store, MovableClock(tmp_path), LEASE_SECONDS)
        second = spawn("outage.py", store, env=ENV)
        assert second.result() == 1, second.describe()
        assert second.messages == ["begins", 1]
        with opened(store) as found:
            row = found.run("outage")
            assert "death" not in [entry.kind for entry in whole_journal(found, row.pk)]
            assert (row.status, row.deaths, row.interruptions) == ("done", 0, 1)


@pytest.mark.parametrize("kind", [SQLiteStore, FileStore])
@pytest.mark.parametrize("ends", ["close", "die"])
def test_worker_that_closed_without_leaving_is_told_from_one_that_died(tmp_path, kind, ends):
    clock = ManualClock()
    driver = StoreDriver(kind(tmp_path / "store", clock=clock), clock)
    driver.store.open()
    driver.held("r", "w1", attempts_max=1)
    if ends == "close":
        driver.store.close()
    else:
        kill(driver.store)
    again = StoreDriver(kind(tmp_path / "store", clock=clock), clock)
    again.store.open()
    with closing(again.store):
        wait_until(again.store.dead_workers)
        again.sweep()
        row = again.row("r")
        assert (row.status, row.deaths, row.interruptions) == (
            ("queued", 0, 1) if ends == "close" else ("dead", 1, 0)
        )
        again.store.release_liveness("w1")
