"""Settle, Release and Wait: how a life lets go of its run."""

from __future__ import annotations

import json

import pytest

from outlast.store.rows import RunQuery
from outlast.store.verbs import FENCE, Cancel, Refused, Release, Resume, Settle, Wait
from outlast.testing.conformance.harness import Desk, Promises


class EndPromises(Promises):
    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_settled_run_has_ended_with_what_was_said(self, desk: Desk, status: str) -> None:
        row = desk.held()
        desk.clock.forward(7)
        assert desk.one(Settle(row.pk, row.fence, status, '"v"', '"e"', "why", 4)) is None
        now = desk.row()
        assert (now.status, now.value, now.error, now.reason, now.failed_at) == (
            status,
            '"v"',
            '"e"',
            "why",
            4,
        )
        assert (now.ended, now.worker) == (desk.clock.now, None)

    def test_a_parked_run_has_not_ended(self, desk: Desk) -> None:
        row = desk.ended(status="parked")
        assert (row.status, row.ended, row.worker, row.reason) == ("parked", None, None, "because")

    def test_a_settle_is_accepted_again_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held()
        verb = Settle(row.pk, row.fence, "done", '"first"')
        assert desk.one(verb) is None
        before = desk.row()
        desk.clock.forward(5)
        assert desk.commit(verb, verb._replace(value='"second"')) == [None, None]
        assert desk.row() == before

    def test_a_parked_runs_settle_is_accepted_again_after_it_was_cancelled(self, desk: Desk) -> None:
        row = desk.held()
        verb = Settle(row.pk, row.fence, "parked")
        assert desk.commit(verb, Cancel("r", "no")) == [None, "cancelled"]
        assert desk.one(verb) is None
        assert desk.row().status == "cancelled"

    def test_a_settle_is_refused_when_another_fence_settled_it(self, desk: Desk) -> None:
        first = desk.held()
        desk.settle(first, "parked")
        desk.one(Resume("r", "t"))
        desk.settle(desk.take(), "done", value='"second"')
        assert desk.one(Settle(first.pk, first.fence, "failed")) == Refused(FENCE)
        assert (desk.row().status, desk.row().value) == ("done", '"second"')

    def test_a_released_run_is_queued_with_an_interruption_on_record(self, desk: Desk) -> None:
        row = desk.held()
        desk.clock.forward(3)
        assert desk.one(Release(row.pk, row.fence, "drain")) == "queued"
        now = desk.row()
        assert (now.status, now.worker, now.reason, now.due) == ("queued", None, "drain", desk.clock.now)
        assert (now.interruptions, now.interrupted, now.deaths) == (1, desk.clock.now, 0)
        (entry,) = desk.store.journal(row.pk)
        assert (entry.kind, entry.at, json.loads(entry.value or "")) == (
            "interruption",
            desk.clock.now,
            {"why": "drain"},
        )

    def test_a_release_that_is_no_interruption_leaves_no_entry(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Release(row.pk, row.fence, "not here", interrupted=False))
        assert (desk.row().interruptions, desk.row().interrupted) == (0, None)
        assert desk.store.journal(row.pk) == []

    def test_a_release_is_accepted_again_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held()
        verb = Release(row.pk, row.fence, "drain")
        assert desk.one(verb) == "queued"
        before = (desk.row(), desk.store.journal(row.pk))
        desk.clock.forward(5)
        assert desk.commit(verb, verb) == ["queued", "queued"]
        assert (desk.row(), desk.store.journal(row.pk)) == before
        desk.take(worker="w2")
        assert desk.one(verb) == Refused(FENCE)

    def test_a_release_with_a_delay_is_claimable_when_it_is_over(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Release(row.pk, row.fence, "back off", delay=30.0))
        assert desk.claim() == []
        desk.clock.forward(30)
        assert [r.id for r in desk.claim()] == ["r"]

    def test_what_a_run_waits_for_can_be_seen_until_it_goes_on(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.one(Wait(row.pk, row.fence, ("approval", "stop"))) is None
        assert desk.one(Wait(row.pk, row.fence, ("approval", "stop"))) is None
        for name, found in (("approval", ["r"]), ("stop", ["r"]), ("appro", [])):
            assert [r.id for r in desk.store.runs(RunQuery(waiting_for=name))] == found
        desk.one(Wait(row.pk, row.fence, ("stop",)))
        assert desk.store.runs(RunQuery(waiting_for="approval")) == []
        desk.one(Wait(row.pk, row.fence, ()))
        assert desk.store.runs(RunQuery(waiting_for="stop")) == []
        desk.one(Wait(row.pk, row.fence, ("stop",)))
        desk.settle(row)
        assert desk.store.runs(RunQuery(waiting_for="stop")) == []
