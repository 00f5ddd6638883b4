"""Cancel, Retry and Resume: what people ask of a run."""

from __future__ import annotations

import json

import pytest

from outlast.store.verbs import (
    CANCEL,
    EACH,
    PARENT,
    STATUS,
    UNKNOWN,
    VERSION,
    Cancel,
    Prune,
    Refused,
    Release,
    Resume,
    Retry,
    Settle,
    Undo,
    verdict,
)
from outlast.testing.conformance.harness import Desk, Promises, entry


class RequestPromises(Promises):
    # -- Cancel

    def test_a_run_that_never_started_is_cancelled_at_once(self, desk: Desk) -> None:
        desk.submit(delay=100.0)
        desk.clock.forward(1)
        assert desk.one(Cancel("r", "not needed")) == "cancelled"
        row = desk.row()
        assert (row.status, row.reason, row.cancel, row.ended) == (
            "cancelled",
            "not needed",
            "not needed",
            desk.clock.now,
        )
        assert desk.claim(ids=("r",)) == []

    def test_a_parked_run_is_cancelled_at_once(self, desk: Desk) -> None:
        desk.ended(status="parked")
        assert desk.one(Cancel("r", "no")) == "cancelled"
        assert (desk.row().status, desk.row().ended) == ("cancelled", desk.clock.now)

    def test_a_running_run_is_asked_and_its_worker_can_see_it(self, desk: Desk) -> None:
        row = desk.held()
        desk.held("other")
        assert desk.store.cancels("w1") == []
        assert desk.one(Cancel("r", "stop it")) == "running"
        assert (desk.row().status, desk.row().fence) == ("running", row.fence)
        assert desk.store.cancels("w1") == [("r", "stop it")]
        assert desk.store.cancels("w2") == []
        desk.settle(row, "cancelled")
        assert desk.store.cancels("w1") == []

    def test_a_run_that_was_interrupted_must_be_claimed_to_end(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Release(row.pk, row.fence, "drain", delay=1000.0))
        assert desk.one(Cancel("r", "stop")) == "queued"
        (claimed,) = desk.claim()
        assert claimed.cancel == "stop"

    def test_a_waiting_run_that_is_cancelled_becomes_claimable(self, desk: Desk) -> None:
        desk.wait(desk.held())
        assert desk.one(Cancel("r", "stop")) == "waiting"
        (claimed,) = desk.claim()
        assert claimed.cancel == "stop"

    def test_the_first_reason_stays(self, desk: Desk) -> None:
        desk.held()
        assert desk.commit(Cancel("r", "first"), Cancel("r", "second")) == ["running", "running"]
        assert desk.row().cancel == "first"

    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_the_first_reason_stays_when_the_run_is_cancelled_at_once_later(
        self, desk: Desk, end: str
    ) -> None:
        row = desk.held(interruptions_max=1)
        desk.one(Cancel("r", "first"))
        if end == "dead":
            assert desk.release(row) == "dead"
        else:
            desk.settle(row, "parked")
        assert desk.one(Cancel("r", "second")) == "cancelled"
        assert (desk.row().cancel, desk.row().reason) == ("first", "first")

    def test_a_life_that_would_park_a_run_learns_that_somebody_wants_it_to_end(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Cancel("r", "stop"))
        before = desk.row()
        park = Settle(row.pk, row.fence, "parked", reason="it diverged", unless_cancelled=True)
        assert desk.one(park) == Refused(CANCEL, "stop")
        assert desk.row() == before
        desk.settle(row, "cancelled", reason="stop")
        assert desk.one(park) is None, "a repeat: the life has settled it"

    def test_a_run_that_nobody_wants_to_end_is_parked(self, desk: Desk) -> None:
        desk.settle(desk.held(), "parked", unless_cancelled=True)
        assert desk.row().status == "parked"

    def test_one_that_is_not_parked_holds_up_no_other_of_its_batch(self, desk: Desk) -> None:
        rows = [desk.held(id) for id in ("a", "b", "c")]
        desk.one(Cancel("b", "stop"))
        outcomes = desk.commit(*(Settle(r.pk, r.fence, "parked", unless_cancelled=True) for r in rows))
        assert outcomes == [None, Refused(CANCEL, "stop"), None]
        assert [desk.row(id).status for id in ("a", "b", "c")] == ["parked", "running", "parked"]

    def test_a_run_that_is_being_undone_is_parked_whoever_wanted_it_to_end(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Cancel("r", "stop"))
        desk.one(Undo(row.pk, row.fence, verdict("cancelled", reason="stop")))
        desk.settle(desk.take(), "parked", reason="stuck", unless_cancelled=True)
        assert (desk.row().status, desk.row().undoing is not None) == ("parked", True)

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_has_ended_cannot_be_cancelled(self, desk: Desk, status: str) -> None:
        before = desk.ended(status=status)
        assert desk.one(Cancel("r", "late")) == Refused(STATUS, status)
        assert desk.row() == before

    def test_nobody_can_cancel_retry_or_resume_an_unknown_run(self, desk: Desk) -> None:
        for verb in (Cancel("r", "why"), Retry("r", "t"), Resume("r", "t")):
            assert desk.one(verb) == Refused(UNKNOWN)

    # -- Retry and Resume

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_a_failed_or_cancelled_run_is_retried_from_what_ended_it(self, desk: Desk, status: str) -> None:
        row = desk.held(timeout=50.0)
        desk.commit(entry(row, 1), entry(row, 2))
        desk.settle(row, status, error='"e"', reason="why", failed_at=2)
        desk.clock.forward(100)
        assert desk.one(Retry("r", "again")) is None
        now = desk.row()
        assert (now.status, now.due, now.ended, now.value, now.error, now.reason, now.cancel) == (
            "queued", desk.clock.now, None, None, None, None, None
        )  # fmt: skip
        assert now.deadline == desk.clock.now + 50.0
        last = desk.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.at) == (3, "retry", desk.clock.now)
        assert json.loads(last.value or "") == {
            "from": 2, "was": status, "undoing": False, "token": "again"
        }  # fmt: skip
        assert [r.id for r in desk.claim()] == ["r"]

    def test_a_cancelled_run_that_is_retried_is_no_longer_asked_to_end(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Cancel("r", "stop"))
        desk.settle(row, "cancelled")
        desk.one(Retry("r", "t"))
        desk.take()
        assert desk.store.cancels("w1") == []

    def test_a_parked_run_is_resumed_where_it_stood(self, desk: Desk) -> None:
        row = desk.held()
        desk.record(row, 1)
        desk.settle(row, "parked", reason="person needed")
        assert desk.one(Resume("r", "t")) is None
        assert desk.row().status == "queued"
        assert desk.kinds(row) == ["step", "resume"]
        assert [r.id for r in desk.claim()] == ["r"]

    @pytest.mark.parametrize(("kind", "status"), [(Retry, "failed"), (Resume, "parked")])
    def test_the_same_token_again_is_accepted_and_does_nothing(
        self, desk: Desk, kind: type[Retry | Resume], status: str
    ) -> None:
        first = desk.ended(status=status)
        assert desk.commit(kind("r", "t"), kind("r", "t")) == [None, None]
        assert len(desk.store.journal(first.pk)) == 1
        desk.settle(desk.take(), status)  # it came to the same end again
        before = (desk.row(), desk.store.journal(first.pk))
        assert desk.one(kind("r", "t")) is None
        assert (desk.row(), desk.store.journal(first.pk)) == before
        assert desk.one(kind("r", "another")) is None
        assert desk.row().status == "queued"

    @pytest.mark.parametrize("status", ["queued", "running", "parked", "done"])
    def test_only_failed_cancelled_and_dead_runs_are_retried(self, desk: Desk, status: str) -> None:
        self._bring_to(desk, status)
        before = desk.row()
        assert desk.one(Retry("r", "t")) == Refused(STATUS, status)
        assert desk.row() == before
        assert desk.store.journal(before.pk) == []

    @pytest.mark.parametrize("status", ["queued", "running", "done", "failed", "cancelled"])
    def test_only_parked_runs_are_resumed(self, desk: Desk, status: str) -> None:
        self._bring_to(desk, status)
        before = desk.row()
        assert desk.one(Resume("r", "t")) == Refused(STATUS, status)
        assert desk.row() == before
        assert desk.store.journal(before.pk) == []

    def test_a_retry_is_found_again_among_values_that_are_not_json(self, desk: Desk) -> None:
        row = desk.held()
        desk.commit(entry(row, 1, value="NaN"), entry(row, 2, value="{not json"))
        desk.settle(row, "failed")
        assert desk.commit(Retry("r", "t"), Retry("r", "t")) == [None, None]
        assert desk.kinds(row) == ["step", "step", "retry"]

    # -- Retry of a child

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    @pytest.mark.parametrize("ended_as", ["done", "failed", "cancelled", "dead"])
    def test_a_child_is_not_retried_after_its_parent_has_ended(
        self, desk: Desk, status: str, ended_as: str
    ) -> None:
        parent = desk.held("parent", interruptions_max=1)
        before = desk.ended("child", status=status, parent="parent")
        if ended_as == "dead":
            assert desk.release(parent) == "dead"
        else:
            desk.settle(parent, ended_as)
        assert desk.one(Retry("child", "t")) == Refused(PARENT, ended_as)
        assert desk.row("child") == before
        assert desk.kinds(before) == []

    def test_a_child_is_not_retried_while_its_parent_is_undone(self, desk: Desk) -> None:
        parent = desk.held("parent")
        before = desk.ended("child", status="failed", parent="parent")
        assert desk.one(Undo(parent.pk, parent.fence, verdict("failed"))) is None
        assert desk.one(Retry("child", "t")) == Refused(PARENT, "undoing")
        assert desk.row("child") == before

    def test_a_child_is_not_retried_after_its_parent_was_pruned(self, desk: Desk) -> None:
        desk.ended("parent", status="failed")
        desk.clock.forward(10)
        desk.ended("child", status="failed", parent="parent")
        assert desk.one(Prune(desk.clock.now - 5)) == 1
        assert desk.one(Retry("child", "t")) == Refused(PARENT, "gone")

    @pytest.mark.parametrize("stands", ["running", "waiting", "queued", "parked"])
    def test_a_child_is_retried_while_its_parent_has_not_ended(self, desk: Desk, stands: str) -> None:
        parent = desk.held("parent")
        desk.ended("child", status="failed", parent="parent")
        if stands == "waiting":
            desk.wait(parent)
        elif stands == "queued":
            desk.release(parent)
        elif stands == "parked":
            desk.settle(parent, "parked")
        assert desk.one(Retry("child", "t")) is None
        assert desk.row("child").status == "queued"

    def test_a_retry_of_a_child_is_repeated_after_its_parent_has_ended(self, desk: Desk) -> None:
        parent = desk.held("parent")
        child = desk.ended("child", status="failed", parent="parent")
        assert desk.one(Retry("child", "t")) is None
        desk.settle(parent, "failed")
        assert desk.one(Retry("child", "t")) is None
        assert desk.kinds(child) == ["retry"]

    def test_a_child_is_not_retried_if_its_parent_has_recorded_something_meanwhile(self, desk: Desk) -> None:
        parent = desk.held("parent")
        before = desk.ended("child", status="failed", parent="parent")
        assert desk.record(parent, 1, kind="child", key="child") is None
        assert desk.one(Retry("child", "t", seen=0)) == Refused(VERSION, "1")
        assert desk.row("child") == before
        assert desk.one(Retry("child", "t", seen=1)) is None

    def test_a_child_that_is_being_undone_is_undone_further_whatever_its_parent_does(
        self, desk: Desk
    ) -> None:
        parent = desk.held("parent")
        child = desk.held("child", parent="parent")
        assert desk.one(Undo(child.pk, child.fence, verdict("cancelled"))) is None
        desk.settle(desk.take("child"), "parked", reason="stuck")
        desk.settle(parent, "failed")
        assert desk.one(Retry("child", "t")) is None
        assert desk.row("child").undoing is not None

    def test_an_each_beneath_a_run_that_has_ended_is_retried(self, desk: Desk) -> None:
        """It does nothing until the parent's step asks for it, and the parent does not retry it."""
        parent = desk.held("parent")
        desk.ended("each", status="cancelled", parent="parent", workflow=EACH)
        desk.settle(parent, "failed")
        assert desk.one(Retry("each", "t")) is None

    def _bring_to(self, desk: Desk, status: str) -> None:
        if status == "queued":
            desk.submit()
        elif status == "running":
            desk.held()
        else:
            desk.ended(status=status)
