"""Enlist, Renew and Leave: who may hold runs."""

from __future__ import annotations

from outlast.store.verbs import WORKER, Enlist, Leave, Refused, Renew
from outlast.testing.conformance.harness import LEASE, NOBODY, Desk, Promises


class WorkerPromises(Promises):
    def test_an_enlisted_worker_is_listed_with_its_lease(self, desk: Desk) -> None:
        desk.store.hold("w1")
        assert desk.one(Enlist("w1", "host-7", 4711, 30.0)) is None
        (row,) = desk.store.workers()
        assert (row.id, row.host, row.pid, row.started) == ("w1", "host-7", 4711, desk.clock.now)
        assert (row.lease_until, bool(row.draining)) == (desk.clock.now + 30.0, False)

    def test_to_enlist_again_renews(self, desk: Desk) -> None:
        desk.enlist(lease=30.0)
        desk.clock.forward(10)
        desk.one(Enlist("w1", "host", 1, 30.0))
        (row,) = desk.store.workers()
        assert (row.started, row.lease_until) == (desk.clock.now - 10, desk.clock.now + 30.0)

    def test_a_renewed_lease_runs_from_now(self, desk: Desk) -> None:
        desk.enlist()
        desk.clock.forward(LEASE - 1)
        assert desk.one(Renew("w1", LEASE, draining=True)) is None
        (row,) = desk.store.workers()
        assert (row.lease_until, bool(row.draining)) == (desk.clock.now + LEASE, True)
        desk.clock.forward(LEASE - 1)
        assert desk.sweep() == NOBODY

    def test_a_worker_that_is_not_enlisted_cannot_renew(self, desk: Desk) -> None:
        outcome = desk.one(Renew("w1", 30.0))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER

    def test_a_worker_that_leaves_gives_its_runs_back_interrupted(self, desk: Desk) -> None:
        row = desk.held()
        desk.enlist("w2")
        other = desk.held("other", "w2")
        assert desk.one(Leave("w1")) is None
        now = desk.row()
        assert (now.status, now.worker, now.deaths, now.interruptions) == ("queued", None, 0, 1)
        assert desk.kinds(row) == ["interruption"]
        assert desk.row("other") == other
        assert [worker.id for worker in desk.store.workers()] == ["w2"]

    def test_to_leave_again_is_harmless(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.commit(Leave("w1"), Leave("w1"), Leave("never")) == [None, None, None]
        assert desk.kinds(row) == ["interruption"]
        assert desk.sweep() == NOBODY
