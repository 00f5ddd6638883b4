"""Test that a bench deletes its own runs and no others, and that one bench keeps the next one out."""

import os
import socket

import pytest
from bench_tools import members_of, others_seen, others_work, runs_of_benches

from outlast.settings import Settings
from outlast.store.commands import Claim, Record, RegisterWorker, Release, Settle, Submit
from outlast.store.sqlite.store import SQLiteStore
from outlast.tools.bench import guest as measuring
from outlast.tools.bench import recovery as recovering
from outlast.tools.bench.guest import PAGE, Guest, OneAtATime, guest
from outlast.tools.bench.names import QUEUE, RECOVERY, STEPS, new_id
from support.processes import clean_environment


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


def register(
    store, worker: str, *, lease: float = 60.0, workflows: tuple[str, ...] = (STEPS,)
) -> None:
    store.acquire_liveness(worker)
    store.commit(
        [RegisterWorker(worker, socket.gethostname(), os.getpid(), lease, (QUEUE,), workflows, 1)]
    )


def claim(store, id: str, worker: str = "gone"):
    return store.commit([Claim(worker, id, (id,))])[0][0]


def leftovers(store) -> None:
    """Leave runs of a bench in every state, and its dead worker."""
    register(store, "gone")
    ended, returned, later, held = (claim(store, submit(store)) for _ in range(4))
    submit(store)
    unrecorded = claim(store, submit(store, workflow=RECOVERY))
    for row in (ended, returned, held):
        store.commit([Record(row.pk, 1, row.fence, "step", "step#1", store.now(), value="true")])
    store.commit([Settle(ended.pk, ended.fence, "done")])
    store.commit([Release(returned.pk, returned.fence, "interrupted")])
    store.commit([Release(later.pk, later.fence, "not before an hour", delay=3600.0)])
    assert (held.status, unrecorded.status) == ("running", "running")
    store._liveness.forget_in_child()
    for lock in (store.path.parent / f"{store.path.name}.d").glob("worker-gone.lock"):
        os.utime(lock, (0, 0))


def test_runs_of_an_earlier_bench_are_cleared_and_no_others(store, file):
    others_work(store)
    before = others_seen(store)
    leftovers(store)
    assert len(runs_of_benches(store)) == 6
    with guest(SQLiteStore(file), Settings()) as here:
        assert runs_of_benches(store) == []
        assert [row.id for row in store.workers()] == [here.worker]
    assert others_seen(store) == before
    assert store.workers() == []


def test_bench_deletes_its_runs_when_it_fails(store, file):
    with pytest.raises(ZeroDivisionError), guest(SQLiteStore(file), Settings()) as here:
        for _ in range(PAGE + 5):
            submit(here.store)
        assert len(runs_of_benches(store)) == PAGE + 5
        raise ZeroDivisionError
    assert runs_of_benches(store) == []
    assert store.workers() == []


def test_second_bench_is_refused_and_the_first_keeps_its_runs(store, file, monkeypatch):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    with guest(SQLiteStore(file), Settings()) as first:
        submit(first.store)
        with (
            pytest.raises(OneAtATime, match="is using this store"),
            guest(SQLiteStore(file), Settings()),
        ):
            raise AssertionError
        assert len(runs_of_benches(store)) == 1
        assert [row.id for row in store.workers()] == [first.worker]


def test_of_two_simultaneous_benches_one_stays(store, monkeypatch):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    two = [Guest(store, Settings()) for _ in range(2)]
    for one in two:
        store.acquire_liveness(one.worker)
        one.register()
    stays = []
    for one in two:
        try:
            one.be_alone()
        except OneAtATime:
            continue
        stays.append(one)
    assert len(stays) == 1


def test_worker_of_others_in_the_queue_is_not_a_bench(store, file):
    register(store, "theirs", workflows=("report",))
    with guest(SQLiteStore(file), Settings()):
        pass
    assert [row.id for row in store.workers()] == ["theirs"]


def test_dead_workers_are_removed_before_their_lease_ends(store, file, monkeypatch):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    with guest(SQLiteStore(file), Settings()) as here:
        store.commit(
            [
                RegisterWorker(
                    "unheld", socket.gethostname(), 4_000_000, 3600.0, (QUEUE,), (RECOVERY,), 1
                )
            ]
        )
        here.see_off(frozenset({4_000_000}))
        assert [row.id for row in store.workers()] == [here.worker]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("UP_SECONDS", 0.05, "the workers do not start, in 0.05 s."),
        ("TAKEN_SECONDS", 0.01, "no worker takes the run, in 0.01 s."),
        (
            "_environ",
            lambda *_: clean_environment(OUTLAST_LEASE="long"),
            "a worker did not start: ",
        ),
    ],
)
def test_recovery_that_cannot_be_measured_says_why_and_leaves_nothing(
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
