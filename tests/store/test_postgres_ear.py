"""The ear: rings, locks, hearts; what is dead at once, what is not, and what stays without it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from unittest import mock

import pytest
from postgres_schemas import connected, emptied, schema_of_this_process

from outlast.store.postgres import migrate
from outlast.store.postgres.address import parse
from outlast.store.postgres.ear import Ear, channel
from outlast.store.postgres.store import PostgresStore
from outlast.store.verbs import Enlist, Record, Send, Submit, Sweep

HEARTBEAT = 0.05
HOLDER = """
import sys, time
from outlast.store.postgres.store import PostgresStore
from outlast.store.verbs import Enlist, Submit
store = PostgresStore.at(sys.argv[1], heartbeat=0.05)
store.open()
store.hold("w")
store.commit([Enlist("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
print("holds", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "ear") as address:
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


def until(condition, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_commits_ring_a_few_times_and_the_last_is_heard(stores, schema) -> None:
    one, other = stores
    heard: list[float] = []
    other.listen(lambda: heard.append(time.monotonic()))
    one.hold("w")
    one.commit([Submit("r", "flow", "[]", "t", "s")])
    until(lambda: heard)
    began = time.monotonic()
    for number in range(300):
        one.commit([Send("r", "n", str(number), "1")])
    last = time.monotonic()
    until(lambda: heard and heard[-1] >= last - 0.001)
    assert len(heard) <= (last - began) / 0.01 + 20


def test_a_process_does_not_hear_itself_but_for_its_own_listeners(stores) -> None:
    store, _ = stores
    rings: list[None] = []
    store.hold("w")
    store.listen(lambda: rings.append(None))
    time.sleep(0.1)
    rings.clear()
    store.commit([Submit("r", "flow", "[]", "t", "s")])
    time.sleep(0.2)
    assert len(rings) == 1


def test_a_ring_of_one_who_has_no_ear_is_heard(stores) -> None:
    one, other = stores
    heard = threading.Event()
    other.listen(heard.set)
    time.sleep(0.1)
    one.commit([Submit("r", "flow", "[]", "t", "s")])
    assert heard.wait(5)


def test_a_killed_process_is_dead_at_once_and_its_run_goes_back(stores, schema) -> None:
    store, _ = stores
    process = subprocess.Popen([sys.executable, "-c", HOLDER, schema], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        time.sleep(10 * HEARTBEAT)
        assert store.dead_workers() == []
        process.send_signal(signal.SIGSTOP)
        time.sleep(20 * HEARTBEAT)
        assert store.dead_workers() == [], "its heart does not beat, but the lock is its own"
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: store.dead_workers() == ["w"], 5)
        (worker,) = store.workers()
        assert store.commit([Sweep()])[0].runs == ("r",)
        facts = json.loads(store.journal(store.run("r").pk)[-1].value)
        assert facts["by"] == "lock"
        assert worker.renewed + 5 * HEARTBEAT < facts["seen"] < store.now() - 20 * HEARTBEAT, (
            "when it was stopped"
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_store_that_dies_leaves_a_worker_that_is_dead_at_once(stores) -> None:
    one, other = stores
    one.hold("w")
    one.commit([Enlist("w", "host", 1, 600.0)])
    one.die()
    until(lambda: other.dead_workers() == ["w"], 5)
    assert other.commit([Sweep()])[0].workers == ("w",)


def test_a_store_that_closes_leaves_a_worker_of_which_only_the_lease_tells(stores, schema) -> None:
    one, other = stores
    one.hold("w")
    one.commit([Enlist("w", "host", 1, 600.0)])
    one.close()
    time.sleep(10 * HEARTBEAT)
    assert other.dead_workers() == []
    with connected(schema) as db:
        assert db.execute("SELECT count(*) FROM presence").fetchone() == (0,)


def test_who_loses_its_session_again_and_again_is_not_dead(stores, schema) -> None:
    _, other = stores
    store = PostgresStore.at(schema, heartbeat=0.2)
    store.open()
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 600.0)])
    with connected(schema) as db:
        for _ in range(6):
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
            for _ in range(5):
                assert other.dead_workers() == []
                time.sleep(0.06)
        key = f"key_{migrate.version()}('worker', 'w')"
        mine = f"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = {key}"
        until(lambda: db.execute(mine).fetchone() is not None)
    store.close()


def test_an_old_beat_of_another_servers_time_says_nothing(stores, schema) -> None:
    """After a clean restart the table is there, and nobody has a lock yet."""
    store, _ = stores
    store.commit([Enlist("w", "host", 1, 600.0)])
    with connected(schema) as db:
        put = "INSERT INTO presence (worker, beat, every, server) VALUES ('w', 0, 0.05, pg_postmaster_start_time() - interval '1 s')"
        db.execute(put)
        assert store.dead_workers() == []
        db.execute("UPDATE presence SET server = pg_postmaster_start_time()")
        assert store.dead_workers() == ["w"]
        db.execute("DELETE FROM presence")
        assert store.dead_workers() == []


def test_a_name_of_a_channel_fits_whatever_the_schema_is_called() -> None:
    assert len(channel("x" * 63)) < 64
    assert channel("a") != channel("b")


def test_the_time_is_the_servers(stores, schema) -> None:
    store, _ = stores
    with connected(schema) as db:
        (now,) = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert abs(store.now() - now) < 0.5
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
    row = store.run("r")
    assert row is not None
    assert abs(row.created - now) < 5
    store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
    assert abs(store.now() - time.time()) < 5


class Gate:
    """Between a store and its server: who connects waits for `seconds`, and finds nobody if `shut`."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/.s.PGSQL.5432"
        self.seconds, self.shut = 0.0, False
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    def _open(self) -> None:
        with suppress(OSError):  # closed
            while True:
                guest, _ = self._door.accept()
                threading.Thread(target=self._lead, args=(guest,), daemon=True).start()

    def _lead(self, guest: socket.socket) -> None:
        time.sleep(self.seconds)
        with guest, socket.socket(socket.AF_UNIX) as host:
            if self.shut:
                return
            host.connect(self._path)
            back = threading.Thread(target=self._pass, args=(guest, host), daemon=True)
            back.start()
            self._pass(host, guest)
            back.join()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while said := one.recv(65536):
                other.sendall(said)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._door.close()


@pytest.fixture
def gate(postgres_server) -> Iterator[Gate]:
    gate = Gate(parse(postgres_server.url).options["host"])
    yield gate
    gate.close()


def cut_ears(schema: str) -> None:
    with connected(schema) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("trouble", ["slow to connect", "a long read", "a long read and nobody let in"])
def test_a_worker_whose_ear_is_cut_lives_on(stores, schema, gate, trouble) -> None:
    """Over whatever connection it has left that is free."""
    _, other = stores
    store = PostgresStore.at(
        f"postgresql://postgres@127.0.0.1:{gate.port}/postgres?schema={parse(schema).schema}"
    )
    store.open()
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
    store.run("r")  # now it has a connection to read
    reading = threading.Thread(target=lambda: store._read("SELECT pg_sleep(2.5)"))
    if trouble != "slow to connect":
        reading.start()
    gate.seconds, gate.shut = 2.5 if trouble == "slow to connect" else 0.0, "nobody" in trouble
    cut_ears(schema)
    until_then = time.monotonic() + 2.2
    while time.monotonic() < until_then:
        assert other.dead_workers() == []
        time.sleep(0.05)
    assert other.commit([Sweep()])[0].workers == ()
    gate.shut = False
    if reading.ident:
        reading.join(10)
    store.close()


def test_with_every_connection_busy_the_heart_makes_one_of_its_own(stores, schema, gate) -> None:
    _, other = stores
    store = PostgresStore.at(
        f"postgresql://postgres@127.0.0.1:{gate.port}/postgres?schema={parse(schema).schema}"
    )
    store.open()
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 600.0)])
    with store._writing, store._reading, mock.patch.object(store._ear, "_session", side_effect=OSError):
        cut_ears(schema)
        for _ in range(25):
            assert other.dead_workers() == []
            time.sleep(0.05)
    store.close()


def test_who_was_let_go_is_not_brought_back_by_a_beat(stores, schema) -> None:
    store, other = stores
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 600.0)])
    store.let_go("w")
    with connected(schema) as db:
        until(lambda: db.execute("SELECT count(*) FROM presence").fetchone() == (0,))
        assert store._beat_writing(["w"])
        assert db.execute("SELECT count(*) FROM presence").fetchone() == (0,)
    assert other.dead_workers() == []


def test_a_killed_process_is_dead_within_a_second(stores, schema) -> None:
    """The best of several: what it takes, whatever else the machine does."""
    assert any(seconds_until_missed(stores[0], schema) < 0.95 for _ in range(4))


def seconds_until_missed(store, schema) -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER.replace("0.05", "0.2"), schema], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        time.sleep(0.5)
        process.kill()
        killed = time.monotonic()
        until(lambda: store.dead_workers() == ["w"], 20)
        seconds = time.monotonic() - killed
        store.commit([Sweep()])
        return seconds
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_ring_that_comes_in_the_middle_of_a_beat_is_heard(stores, schema, monkeypatch):
    """psycopg takes what comes in while a statement is under way out of the connection."""
    beat = Ear._beat

    def slow(self, locked):
        self._db.execute("SELECT pg_sleep(0.2)")
        return beat(self, locked)

    monkeypatch.setattr(Ear, "_beat", slow)
    rung = threading.Event()
    stores[0].listen(rung.set)
    stores[0].hold("w")
    with connected(schema) as db:
        for _ in range(5):
            time.sleep(0.03)
            rung.clear()
            db.execute("SELECT pg_notify(%s, '')", (channel(parse(schema).schema),))
            assert rung.wait(10)
