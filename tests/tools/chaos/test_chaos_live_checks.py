"""Checks of a store with live workers: held runs, due runs and drains."""

import sqlite3
from contextlib import closing

from check_tools import alarms

from outlast.store.address import store_at
from outlast.store.commands import (
    Claim,
    Drain,
    RegisterWorker,
    Release,
    SetQueueLimits,
    Submit,
    Sweep,
)
from outlast.tools.chaos.checks import check
from outlast.tools.chaos.findings import Scope


def open_live_store(address):
    """A store with a run that its worker lost, and with another worker that knows its workflow."""
    now = [1000.0]
    store = store_at(address, clock=lambda: now[0])
    store.open()
    store.commit(
        [Submit("r", "flow", "[]", "t", "00"), Submit("new", "flow", "[]", "u", "00", delay=0.0)]
    )
    store.commit(
        [
            RegisterWorker("w", "h", 1, 30.0, ("default",), ("flow",), 5),
            Claim("w", "t1", ids=("r",)),
        ]
    )
    return store, now


def test_run_of_a_live_worker_raises_no_alarm(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        now[0] += 20
        assert alarms(check(store, Scope(since=0.0, objective=5))) == {}


def test_due_run_that_a_live_worker_could_claim_is_found(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit([Release(row.pk, row.fence, "its worker drains")])
        now[0] += 20
        found = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found == [
            "r (queued) has been due for 20 s, although live workers know its workflow: its worker drains"
        ]
        assert alarms(check(store, Scope(since=0.0, objective=25))) == {}
        now[0] += 100
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {
            "recovery": [
                "r lost its worker 120 s ago and has not continued: no live worker claims flow from queue default"
            ]
        }, "nobody lives"


def test_waiting_run_that_no_worker_claims_is_unknown(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit([Release(row.pk, row.fence, "it sleeps", waiting=True, due=now[0] + 1)])
        now[0] += 100
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and "no live worker claims them" in verdict["ended"].unknown[0]


def test_run_that_waits_for_a_slot_raises_no_alarm(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        row = store.run("r")
        store.commit(
            [
                Release(row.pk, row.fence, "its worker drains"),
                Claim("w", "t2", ids=("new",)),
                SetQueueLimits("default", None, 1),
            ]
        )
        now[0] += 20
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and verdict["ended"].facts["waiting_for_a_slot"] == 1
        store.commit([SetQueueLimits("default", None, 2)])
        assert list(alarms(check(store, Scope(since=0.0, objective=5)))) == ["ended"]
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as db:
            db.execute("UPDATE runs SET deaths_in_a_row = 1 WHERE id = 'r'")
            assert list(alarms(check(store, Scope(since=0.0, objective=5)))) == [
                "ended"
            ]  # anybody may take it
            db.execute("UPDATE runs SET deaths_in_a_row = 2 WHERE id = 'r'")
        verdict = check(store, Scope(since=0.0, objective=5))
        assert alarms(verdict) == {} and verdict["ended"].facts["suspects_waiting"] == 1


def test_run_of_a_dead_worker_is_found(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        now[0] += 300
        (found,) = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found.startswith("r is held by worker w, whose lease expired"), (
            "though nobody could sweep it"
        )
        store.commit([RegisterWorker("x", "h", 2, 30.0, ("default",), ("flow",), 5)])
        (found,) = alarms(check(store, Scope(since=0.0, objective=5)))["ended"]
        assert found.startswith("r is held by worker w, whose lease expired")
        for _ in range(8):  # signs of life, for as long as a lease
            now[0] += 10
            store.commit([RegisterWorker("x", "h", 2, 30.0, ("default",), ("flow",), 5), Sweep()])
        assert store.run("r").status == "queued"
        assert "held by" not in str(alarms(check(store, Scope(since=0.0, objective=5))))


def test_run_of_an_unregistered_worker_is_found(tmp_path):
    store, _ = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as db:
            db.execute("DELETE FROM workers")
        assert alarms(check(store, Scope(since=0.0))) == {
            "ended": ["r is held by worker w, which is not registered"]
        }


def test_interrupted_drain_is_found(tmp_path):
    store, now = open_live_store(f"sqlite:///{tmp_path}/o.db")
    with closing(store):
        store.commit(
            [Drain("w", "SIGTERM", keep=(store.run("r").fence,)), RegisterWorker("x", "h", 2, 30.0)]
        )
        assert alarms(check(store, Scope(since=0.0))) == {}, "it goes on"
        for _ in range(12):
            now[0] += 10
            store.commit([RegisterWorker("x", "h", 2, 30.0), Sweep()])
        found = alarms(check(store, Scope(since=0.0, objective=1000)))
        assert list(found) == ["drains"] and found["drains"][0].startswith(
            "worker w on h exited before its drain ended"
        )
        assert alarms(check(store, Scope(since=now[0] + 1, objective=1000))) == {}
