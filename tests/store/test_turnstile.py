"""The turnstile: processes that write one file take turns, and one that stands in the way does not stop the others."""

import os
import signal
import time

import pytest
from store_processes import Child

from outlast.store.sqlite.store import SQLiteStore
from outlast.store.sqlite.turnstile import PATIENCE
from outlast.store.verbs import Submit

SECONDS = 2.0

BACK_TO_BACK = """
store = SQLiteStore(sys.argv[1])
store.open()
store.commit([submit(f"start{os.getpid()}")])
say("ready")
sys.stdin.readline()
deadline, commits, longest = time.monotonic() + float(sys.argv[2]), 0, 0.0
while (started := time.monotonic()) < deadline:
    store.commit([submit(f"{os.getpid()}-{commits}")])
    commits += 1
    longest = max(longest, time.monotonic() - started)
say(commits, longest)
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


def test_four_processes_that_commit_back_to_back_get_a_fair_share(tmp_path):
    children = [Child(BACK_TO_BACK, tmp_path / "outlast.db", SECONDS) for _ in range(4)]
    try:
        for child in children:
            assert child.line() == "ready"
        for child in children:
            child.tell()
        results = [child.line().split() for child in children]
    finally:
        for child in children:
            child.__exit__()
    commits = [int(count) for count, _ in results]
    assert min(commits) >= sum(commits) / 4 / 4, commits
    assert max(float(longest) for _, longest in results) < SECONDS, "nobody waits all the time"


STAND_IN_THE_WAY = """
from outlast.store.locks import lock
store = SQLiteStore(sys.argv[1])
store.open()
if sys.argv[2] == "room":
    store._turnstile.__enter__()
else:
    assert lock(store._turnstile._gate)
say("inside")
sys.stdin.readline()
"""


@pytest.mark.parametrize("where", ["gate", "room"])
def test_a_process_stopped_inside_the_turnstile_does_not_stop_the_others(store, where):
    with Child(STAND_IN_THE_WAY, store.path, where) as child:
        assert child.line() == "inside"
        os.kill(child.pid, signal.SIGSTOP)
        with Child(BACK_TO_BACK, store.path, 0.0) as other:
            assert other.line() == "ready"  # it has opened the store and committed once
            started = time.monotonic()
            assert store.commit([submit("r")])[0].new
            assert time.monotonic() - started < PATIENCE * 20, "it would be for ever"
        os.kill(child.pid, signal.SIGCONT)


@pytest.mark.parametrize("where", ["gate", "room"])
def test_a_process_killed_inside_the_turnstile_is_not_waited_for(store, where):
    with Child(STAND_IN_THE_WAY, store.path, where) as child:
        assert child.line() == "inside"
        child.process.kill()
        child.wait()
        started = time.monotonic()
        assert store.commit([submit("r")])[0].new
        assert time.monotonic() - started < PATIENCE


def test_a_process_stopped_inside_a_transaction_is_unavailable_and_then_goes_on(tmp_path):
    """It holds SQLite's own lock: nobody can write, and nobody may pretend to."""
    from outlast.errors import StoreUnavailable
    from outlast.store.sqlite import store as module

    script = """
store = SQLiteStore(sys.argv[1])
store.open()
store._turnstile.__enter__()
store._db.execute("BEGIN IMMEDIATE")
say("inside")
sys.stdin.readline()
store._db.execute("COMMIT")
store._turnstile.__exit__()
say("outside")
sys.stdin.readline()
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUSY_SECONDS", 0.1)
        store = SQLiteStore(tmp_path / "outlast.db")
        store.open()
    try:
        with Child(script, store.path) as child:
            assert child.line() == "inside"
            os.kill(child.pid, signal.SIGSTOP)
            with pytest.raises(StoreUnavailable):
                store.commit([submit("r")])
            os.kill(child.pid, signal.SIGCONT)
            child.tell()
            assert child.line() == "outside"
            assert store.commit([submit("r")])[0].new
    finally:
        store.close()
