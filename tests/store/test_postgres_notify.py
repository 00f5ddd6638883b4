"""A commit on Postgres wakes the processes that listen, through LISTEN and NOTIFY."""

import threading
import time
from collections.abc import Iterator

import pytest

from outlast.store.commands import Send, Submit
from outlast.store.postgres.address import parse
from outlast.store.postgres.listener import Listener
from outlast.store.postgres.notifier import NOTIFY_SECONDS, channel_of
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import connected, emptied, schema_of_this_process
from support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "notify") as address:
        yield address


@pytest.fixture
def stores(schema) -> Iterator[list[PostgresStore]]:
    emptied(schema)
    opened = [PostgresStore.at(schema, heartbeat=0.05) for _ in range(2)]
    for store in opened:
        store.open()
    yield opened
    for store in opened:
        store.close()


def notifications_of(store: PostgresStore) -> list[float]:
    """Listen, and return the times of the notifications from now on. The first says that the store listens."""
    notifications: list[float] = []
    store.listen(lambda: notifications.append(time.monotonic()))
    wait_until(lambda: notifications)
    notifications.clear()
    return notifications


def test_many_commits_notify_rarely_and_the_last_is_heard(stores) -> None:
    one, other = stores
    heard = notifications_of(other)
    one.acquire_liveness("w")
    one.commit([Submit("r", "flow", "[]", "t", "s")])
    wait_until(lambda: heard)
    began = time.monotonic()
    for number in range(100):
        last = time.monotonic()
        one.commit([Send("r", "n", str(number), "1")])
    wait_until(lambda: heard[-1] >= last)
    assert len(heard) <= (time.monotonic() - began) / NOTIFY_SECONDS + 20


def test_store_hears_its_own_commit_once(stores, schema) -> None:
    store, _ = stores
    notifications = notifications_of(store)
    own_channel = channel_of(parse(schema).schema)
    with connected(schema) as db:
        db.execute(f"LISTEN {own_channel}")
        store.commit([Submit("r", "flow", "[]", "t", "s")])
        assert len(list(db.notifies(timeout=WAIT_SECONDS, stop_after=1))) == 1
        assert len(notifications) == 1
        # Notifications arrive in order: the store has skipped its own when it hears this one.
        db.execute("SELECT pg_notify(%s, '')", (own_channel,))
        wait_until(lambda: len(notifications) > 1)
    assert len(notifications) == 2


def test_commit_of_a_store_without_listeners_is_heard(stores) -> None:
    one, other = stores
    heard = notifications_of(other)
    one.commit([Submit("r", "flow", "[]", "t", "s")])
    wait_until(lambda: heard)


def test_channel_name_fits_any_schema_name() -> None:
    assert len(channel_of("x" * 63)) < 64
    assert channel_of("a") != channel_of("b")


def test_notification_during_a_heartbeat_is_heard(stores, schema, monkeypatch) -> None:
    """psycopg takes what arrives while a statement is under way out of the connection."""
    beat, beating = Listener._beat, threading.Event()

    def slow(self):
        beating.set()
        self._connection.execute("SELECT pg_sleep(0.2)")
        beat(self)

    monkeypatch.setattr(Listener, "_beat", slow)
    notified = threading.Event()
    stores[0].listen(notified.set)
    stores[0].acquire_liveness("w")
    with connected(schema) as db:
        for _ in range(3):
            beating.clear()
            assert beating.wait(WAIT_SECONDS)
            notified.clear()
            db.execute("SELECT pg_notify(%s, '')", (channel_of(parse(schema).schema),))
            assert notified.wait(WAIT_SECONDS)
