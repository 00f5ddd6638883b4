"""Processes that write one SQLite file take turns, and a stopped process does not block the others."""

import fcntl
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from store_processes import Child

from outlast.errors import StoreUnavailable
from outlast.store.commands import Submit
from outlast.store.sqlite import connection, fair_lock
from outlast.store.sqlite.store import SQLiteStore
from support.waiting import WAIT_SECONDS, wait_until

ENTER_TWICE = """
from outlast.store.sqlite import fair_lock
fair_lock.PATIENCE = 3600.0
store = SQLiteStore(sys.argv[1])
store.open()
with store._write_lock:
    say("inside")
    sys.stdin.readline()
with store._write_lock:
    say(store.run("waiting") is not None)
store.close()
"""
COMMIT_ONCE = """
from outlast.store.sqlite import fair_lock
fair_lock.PATIENCE = 0.1
store = SQLiteStore(sys.argv[1])
store.open()
say(store.commit([submit("once")])[0].new)
store.close()
"""


def submit(id: str) -> Submit:
    return Submit(id, "flow", "[]", id, "seed")


@pytest.fixture
def store(tmp_path):
    store = SQLiteStore(tmp_path / "outlast.db")
    store.open()
    yield store
    store.close()


def is_locked(path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_process_that_just_wrote_queues_behind_a_waiting_process(store, monkeypatch):
    monkeypatch.setattr(fair_lock, "PATIENCE", 3600.0)
    with Child(ENTER_TWICE, store.path) as child, ThreadPoolExecutor(1) as pool:
        assert child.line() == "inside"
        waiting = pool.submit(store.commit, [submit("waiting")])
        wait_until(lambda: is_locked(store.path.with_name("outlast.db.d") / "gate"))
        child.tell()
        assert child.line() == "True", "it entered again before the waiting process"
        assert waiting.result(WAIT_SECONDS)[0].new


STAND_IN_THE_WAY = """
from outlast.store.private_files import lock
store = SQLiteStore(sys.argv[1])
store.open()
if sys.argv[2] == "turn":
    store._write_lock.__enter__()
else:
    assert lock(store._write_lock._gate)
say("inside")
sys.stdin.readline()
"""


@pytest.mark.parametrize("where", ["gate", "turn"])
def test_process_stopped_inside_the_fair_lock_does_not_block_others(store, where, monkeypatch):
    monkeypatch.setattr(fair_lock, "PATIENCE", 0.1)
    with Child(STAND_IN_THE_WAY, store.path, where) as child:
        assert child.line() == "inside"
        os.kill(child.pid, signal.SIGSTOP)
        with Child(COMMIT_ONCE, store.path) as other:
            assert other.line() == "True"
        assert store.commit([submit("r")])[0].new
        os.kill(child.pid, signal.SIGCONT)


@pytest.mark.parametrize("where", ["gate", "turn"])
def test_writers_do_not_wait_for_a_process_killed_inside_the_fair_lock(store, where, monkeypatch):
    monkeypatch.setattr(fair_lock, "PATIENCE", 3600.0)  # to wait for it at all would hang the test
    with Child(STAND_IN_THE_WAY, store.path, where) as child:
        assert child.line() == "inside"
        child.kill()
        assert store.commit([submit("r")])[0].new


def test_store_is_unavailable_while_a_process_is_stopped_inside_a_transaction(
    tmp_path, monkeypatch
):
    """The stopped process holds SQLite's own lock, so nobody can write."""
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
store._write_lock.__enter__()
store._db.execute("BEGIN IMMEDIATE")
say("inside")
sys.stdin.readline()
store._db.execute("COMMIT")
store._write_lock.__exit__()
say("outside")
sys.stdin.readline()
"""
    monkeypatch.setattr(fair_lock, "PATIENCE", 0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "BUSY_SECONDS", 0.1)
        store = SQLiteStore(tmp_path / "outlast.db")
        store.open()
    try:
        with Child(script, store.path) as child:
            assert child.line() == "inside"
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreUnavailable):
                patch.setattr(connection, "BUSY_SECONDS", 0.1)
                store.commit([submit("r")])
            os.kill(child.pid, signal.SIGCONT)
            child.tell()
            assert child.line() == "outside"
            assert store.commit([submit("r")])[0].new
    finally:
        store.close()
