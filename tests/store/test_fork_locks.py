"""A fork does not wait in the child for a lock that a thread of its parent held."""

import os
import signal
from uuid import uuid4

import pytest

from outlast.store.address import store_at
from support.postgres_schemas import schema_of_this_process
from support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def ends_in_child(event) -> bool:
    """Fork as if a thread that waits for the event had its lock. Return whether the child ends."""
    with event._cond:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    ended = False

    def has_ended() -> bool:
        nonlocal ended
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        return ended

    try:
        wait_until(has_ended)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return ended


def opened(address: str):
    store = store_at(address)
    store.open()
    store.acquire_liveness("w")
    return store


def test_child_does_not_wait_for_the_heartbeat_of_a_sqlite_store(tmp_path) -> None:
    store = opened(f"sqlite:///{tmp_path}/outlast.db")
    assert ends_in_child(store._liveness._stop)
    store.close()


def test_child_does_not_wait_for_the_heartbeat_of_a_postgres_store(postgres_server) -> None:
    with schema_of_this_process(postgres_server.url, "locks") as address:
        store = opened(address)
        assert ends_in_child(store._liveness._heartbeat._stop)
        store.close()


def test_child_does_not_wait_for_the_listener_of_a_redis_store(redis_server) -> None:
    store = opened(f"{redis_server.url}?prefix={uuid4().hex}")
    assert ends_in_child(store._listener._stop)
    store.close()
