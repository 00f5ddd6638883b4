"""Enlist, Renew, Leave and Sweep: who may hold runs, and what becomes of them at a death."""

from __future__ import annotations

import json

from outlast.store.verbs import WORKER, Cancel, Claim, Enlist, Leave, Refused, Renew, Sweep
from outlast.testing.conformance.harness import LEASE, Desk, Promises


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
        assert desk.one(Sweep()) == []

    def test_a_worker_that_is_not_enlisted_cannot_renew(self, desk: Desk) -> None:
        outcome = desk.one(Renew("w1", 30.0))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER

    def test_a_living_worker_is_not_swept(self, desk: Desk) -> None:
        row = desk.held()
        desk.clock.forward(LEASE - 0.1)
        assert desk.store.dead_workers() == []
        assert desk.one(Sweep()) == []
        assert desk.row() == row

    def test_the_runs_of_a_dead_worker_are_queued_with_a_death_on_record(self, desk: Desk) -> None:
        row = desk.held()
        desk.held("second")
        desk.enlist("w2", lease=LEASE * 10)
        alive = desk.held("alive", "w2")
        desk.record(row, 1)
        desk.clock.forward(LEASE)
        assert desk.store.dead_workers() == ["w1"]
        assert sorted(desk.one(Sweep())) == ["r", "second"]
        now = desk.row()
        assert (now.status, now.worker, now.deaths, now.interruptions, now.due) == (
            "queued", None, 1, 0, desk.clock.now
        )  # fmt: skip
        step, death = desk.store.journal(row.pk)
        assert (step.kind, death.kind, death.seq, death.at) == ("step", "death", 2, desk.clock.now)
        assert json.loads(death.value or "")["worker"] == "w1"
        assert desk.row("alive") == alive
        assert [worker.id for worker in desk.store.workers()] == ["w2"]

    def test_a_second_sweep_finds_nothing(self, desk: Desk) -> None:
        row = desk.held()
        desk.clock.forward(LEASE)
        assert desk.commit(Sweep(), Sweep()) == [["r"], []]
        assert desk.one(Sweep()) == []
        assert desk.store.dead_workers() == []
        assert desk.kinds(row) == ["death"]

    def test_a_swept_worker_must_enlist_anew(self, desk: Desk) -> None:
        desk.held()
        desk.clock.forward(LEASE)
        desk.one(Sweep())
        for verb in (Renew("w1", LEASE), Claim("w1", "t", ids=("r",))):
            outcome = desk.one(verb)
            assert isinstance(outcome, Refused)
            assert outcome.why == WORKER
        desk.one(Enlist("w1", "host", 1, LEASE))
        assert desk.take("r", "w1").deaths == 1

    def test_deaths_are_counted_over_lives(self, desk: Desk) -> None:
        desk.submit()
        for deaths in range(3):
            assert desk.take("r", f"w{deaths}").deaths == deaths
            desk.clock.forward(LEASE)
            desk.one(Sweep())
        assert desk.row().deaths == 3

    def test_a_dead_workers_run_that_was_asked_to_end_still_is(self, desk: Desk) -> None:
        desk.held()
        desk.one(Cancel("r", "stop"))
        desk.clock.forward(LEASE)
        desk.one(Sweep())
        assert desk.take("r", "w2").cancel == "stop"

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
        assert desk.one(Sweep()) == []

    def test_a_worker_without_runs_is_struck_off_at_its_death(self, desk: Desk) -> None:
        desk.enlist()
        desk.clock.forward(LEASE)
        assert desk.one(Sweep()) == []
        assert desk.store.workers() == []
