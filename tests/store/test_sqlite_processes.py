"""Several processes, forks and deaths on one SQLite file."""

import json
import os
import sqlite3
import threading
from contextlib import closing

import pytest
from sqlite_file_tools import look, submit
from store_processes import Child

from outlast.errors import StoreUnavailable
from outlast.store import fork_guard
from outlast.store.commands import Sweep, Swept
from outlast.store.sqlite import migrate
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.conformance.harness import NOBODY
from support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # what is tested is just that


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def store(path):
    store = SQLiteStore(path)
    store.open()
    yield store
    store.close()


OPEN_AND_SUBMIT = """
store = SQLiteStore(sys.argv[1])
say("ready")
sys.stdin.readline()
store.open()
store.commit([submit(sys.argv[2]), submit("shared")])
say("done")
store.close()
"""


def test_ten_processes_open_one_new_file_at_once(path):
    children = [Child(OPEN_AND_SUBMIT, path, n) for n in range(10)]
    try:
        for child in children:
            assert child.line() == "ready"
        for child in children:
            child.tell()
        for child in children:
            assert child.line() == "done"
            assert child.wait() == 0
    finally:
        for child in children:
            child.__exit__()
    assert {id for (id,) in look(path)} == {*map(str, range(10)), "shared"}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_version_of_a_store_that_is_being_created_is_none_or_current(path, after):
    """The look is three statements; another process makes the store after this one of them."""
    path.touch()

    class Rows(list):
        def fetchone(self):
            return self[0] if self else None

    class Watched:
        statements = 0

        def execute(self, statement):
            found = Rows(db.execute(statement).fetchall())
            self.statements += 1
            if self.statements == after:
                store = SQLiteStore(path)
                store.open()
                store.close()
            return found

    with closing(sqlite3.connect(path)) as db:
        assert migrate.version_of(Watched(), str(path)) in (0, migrate.version())


def test_commits_of_a_killed_process_are_kept(path):
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
for n in range(100000):
    store.commit([submit(f"r{n}")])
    say(n)
"""
    with Child(script, path) as child:
        for _ in range(50):
            last = int(child.line())
        child.kill()
        while True:  # whatever it had acknowledged before it died
            try:
                last = int(child.line())
            except AssertionError:
                break
    store = SQLiteStore(path)
    store.open()
    assert all(store.run(f"r{n}") for n in range(last + 1))
    store.close()


def test_killed_worker_is_dead_long_before_its_lease_ends(store):
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
store.acquire_liveness("mortal")
store.commit([RegisterWorker("mortal", "host", os.getpid(), 3600.0), submit("r")._replace(worker="mortal")])
say("holds")
sys.stdin.readline()
"""
    with Child(script, store.path) as child:
        assert child.line() == "holds"
        assert store.dead_workers() == []
        assert store.commit([Sweep()]) == [NOBODY]
        (worker,) = store.workers()
        lock = store.path.with_name("outlast.db.d") / "worker-mortal.lock"
        wait_until(lambda: lock.stat().st_mtime > worker.renewed)
        child.kill()
        last_beat = lock.stat().st_mtime
        wait_until(lambda: store.dead_workers() == ["mortal"])
        assert store.commit([Sweep()]) == [Swept(("r",), (), ("mortal",))]
        (entry,) = store.journal(store.run("r").pk)
        facts = json.loads(entry.value)
        assert facts["by"] == "lock"
        assert worker.renewed <= facts["seen"] < last_beat + 0.001, (
            "it was last seen at its last heartbeat"
        )
    assert not [p for p in store.path.with_name("outlast.db.d").iterdir() if "mortal" in p.name]


def forked(action) -> int:
    """What `action` returned in a forked child, as its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = action()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_forked_child_cannot_use_the_store_of_its_parent(store):
    store.commit([submit("r")])

    def use_it() -> int:
        refused = 0
        for use in (lambda: store.commit([submit("child")]), lambda: store.run("r")):
            try:
                use()
            except StoreUnavailable:
                refused += 1
        store.close()
        return refused

    assert forked(use_it) == 2
    assert store.commit([submit("after")])[0].new
    assert store.run("child") is None


def test_forked_child_can_open_the_store_again_and_commit(path):
    """SQLite's record of locks is inherited, its locks are not: the parent's close would remove the child's log."""
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("parent")])
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store.open()
            store.commit([submit("child")])
            os.write(to_parent[1], b"!")
            os.read(to_child[0], 1)
            store.commit([submit("after the parent's close")])
            status = 0
        finally:
            os._exit(status)
    os.close(to_parent[1])  # a child that fails is read as the end
    os.close(to_child[0])
    try:
        assert os.read(to_parent[0], 1) == b"!"
        store.close()
        os.write(to_child[1], b"!")
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        os.close(to_parent[0])
        os.close(to_child[1])
    assert look(path) == [("parent",), ("child",), ("after the parent's close",)]


def test_fork_during_writes_harms_neither_process(path):
    store = SQLiteStore(path)
    store.open()
    stop = threading.Event()
    written = []

    def write() -> None:
        while not stop.is_set():
            store.commit([submit(f"r{len(written)}")])
            written.append(1)

    thread = threading.Thread(target=write)
    thread.start()

    def write_too(turn: int) -> int:
        own = SQLiteStore(path)
        own.open()
        own.commit([submit(f"child{turn}")])
        return 0 if own.run(f"child{turn}") else 1

    try:
        for turn in range(20):
            before = len(written)
            wait_until(lambda before=before: len(written) > before)
            assert forked(lambda turn=turn: write_too(turn)) == 0
    finally:
        stop.set()
        thread.join()
    store.close()
    ids = {id for (id,) in look(path)}
    assert ids == {f"r{n}" for n in range(len(written))} | {f"child{n}" for n in range(20)}
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


def test_child_forked_inside_a_transaction_cannot_open_the_store(store, path, monkeypatch):
    monkeypatch.setattr(fork_guard, "PATIENCE", 0.05)

    def open_anew() -> int:
        try:
            SQLiteStore(path).open()
        except StoreUnavailable:
            return 7
        return 1

    with store._writing:  # as if a signal handler forked in the middle of a commit
        assert forked(open_anew) == 7
    assert store.commit([submit("r")])[0].new


CHILD_OF_A_WORKER = """
store = SQLiteStore(sys.argv[1])
store.open()
store.listen(lambda: None)
store.acquire_liveness("mortal")
store.commit([RegisterWorker("mortal", "host", os.getpid(), 3600.0), submit("r")._replace(worker="mortal")])
pid = os.fork()
if pid == 0:
    say("forked", os.getpid())
    time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def test_forked_child_does_not_keep_the_worker_of_its_parent_alive(store, path):
    with Child(CHILD_OF_A_WORKER, path) as parent:
        survivor = int(parent.line().split()[1])
        try:
            assert store.dead_workers() == []
            parent.kill()
            os.kill(survivor, 0)  # the child lives on
            wait_until(lambda: store.dead_workers() == ["mortal"])
            assert store.commit([Sweep()]) == [Swept(("r",), (), ("mortal",))]
            assert not list(path.with_name("outlast.db.d").glob("notify-*"))
        finally:
            os.kill(survivor, 9)
