"""Claim: which runs a worker gets, in which order, and once each."""

from __future__ import annotations

import pytest

from outlast.store.rows import NEVER, RunRow
from outlast.store.verbs import WORKER, Claim, Refused, Release
from outlast.testing.conformance.harness import Desk, Promises


def ids(rows: list[RunRow]) -> list[str]:
    return [row.id for row in rows]


class ClaimPromises(Promises):
    def test_a_claimed_run_belongs_to_its_worker_under_a_fence(self, desk: Desk) -> None:
        desk.submit(timeout=30.0)
        desk.clock.forward(100)
        (row,) = desk.claim("w1")
        assert row == desk.row()
        assert (row.status, row.worker, row.started) == ("running", "w1", desk.clock.now)
        assert row.deadline == desk.clock.now + 30.0
        assert row.fence > 0

    def test_a_claimed_run_is_not_claimed_again(self, desk: Desk) -> None:
        desk.submit()
        assert ids(desk.claim("w1")) == ["r"]
        assert desk.claim("w1") == []
        assert desk.claim("w2") == []
        assert desk.claim("w2", ids=("r",)) == []

    def test_the_first_start_and_its_deadline_stay_over_later_claims(self, desk: Desk) -> None:
        first = desk.held(timeout=30.0)
        desk.clock.forward(5)
        desk.one(Release(first.pk, first.fence, "later"))
        second = desk.take()
        assert (second.started, second.deadline) == (first.started, first.deadline)
        assert second.fence > first.fence

    def test_a_worker_that_is_not_enlisted_cannot_claim(self, desk: Desk) -> None:
        desk.submit()
        outcome = desk.one(Claim("stranger", "t"))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER
        assert desk.row().status == "queued"

    def test_the_same_token_again_gets_the_same_runs(self, desk: Desk) -> None:
        for number in range(4):
            desk.submit(f"r{number}")
        desk.enlist("w1")
        verb = Claim("w1", "again", limit=3)
        first = desk.one(verb)
        assert ids(first) == ["r0", "r1", "r2"]
        assert desk.one(verb) == first
        desk.settle(first[1])
        assert ids(desk.one(verb)) == ["r0", "r2"]
        assert desk.row("r3").status == "queued"

    def test_another_worker_gets_nothing_by_the_same_token(self, desk: Desk) -> None:
        desk.submit()
        desk.enlist("w1")
        desk.enlist("w2")
        assert ids(desk.one(Claim("w1", "same"))) == ["r"]
        assert desk.one(Claim("w2", "same")) == []
        assert desk.row().worker == "w1"

    def test_no_more_than_the_limit_is_claimed(self, desk: Desk) -> None:
        for number in range(5):
            desk.submit(f"r{number}")
        assert len(desk.claim()) == 1
        assert len(desk.claim(limit=3)) == 3
        assert len(desk.claim(limit=3)) == 1

    def test_the_highest_priority_goes_first_then_the_oldest(self, desk: Desk) -> None:
        for id, priority in (("low", -1), ("first", 0), ("high", 5), ("second", 0)):
            desk.submit(id, priority=priority)
            desk.clock.forward(1)
        assert ids(desk.claim(limit=10)) == ["high", "first", "second", "low"]

    def test_interrupted_runs_go_before_new_ones_of_their_priority(self, desk: Desk) -> None:
        desk.submit("new")
        early, late = desk.held("early"), desk.held("late")
        desk.submit("urgent", priority=1)
        desk.one(Release(late.pk, late.fence, "drain"))
        desk.clock.forward(1)
        desk.one(Release(early.pk, early.fence, "drain"))
        assert ids(desk.claim(limit=10)) == ["urgent", "late", "early", "new"]

    def test_a_run_given_back_uninterrupted_is_not_raised(self, desk: Desk) -> None:
        desk.submit("older")
        row = desk.held("younger")
        desk.one(Release(row.pk, row.fence, "not mine", interrupted=False))
        assert ids(desk.claim(limit=10)) == ["older", "younger"]

    def test_a_run_is_not_claimed_before_it_is_due(self, desk: Desk) -> None:
        desk.submit(delay=10.0)
        desk.clock.forward(9.9)
        assert desk.claim() == []
        desk.clock.forward(0.1)
        assert ids(desk.claim()) == ["r"]

    def test_a_run_that_is_named_is_claimed_due_or_not(self, desk: Desk) -> None:
        desk.submit("later", delay=1000.0)
        row = desk.held("waiting")
        desk.one(Release(row.pk, row.fence, "waits", delay=NEVER, waiting=True))
        desk.submit("other")
        assert ids(desk.claim(ids=("waiting", "later", "absent"), limit=5)) == ["later", "waiting"]

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled", "parked", "running"])
    def test_only_queued_and_waiting_runs_can_be_claimed(self, desk: Desk, status: str) -> None:
        row = desk.held()
        if status != "running":
            desk.settle(row, status)
        assert desk.claim("w2") == []
        assert desk.claim("w2", ids=("r",)) == []
        assert desk.row().status == status

    def test_a_claim_is_by_queue_and_workflow(self, desk: Desk) -> None:
        desk.submit("a", queue="mail", workflow="send")
        desk.submit("b", queue="mail", workflow="sort")
        desk.submit("c", queue="web", workflow="send")
        assert desk.claim(queues=("none",), limit=5) == []
        assert ids(desk.claim(queues=("mail",), workflows=("send", "other"), limit=5)) == ["a"]
        assert ids(desk.claim(workflows=("send",), limit=5)) == ["c"]
        assert ids(desk.claim(queues=("web", "mail"), limit=5)) == ["b"]
