"""On Postgres a worker is dead when it holds no lock and its heartbeat has stopped, and only then."""

import inspect
import json
import threading
import time
from collections.abc import Iterator
from unittest import mock

import psycopg
import pytest

from outlast.store.commands import Record, RegisterWorker, Submit, Sweep
from outlast.store.postgres import migrate
from outlast.store.postgres.store import PostgresStore
from outlast.testing.store_hooks import kill
from support.fault_proxy import FaultProxy, proxied_store
from support.postgres_schemas import connected, emptied, schema_of_this_process
from support.processes import Program
from support.waiting import WAIT_SECONDS, wait_until

HEARTBEAT = 0.05
HOLDER = """
import sys, time
from outlast.store.postgres.store import PostgresStore
from outlast.store.commands import RegisterWorker, Submit
store = PostgresStore.at(sys.argv[1], heartbeat=0.05)
store.open()
store.acquire_liveness("w")
store.commit([RegisterWorker("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
print("holds", flush=True)
time.sleep(600)
"""
BUSY = 6074
"""The key of an advisory lock that a read waits for."""


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "liveness") as address:
        yield address


@pytest.fixture
def stores(schema) -> Iterator[list[PostgresStore]]:
    emptied(schema)
    opened = [PostgresStore.at(schema, heartbeat=HEARTBEAT) for _ in range(2)]
    for store in opened:
        store.open()
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def proxied(postgres_server) -> Iterator[tuple[FaultProxy, PostgresStore, psycopg.Connection]]:
    """A store behind a proxy whose worker `w` lives, and a session past the proxy."""
    with proxied_store(postgres_server.url) as (proxy, through, direct):
        store = PostgresStore.at(through)
        store.call_timeout = WAIT_SECONDS
        store.open()
        store.acquire_liveness("w")
        store.commit(
            [RegisterWorker("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")]
        )
        store.run("r")  # it has a connection for reads from now on
        with connected(direct) as db:
            yield proxy, store, db
        proxy.heal()
        store.close()


def beat_of(db: psycopg.Connection) -> float | None:
    row = db.execute("SELECT beat FROM presence WHERE worker = 'w'").fetchone()
    return None if row is None else row[0]


def wait_for_beats(db: psycopg.Connection, count: int = 3) -> None:
    """Wait until the worker has renewed its heartbeat `count` times."""
    for _ in range(count):
        before = beat_of(db)
        wait_until(lambda before=before: beat_of(db) != before)


def seconds(db: psycopg.Connection) -> float:
    return db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()[0]


def holders(db: psycopg.Connection) -> set[int]:
    """The backends that hold the lock of the worker `w`."""
    key = f"key_{migrate.version()}('worker', 'w')"
    found = db.execute(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
        f" AND (classid::bigint << 32 | objid::bigint) = {key}"
    )
    return {pid for (pid,) in found}


def cut_listeners(db: psycopg.Connection) -> None:
    """End every session that holds a worker's lock."""
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks"
        " WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid <> pg_backend_pid()"
    )


def test_killed_process_is_dead_and_its_run_is_released(stores, schema, tmp_path) -> None:
    store, _ = stores
    with Program.python("-c", HOLDER, schema, folder=tmp_path) as holder, connected(schema) as db:
        holder.wait_for_line("holds")
        (worker,) = store.workers()
        wait_until(lambda: beat_of(db) > worker.renewed + 5 * HEARTBEAT)
        assert store.dead_workers() == []
        holder.pause()
        wait_until(lambda: seconds(db) > beat_of(db) + migrate.GRACE_SECONDS + 0.2)
        assert store.dead_workers() == [], "its heartbeat has stopped, but it still holds its lock"
        holder.kill()
        wait_until(lambda: store.dead_workers() == ["w"])
        last_beat = beat_of(db)
        assert store.commit([Sweep()])[0].runs == ("r",)
        facts = json.loads(store.journal(store.run("r").pk)[-1].value)
        assert facts["by"] == "lock"
        assert worker.renewed <= facts["seen"] < last_beat + 0.001


def test_worker_without_a_lock_is_dead_after_three_missed_heartbeats(stores, schema) -> None:
    store, _ = stores
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    with connected(schema) as db:
        db.execute(
            "INSERT INTO presence (worker, beat, every, server) VALUES ('w', %s, 1000, pg_postmaster_start_time())",
            (seconds(db) - 2000,),
        )
        assert store.dead_workers() == []
        db.execute("UPDATE presence SET beat = beat - 1001")
        assert store.dead_workers() == ["w"]


def test_default_heartbeat_reveals_a_death_within_a_second() -> None:
    heartbeat = inspect.signature(PostgresStore.at).parameters["heartbeat"].default
    assert max(3 * heartbeat, migrate.GRACE_SECONDS) < 1.0


def test_worker_of_a_store_that_died_is_dead(stores) -> None:
    one, other = stores
    one.acquire_liveness("w")
    one.commit([RegisterWorker("w", "host", 1, 600.0)])
    kill(one)
    wait_until(lambda: other.dead_workers() == ["w"])
    assert other.commit([Sweep()])[0].workers == ("w",)


def test_worker_of_a_closed_store_lives_until_its_lease_ends(stores, schema) -> None:
    one, other = stores
    one.acquire_liveness("w")
    one.commit([RegisterWorker("w", "host", 1, 600.0)])
    one.close()
    with connected(schema) as db:
        wait_until(lambda: beat_of(db) is None)
    assert other.dead_workers() == []


def test_worker_that_loses_its_session_repeatedly_is_not_dead(stores, schema) -> None:
    _, other = stores
    store = PostgresStore.at(schema, heartbeat=60.0)
    store.open()
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    with connected(schema) as db:
        wait_until(lambda: holders(db))
        for _ in range(4):
            before = holders(db)
            cut_listeners(db)
            assert other.dead_workers() == []
            wait_until(lambda before=before: holders(db) - before)
            assert other.dead_workers() == []
    store.close()


def test_heartbeat_from_before_a_server_restart_proves_nothing(stores, schema) -> None:
    """After a clean restart the table is there, and no worker has its lock yet."""
    store, _ = stores
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    with connected(schema) as db:
        db.execute(
            "INSERT INTO presence (worker, beat, every, server)"
            " VALUES ('w', 0, 0.05, pg_postmaster_start_time() - interval '1 s')"
        )
        assert store.dead_workers() == []
        db.execute("UPDATE presence SET server = pg_postmaster_start_time()")
        assert store.dead_workers() == ["w"]
        db.execute("DELETE FROM presence")
        assert store.dead_workers() == []


def test_store_uses_the_time_of_the_server(stores, schema, monkeypatch) -> None:
    store, _ = stores
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 1e6)  # a client whose clock is far ahead
    with connected(schema) as db:
        began = seconds(db)
        store.acquire_liveness("w")
        store.commit(
            [RegisterWorker("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")]
        )
        row = store.run("r")
        store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
        assert began <= row.created <= seconds(db)
        assert abs(store.now() - seconds(db)) < WAIT_SECONDS


@pytest.mark.parametrize(
    "trouble",
    ["new connections hang", "a read is under way", "new connections hang and a read is under way"],
)
def test_heartbeat_continues_after_its_session_is_cut(proxied, trouble) -> None:
    """It beats over another connection that is free."""
    proxy, store, db = proxied
    db.execute("SELECT pg_advisory_lock(%s)", (BUSY,))
    reading = threading.Thread(
        target=lambda: store._read(f"SELECT pg_advisory_xact_lock({BUSY})::text")
    )
    if "read" in trouble:
        reading.start()
        waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: db.execute(waits).fetchone())
    proxy.silent = "hang" in trouble
    before = holders(db)
    cut_listeners(db)
    wait_until(lambda: not holders(db) & before)
    wait_for_beats(db)
    if proxy.silent:
        assert holders(db) == set(), "the beats came without a new session"
    proxy.heal()
    db.execute("SELECT pg_advisory_unlock(%s)", (BUSY,))
    if reading.ident:
        reading.join(WAIT_SECONDS)


def test_heartbeat_connects_itself_while_every_connection_is_busy(proxied) -> None:
    _, store, db = proxied
    with (
        store._writing,
        store._reading,
        mock.patch.object(store._listener, "_session", side_effect=OSError),
    ):
        cut_listeners(db)
        wait_until(lambda: not holders(db))
        wait_for_beats(db)
        assert holders(db) == set()


def test_heartbeat_does_not_bring_back_a_released_worker(stores, schema) -> None:
    store, other = stores
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    store.release_liveness("w")
    with connected(schema) as db:
        wait_until(lambda: beat_of(db) is None)
        wait_until(lambda: store._beat_writing(["w"]))
        assert beat_of(db) is None
    assert other.dead_workers() == []
