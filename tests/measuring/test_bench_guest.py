"""A guest ends and deletes what is a bench's, however it stands, and nothing else; and one that is there keeps the next one out."""

import os
import socket

import pytest
from bench_tools import environ, members_of, others_seen, others_work, runs_of_benches

from outlast.measuring import guest as measuring
from outlast.measuring import recovery as recovering
from outlast.measuring.guest import PAGE, Guest, OneAtATime, guest
from outlast.measuring.names import QUEUE, RECOVERY, STEPS, new_id
from outlast.settings import Settings
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Claim, Enlist, Record, Release, Settle, Submit


@pytest.fixture
def file(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def store(file):
    store = SQLiteStore(file)
    store.open()
    yield store
    store.close()


def submit(store, *, workflow=STEPS) -> str:
    id = new_id()
    store.commit([Submit(id, workflow, "{}", id, "seed", queue=QUEUE)])
    return id


def enlist(store, worker: str, *, lease: float = 60.0, workflows: tuple[str, ...] = (STEPS,)) -> None:
    store.hold(worker)
    store.commit([Enlist(worker, socket.gethostname(), os.getpid(), lease, (QUEUE,), workflows, 1)])


def claim(store, id: str, worker: str = "gone"):
    return store.commit([Claim(worker, id, (id,))])[0][0]


def leftovers(store) -> None:
    """Of a bench in each way that a run of its can stand, and its worker, which is dead."""
    enlist(store, "gone")
    ended, returned, later, held = (claim(store, submit(store)) for _ in range(4))
    submit(store)
    unrecorded = claim(store, submit(store, workflow=RECOVERY))
    for row in (ended, returned, held):
        store.commit([Record(row.pk, 1, row.fence, "step", "step#1", store.now(), value="true")])
    store.commit([Settle(ended.pk, ended.fence, "done")])
    store.commit([Release(returned.pk, returned.fence, "interrupted")])
    store.commit([Release(later.pk, later.fence, "not before an hour", delay=3600.0)])
    assert (held.status, unrecorded.status) == ("running", "running")
    store._presence.die()
    for lock in (store.path.parent / f"{store.path.name}.d").glob("worker-gone.lock"):
        os.utime(lock, (0, 0))


def test_what_another_left_is_cleared_and_what_is_others_is_as_it_was(store, file):
    others_work(store)
    before = others_seen(store)
    leftovers(store)
    assert len(runs_of_benches(store)) == 6
    with guest(SQLiteStore(file), Settings()) as here:
        assert runs_of_benches(store) == []
        assert [row.id for row in store.workers()] == [here.worker]
    assert others_seen(store) == before
    assert store.workers() == []


def test_its_own_runs_are_gone_when_it_goes_also_by_an_error(store, file):
    with pytest.raises(ZeroDivisionError), guest(SQLiteStore(file), Settings()) as here:
        for _ in range(PAGE + 5):
            submit(here.store)
        assert len(runs_of_benches(store)) == PAGE + 5
        raise ZeroDivisionError
    assert runs_of_benches(store) == []
    assert store.workers() == []


def test_one_that_lives_keeps_the_next_one_out_and_keeps_its_runs(store, file, monkeypatch):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    with guest(SQLiteStore(file), Settings()) as first:
        submit(first.store)
        with pytest.raises(OneAtATime, match="one at a time"), guest(SQLiteStore(file), Settings()):
            raise AssertionError
        assert len(runs_of_benches(store)) == 1
        assert [row.id for row in store.workers()] == [first.worker]


def test_of_two_that_come_at_once_the_first_stays(store, monkeypatch):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    two = [Guest(store, Settings()) for _ in range(2)]
    for one in two:
        store.hold(one.worker)
        one.enlist()
    stays = []
    for one in two:
        try:
            one.be_alone()
        except OneAtATime:
            continue
        stays.append(one)
    assert len(stays) == 1


def test_a_worker_of_others_in_its_queue_is_no_bench(store, file):
    enlist(store, "theirs", workflows=("report",))
    with guest(SQLiteStore(file), Settings()):
        pass
    assert [row.id for row in store.workers()] == ["theirs"]


def test_workers_that_are_known_to_be_gone_are_struck_off_where_only_a_lease_would_tell(
    store, file, monkeypatch
):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    with guest(SQLiteStore(file), Settings()) as here:
        store.commit([Enlist("unheld", socket.gethostname(), 4_000_000, 3600.0, (QUEUE,), (RECOVERY,), 1)])
        here.see_off(frozenset({4_000_000}))
        assert [row.id for row in store.workers()] == [here.worker]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("UP_SECONDS", 0.05, "the workers do not come up, in 0.05 s."),
        ("TAKEN_SECONDS", 0.01, "no worker takes the run, in 0.01 s."),
        ("_environ", lambda *_: environ(OUTLAST_LEASE="long"), "a worker does not start: "),
    ],
)
def test_where_recovery_cannot_be_measured_it_is_said_why_and_nothing_stays(
    store, file, monkeypatch, name, value, why
):
    monkeypatch.setattr(recovering, name, value)
    with guest(SQLiteStore(file), Settings()) as here:
        found = recovering.recovery(here, f"sqlite:///{file}")
        assert found.seconds == ()
        assert found.not_measured.startswith(why)
        assert [row.id for row in store.workers()] == [here.worker]
    assert members_of(os.getpid()) == []
    assert runs_of_benches(store) == []
