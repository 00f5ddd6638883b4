"""A commit in one process wakes the processes that listen to the same SQLite file."""

import os
import threading
from contextlib import ExitStack, suppress

import pytest
from store_processes import Child

from outlast.store.commands import Claim, Record, RegisterWorker, Send, Settle, Submit
from outlast.store.sqlite.store import SQLiteStore
from support.waiting import WAIT_SECONDS, wait_until

# It never polls: only a notification can make it print.
LISTEN = """
store = SQLiteStore(sys.argv[1])
store.open()
store.listen(lambda: say("notified"))
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


def fifos(store):
    return list(store.path.with_name("outlast.db.d").glob("notify-*"))


def test_every_commit_wakes_a_listener_in_another_process(store):
    with Child(LISTEN, store.path) as child:
        assert child.line() == "listens"
        for number in range(20):
            store.commit([submit(f"r{number}")])
            assert child.line() == "notified"


def test_commit_wakes_every_listening_process(store):
    with ExitStack() as stack:
        children = [stack.enter_context(Child(LISTEN, store.path)) for _ in range(3)]
        for child in children:
            assert child.line() == "listens"
        assert len(fifos(store)) == 3
        store.commit([submit("r")])
        for child in children:
            assert child.line() == "notified"


def test_process_wakes_itself_only_for_work_it_may_take(store):
    notified = []
    store.listen(lambda: notified.append(1))
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    assert store.commit([Claim("w", "t")]) == [[]]
    assert notified == []
    store.commit([submit("r")])  # it may claim that itself
    assert len(notified) == 1
    (row,) = store.commit([Claim("w", "t")])[0]
    store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
    assert len(notified) == 1
    store.commit([Send("r", "m", "1", "1")])
    assert len(notified) == 2
    store.commit([Settle(row.pk, row.fence, "done")])
    assert len(notified) == 2


def test_commit_removes_only_the_fifo_of_a_dead_process(store):
    with Child(LISTEN, store.path) as dies, Child(LISTEN, store.path) as lives:
        assert dies.line() == lives.line() == "listens"
        dies.kill()
        assert len(fifos(store)) == 2
        store.commit([submit("r")])
        assert len(fifos(store)) == 1
        assert lives.line() == "notified"


def test_closing_store_removes_its_fifo(store):
    with Child(LISTEN, store.path) as child:
        assert child.line() == "listens"
        assert len(fifos(store)) == 1
        child.tell()
        assert child.wait() == 0
        assert fifos(store) == []


def test_full_pipe_of_a_listener_does_not_block_a_commit(store):
    listening = threading.Event()
    resume = threading.Event()

    def listener() -> None:
        listening.set()
        assert resume.wait(WAIT_SECONDS)

    other = SQLiteStore(store.path)
    other.open()
    try:
        other.listen(listener)
        store.commit([submit("first")])
        assert listening.wait(WAIT_SECONDS)
        (fifo,) = fifos(store)
        pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, b"!" * 65536)
        os.close(pipe)
        assert store.commit([submit("second")])[0].new
        listening.clear()
        resume.set()
        assert listening.wait(WAIT_SECONDS)
    finally:
        resume.set()
        other.close()


def test_process_without_free_descriptors_commits_and_keeps_other_fifos(store):
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
    store.listen(lambda: None)
    with Child(script, store.path) as child:
        assert [child.line() for _ in range(3)] == ["True"] * 3
    assert len(fifos(store)) == 1
    assert store.run("r2") is not None


def test_commit_succeeds_without_the_fifos_of_others(store):
    store.listen(lambda: None)
    for file in fifos(store):
        file.unlink()
    assert store.commit([submit("r")])[0].new


def test_commit_wakes_another_store_of_the_same_process(store):
    other = SQLiteStore(store.path)
    other.open()
    try:
        notified = threading.Event()
        other.listen(notified.set)
        store.commit([submit("r")])
        assert notified.wait(WAIT_SECONDS)
        wait_until(lambda: len(fifos(store)) == 1)
    finally:
        other.close()
