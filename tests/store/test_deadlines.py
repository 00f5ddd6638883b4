"""Every call to a server ends, also when a connection stays open and nobody answers on it."""

import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from outlast import sync
from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import Submit
from outlast.store.deadline import time_left, until
from outlast.store.postgres import store as postgres
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import CommitUnknown, Store
from outlast.store.sqlite.store import SQLiteStore
from support.fault_proxy import FaultProxy, proxied_store

PATIENT_SECONDS = 60.0
"""The bound on calls that must succeed: a slow machine needs time."""
IMPATIENT_SECONDS = 0.2
"""The bound on calls that nobody answers. libpq adds two seconds to it for each new connection."""
ENDS_SECONDS = 90.0
"""How long a test waits for a call to end. A call without a bound would not end at all."""


def submit(id: str) -> Submit:
    return Submit(id, "flow", "[]", id, "seed")


def ends(call: Callable[..., Any], *args: Any) -> Any:
    """Make a call in a thread, and fail if it hangs."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(call, *args).result(ENDS_SECONDS)
    finally:
        pool.shutdown(wait=False)


@pytest.fixture(params=["postgres", "redis"])
def address(request) -> Iterator[tuple[FaultProxy, str]]:
    """A proxy in front of a server, and the address of an empty store behind it."""
    server = request.getfixturevalue(f"{request.param}_server").url
    with proxied_store(server) as (proxy, through, _):
        yield proxy, through


@pytest.fixture
def proxied(address) -> Iterator[tuple[FaultProxy, Store]]:
    """The same with an open store."""
    proxy, place = address
    store = store_at(place)
    store.call_timeout = PATIENT_SECONDS
    store.open()
    yield proxy, store
    proxy.speak_again()
    ends(store.close)


def bound_calls(store: Store, seconds: float) -> None:
    """Bound every call from now on, over connections that are open and over new ones."""
    store.call_timeout = seconds
    for line in (store._writer, store._reader):
        if isinstance(store, PostgresStore):
            line._seconds_max = seconds
            if line._db is not None:
                line._db.seconds_max = seconds
        else:
            line.seconds_max = seconds


def bound_open_connections(store: Store, seconds: float) -> None:
    """Bound calls over the connections that are open now, and not those over new ones."""
    for line in (store._writer, store._reader):
        if not line.is_open:
            continue
        if isinstance(store, PostgresStore):
            line._db.seconds_max = seconds
        else:
            _bound_redis(line._connection, seconds)


def _bound_redis(connection: Any, seconds: float) -> None:
    read = connection.read_response

    def read_in_time(*args: Any, **options: Any) -> Any:
        connection._sock.settimeout(seconds)
        return read(*args, **options)

    connection.read_response = read_in_time


def test_read_over_a_silent_connection_is_repeated_on_a_new_one(proxied):
    proxy, store = proxied
    store.commit([submit("r")])
    assert store.run("r").id == "r"
    before = list(proxy.links)
    bound_open_connections(store, IMPATIENT_SECONDS)
    proxy.go_silent(*before)
    assert ends(store.run, "r").id == "r"
    assert len(proxy.links) > len(before)


def test_commit_over_a_silent_connection_is_unknown_and_repeated_on_a_new_one(proxied):
    proxy, store = proxied
    store.commit([submit("a")])
    store.run("a")
    bound_calls(store, IMPATIENT_SECONDS)
    proxy.go_silent(*proxy.links)
    with pytest.raises(CommitUnknown):
        ends(store.commit, [submit("b")])
    bound_calls(store, PATIENT_SECONDS)
    bound_open_connections(store, IMPATIENT_SECONDS)  # the one for reads is still silent
    ends(store.recover)
    ends(store.commit, [submit("b")])
    assert ends(store.run, "b").id == "b"


def test_every_call_ends_while_no_connection_answers(proxied, monkeypatch):
    monkeypatch.setattr(
        postgres, "LISTING_SECONDS", IMPATIENT_SECONDS
    )  # `queues` has a bound of its own
    proxy, store = proxied
    store.commit([submit("a")])
    store.run("a")
    bound_calls(store, IMPATIENT_SECONDS)
    proxy.go_silent()
    with pytest.raises((CommitUnknown, StoreUnavailable)):
        ends(store.commit, [submit("b")])
    for call in (store.recover, store.queues, lambda: store.run("a")):
        with pytest.raises(StoreUnavailable):
            ends(call)
    proxy.speak_again()
    bound_calls(store, PATIENT_SECONDS)
    ends(store.recover)
    ends(store.commit, [submit("c")])
    assert ends(store.run, "c").id == "c"


def test_opening_ends_while_no_connection_answers(address):
    proxy, place = address
    proxy.go_silent()
    store = store_at(place)
    store.call_timeout = IMPATIENT_SECONDS
    with pytest.raises(StoreUnavailable):
        ends(store.open)


def test_deadline_of_the_caller_ends_a_call(proxied):
    """The store's own bound is an hour here: only the caller's deadline can end the read."""
    proxy, store = proxied
    ends(store.close)
    store.call_timeout = 3600.0
    store.open()
    store.run("a")
    proxy.go_silent()

    def read() -> None:
        with until(time.monotonic() + 0.2):
            store.run("a")

    with pytest.raises(StoreUnavailable):
        ends(read)


def test_opening_a_sqlite_file_waits_for_locks_no_longer_than_its_caller(tmp_path, monkeypatch):
    path, timeouts, connect = tmp_path / "outlast.db", [], sqlite3.connect

    def connect_and_note(*args: Any, timeout: float = 5.0, **options: Any) -> sqlite3.Connection:
        timeouts.append(timeout)
        return connect(*args, timeout=timeout, **options)

    with closing(SQLiteStore(path)) as first:
        first.open()
    monkeypatch.setattr(sqlite3, "connect", connect_and_note)
    store = SQLiteStore(path)
    with until(time.monotonic() + 1.0):
        store.open()
    store.close()
    assert len(timeouts) == 3  # the version, the writer and the reader
    assert max(timeouts) <= 1.0


@pytest.mark.parametrize("call", ["open", "listen"])
def test_app_opens_its_store_within_its_patience(tmp_path, monkeypatch, call):
    found, original = [], getattr(SQLiteStore, call)

    def note_time_left(*args: Any) -> None:
        found.append(time_left(math.inf))
        original(*args)

    monkeypatch.setattr(SQLiteStore, call, note_time_left)
    with sync.Outlast(f"sqlite:///{tmp_path}/outlast.db", store_patience=7):
        pass
    assert len(found) == 1
    assert found[0] <= 7
