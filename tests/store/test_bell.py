"""The bell: what one process commits, the others hear long before they would have looked."""

import os
import signal
import threading
import time

import pytest
from store_processes import Child, until

from outlast.settings import Settings
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Claim, Enlist, Record, Send, Settle, Submit

POLL_SECONDS = Settings().poll

LISTEN = """
store = SQLiteStore(sys.argv[1])
store.open()
store.listen(lambda: say("rung"))
say("listens")
sys.stdin.readline()
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


def bells(store):
    return list(store.path.with_name("outlast.db.d").glob("bell-*"))


def test_a_commit_in_another_process_wakes_a_listener_well_before_it_polls(store):
    with Child(LISTEN, store.path) as child:
        assert child.line() == "listens"
        waits = []
        for number in range(20):
            started = time.monotonic()
            store.commit([submit(f"r{number}")])
            assert child.line(timeout=POLL_SECONDS) == "rung"
            waits.append(time.monotonic() - started)
        assert sorted(waits)[10] < POLL_SECONDS / 10


def test_every_process_that_listens_is_woken(store):
    children = [Child(LISTEN, store.path) for _ in range(3)]
    try:
        for child in children:
            assert child.line() == "listens"
        assert len(bells(store)) == 3
        store.commit([submit("r")])
        for child in children:
            assert child.line(timeout=POLL_SECONDS) == "rung"
    finally:
        for child in children:
            child.__exit__()


def test_a_process_does_not_wake_itself_for_what_it_knows(store):
    rung = []
    store.listen(lambda: rung.append(1))
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 60.0)])
    assert store.commit([Claim("w", "t")]) == [[]]
    assert rung == []
    store.commit([submit("r")])  # it may claim that itself
    assert len(rung) == 1
    (row,) = store.commit([Claim("w", "t")])[0]
    store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
    assert len(rung) == 1
    store.commit([Send("r", "m", "1", "1")])
    assert len(rung) == 2
    store.commit([Settle(row.pk, row.fence, "done")])
    assert len(rung) == 2


def test_a_dead_processs_bell_is_cleaned_up_and_a_living_ones_stays(store):
    with Child(LISTEN, store.path) as dies, Child(LISTEN, store.path) as lives:
        assert dies.line() == lives.line() == "listens"
        dies.process.kill()
        dies.wait()
        assert len(bells(store)) == 2
        store.commit([submit("r")])
        assert len(bells(store)) == 1
        assert lives.line(timeout=POLL_SECONDS) == "rung"


def test_a_store_that_closes_takes_its_bell_down(store):
    with Child(LISTEN, store.path) as child:
        assert child.line() == "listens"
        assert len(bells(store)) == 1
        child.tell()
        assert child.wait() == 0
        assert bells(store) == []


def test_a_listener_that_was_stopped_does_not_hold_up_those_who_ring(store):
    with Child(LISTEN, store.path) as child:
        assert child.line() == "listens"
        os.kill(child.pid, signal.SIGSTOP)
        for _ in range(70_000):  # more than a pipe holds
            store._bell.ring()
        assert store.commit([submit("r")])[0].new
        os.kill(child.pid, signal.SIGCONT)
        assert child.line(timeout=POLL_SECONDS) == "rung"


def test_a_process_without_descriptors_left_neither_fails_nor_takes_down_others_bells(store):
    script = """
import resource
store = SQLiteStore(sys.argv[1])
store.open()
store.commit([submit("r")])
used = max(map(int, os.listdir("/proc/self/fd")))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
spare = []
try:
    while True:
        spare.append(os.dup(1))
except OSError:
    pass
for n in range(3):
    for _ in range(n):
        os.close(spare.pop()) if spare else None
    say(store.commit([submit(f"r{n}")])[0].new)
"""
    rung = threading.Event()
    store.listen(rung.set)
    with Child(script, store.path) as child:
        assert [child.line() for _ in range(3)] == ["True"] * 3
    assert len(bells(store)) == 1
    assert rung.is_set() or store.run("r2") is not None


def test_a_bell_whose_folder_is_gone_is_no_failure(store):
    store.listen(lambda: None)
    for file in bells(store):
        file.unlink()
    assert store.commit([submit("r")])[0].new


def test_a_listener_hears_others_of_its_own_process(store):
    other = SQLiteStore(store.path)
    other.open()
    try:
        rung = threading.Event()
        other.listen(rung.set)
        store.commit([submit("r")])
        assert rung.wait(POLL_SECONDS)
        until(lambda: len(bells(store)) == 1)
    finally:
        other.close()
