"""Check Cancel, Retry and Resume: what people ask of a run."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import (
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
from outlast.testing.conformance.harness import Contract, StoreDriver, entry


class RequestContract(Contract):
    # -- Cancel

    def test_a_run_that_never_started_is_cancelled_at_once(self, driver: StoreDriver) -> None:
        driver.submit(delay=100.0)
        driver.clock.forward(1)
        assert driver.one(Cancel("r", "not needed")) == "cancelled"
        row = driver.row()
        assert (row.status, row.reason, row.cancel, row.ended) == (
            "cancelled",
            "not needed",
            "not needed",
            driver.clock.now,
        )
        assert driver.claim(ids=("r",)) == []

    def test_a_parked_run_is_cancelled_at_once(self, driver: StoreDriver) -> None:
        driver.ended(status="parked")
        assert driver.one(Cancel("r", "no")) == "cancelled"
        assert (driver.row().status, driver.row().ended) == ("cancelled", driver.clock.now)

    def test_a_running_run_is_asked_and_its_worker_can_see_it(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.held("other")
        assert driver.store.cancels("w1") == []
        assert driver.one(Cancel("r", "stop it")) == "running"
        assert (driver.row().status, driver.row().fence) == ("running", row.fence)
        assert driver.store.cancels("w1") == [("r", "stop it")]
        assert driver.store.cancels("w2") == []
        driver.settle(row, "cancelled")
        assert driver.store.cancels("w1") == []

    def test_a_run_that_was_interrupted_must_be_claimed_to_end(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Release(row.pk, row.fence, "drain", delay=1000.0))
        assert driver.one(Cancel("r", "stop")) == "queued"
        (claimed,) = driver.claim()
        assert claimed.cancel == "stop"

    def test_a_waiting_run_that_is_cancelled_becomes_claimable(self, driver: StoreDriver) -> None:
        driver.wait(driver.held())
        assert driver.one(Cancel("r", "stop")) == "waiting"
        (claimed,) = driver.claim()
        assert claimed.cancel == "stop"

    def test_the_first_reason_stays(self, driver: StoreDriver) -> None:
        driver.held()
        assert driver.commit(Cancel("r", "first"), Cancel("r", "second")) == ["running", "running"]
        assert driver.row().cancel == "first"

    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_the_first_reason_stays_when_the_run_is_cancelled_at_once_later(
        self, driver: StoreDriver, end: str
    ) -> None:
        row = driver.held(interruptions_max=1)
        driver.one(Cancel("r", "first"))
        if end == "dead":
            assert driver.release(row) == "dead"
        else:
            driver.settle(row, "parked")
        assert driver.one(Cancel("r", "second")) == "cancelled"
        assert (driver.row().cancel, driver.row().reason) == ("first", "first")

    def test_a_life_that_would_park_a_run_learns_that_somebody_wants_it_to_end(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        before = driver.row()
        park = Settle(row.pk, row.fence, "parked", reason="it diverged", unless_cancelled=True)
        assert driver.one(park) == Refused(CANCEL, "stop")
        assert driver.row() == before
        driver.settle(row, "cancelled", reason="stop")
        assert driver.one(park) is None, "a repeat: the life has settled it"

    def test_a_run_that_nobody_wants_to_end_is_parked(self, driver: StoreDriver) -> None:
        driver.settle(driver.held(), "parked", unless_cancelled=True)
        assert driver.row().status == "parked"

    def test_one_that_is_not_parked_holds_up_no_other_of_its_batch(
        self, driver: StoreDriver
    ) -> None:
        rows = [driver.held(id) for id in ("a", "b", "c")]
        driver.one(Cancel("b", "stop"))
        outcomes = driver.commit(
            *(Settle(r.pk, r.fence, "parked", unless_cancelled=True) for r in rows)
        )
        assert outcomes == [None, Refused(CANCEL, "stop"), None]
        assert [driver.row(id).status for id in ("a", "b", "c")] == ["parked", "running", "parked"]

    def test_a_run_that_is_being_undone_is_parked_whoever_wanted_it_to_end(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        driver.one(Undo(row.pk, row.fence, verdict("cancelled", reason="stop")))
        driver.settle(driver.take(), "parked", reason="stuck", unless_cancelled=True)
        assert (driver.row().status, driver.row().undoing is not None) == ("parked", True)

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_has_ended_cannot_be_cancelled(
        self, driver: StoreDriver, status: str
    ) -> None:
        before = driver.ended(status=status)
        assert driver.one(Cancel("r", "late")) == Refused(STATUS, status)
        assert driver.row() == before

    def test_nobody_can_cancel_retry_or_resume_an_unknown_run(self, driver: StoreDriver) -> None:
        for command in (Cancel("r", "why"), Retry("r", "t"), Resume("r", "t")):
            assert driver.one(command) == Refused(UNKNOWN)

    # -- Retry and Resume

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_a_failed_or_cancelled_run_is_retried_from_what_ended_it(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = driver.held(timeout=50.0)
        driver.commit(entry(row, 1), entry(row, 2))
        driver.settle(row, status, error='"e"', reason="why", failed_at=2)
        driver.clock.forward(100)
        assert driver.one(Retry("r", "again")) is None
        now = driver.row()
        assert (now.status, now.due, now.ended, now.value, now.error, now.reason, now.cancel) == (
            "queued", driver.clock.now, None, None, None, None, None
        )  # fmt: skip
        assert now.deadline == driver.clock.now + 50.0
        last = driver.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.at) == (3, "retry", driver.clock.now)
        assert json.loads(last.value or "") == {
            "from": 2, "was": status, "undoing": False, "token": "again"
        }  # fmt: skip
        assert [r.id for r in driver.claim()] == ["r"]

    def test_a_cancelled_run_that_is_retried_is_no_longer_asked_to_end(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        driver.settle(row, "cancelled")
        driver.one(Retry("r", "t"))
        driver.take()
        assert driver.store.cancels("w1") == []

    def test_a_parked_run_is_resumed_where_it_stood(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.record(row, 1)
        driver.settle(row, "parked", reason="person needed")
        assert driver.one(Resume("r", "t")) is None
        assert driver.row().status == "queued"
        assert driver.kinds(row) == ["step", "resume"]
        assert [r.id for r in driver.claim()] == ["r"]

    @pytest.mark.parametrize(("kind", "status"), [(Retry, "failed"), (Resume, "parked")])
    def test_the_same_token_again_is_accepted_and_does_nothing(
        self, driver: StoreDriver, kind: type[Retry | Resume], status: str
    ) -> None:
        first = driver.ended(status=status)
        assert driver.commit(kind("r", "t"), kind("r", "t")) == [None, None]
        assert len(driver.store.journal(first.pk)) == 1
        # The run ended the same way again.
        driver.settle(driver.take(), status)
        before = (driver.row(), driver.store.journal(first.pk))
        assert driver.one(kind("r", "t")) is None
        assert (driver.row(), driver.store.journal(first.pk)) == before
        assert driver.one(kind("r", "another")) is None
        assert driver.row().status == "queued"

    @pytest.mark.parametrize("status", ["queued", "running", "parked", "done"])
    def test_only_failed_cancelled_and_dead_runs_are_retried(
        self, driver: StoreDriver, status: str
    ) -> None:
        self._bring_to(driver, status)
        before = driver.row()
        assert driver.one(Retry("r", "t")) == Refused(STATUS, status)
        assert driver.row() == before
        assert driver.store.journal(before.pk) == []

    @pytest.mark.parametrize("status", ["queued", "running", "done", "failed", "cancelled"])
    def test_only_parked_runs_are_resumed(self, driver: StoreDriver, status: str) -> None:
        self._bring_to(driver, status)
        before = driver.row()
        assert driver.one(Resume("r", "t")) == Refused(STATUS, status)
        assert driver.row() == before
        assert driver.store.journal(before.pk) == []

    def test_a_retry_is_found_again_among_values_that_are_not_json(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(entry(row, 1, value="NaN"), entry(row, 2, value="{not json"))
        driver.settle(row, "failed")
        assert driver.commit(Retry("r", "t"), Retry("r", "t")) == [None, None]
        assert driver.kinds(row) == ["step", "step", "retry"]

    # -- Retry of a child

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    @pytest.mark.parametrize("ended_as", ["done", "failed", "cancelled", "dead"])
    def test_a_child_is_not_retried_after_its_parent_has_ended(
        self, driver: StoreDriver, status: str, ended_as: str
    ) -> None:
        parent = driver.held("parent", interruptions_max=1)
        before = driver.ended("child", status=status, parent="parent")
        if ended_as == "dead":
            assert driver.release(parent) == "dead"
        else:
            driver.settle(parent, ended_as)
        assert driver.one(Retry("child", "t")) == Refused(PARENT, ended_as)
        assert driver.row("child") == before
        assert driver.kinds(before) == []

    def test_a_child_is_not_retried_while_its_parent_is_undone(self, driver: StoreDriver) -> None:
        parent = driver.held("parent")
        before = driver.ended("child", status="failed", parent="parent")
        assert driver.one(Undo(parent.pk, parent.fence, verdict("failed"))) is None
        assert driver.one(Retry("child", "t")) == Refused(PARENT, "undoing")
        assert driver.row("child") == before

    def test_a_child_is_not_retried_after_its_parent_was_pruned(self, driver: StoreDriver) -> None:
        driver.ended("parent", status="failed")
        driver.clock.forward(10)
        driver.ended("child", status="failed", parent="parent")
        assert driver.one(Prune(driver.clock.now - 5)) == 1
        assert driver.one(Retry("child", "t")) == Refused(PARENT, "gone")

    @pytest.mark.parametrize("stands", ["running", "waiting", "queued", "parked"])
    def test_a_child_is_retried_while_its_parent_has_not_ended(
        self, driver: StoreDriver, stands: str
    ) -> None:
        parent = driver.held("parent")
        driver.ended("child", status="failed", parent="parent")
        if stands == "waiting":
            driver.wait(parent)
        elif stands == "queued":
            driver.release(parent)
        elif stands == "parked":
            driver.settle(parent, "parked")
        assert driver.one(Retry("child", "t")) is None
        assert driver.row("child").status == "queued"

    def test_a_retry_of_a_child_is_repeated_after_its_parent_has_ended(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        child = driver.ended("child", status="failed", parent="parent")
        assert driver.one(Retry("child", "t")) is None
        driver.settle(parent, "failed")
        assert driver.one(Retry("child", "t")) is None
        assert driver.kinds(child) == ["retry"]

    def test_a_child_is_not_retried_if_its_parent_has_recorded_something_meanwhile(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        before = driver.ended("child", status="failed", parent="parent")
        assert driver.record(parent, 1, kind="child", key="child") is None
        assert driver.one(Retry("child", "t", seen=0)) == Refused(VERSION, "1")
        assert driver.row("child") == before
        assert driver.one(Retry("child", "t", seen=1)) is None

    def test_a_child_that_is_being_undone_is_undone_further_whatever_its_parent_does(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        child = driver.held("child", parent="parent")
        assert driver.one(Undo(child.pk, child.fence, verdict("cancelled"))) is None
        driver.settle(driver.take("child"), "parked", reason="stuck")
        driver.settle(parent, "failed")
        assert driver.one(Retry("child", "t")) is None
        assert driver.row("child").undoing is not None

    def test_an_each_beneath_a_run_that_has_ended_is_retried(self, driver: StoreDriver) -> None:
        """Allow it: an each does nothing until its parent's step calls it.

        The parent never retries it.
        """
        parent = driver.held("parent")
        driver.ended("each", status="cancelled", parent="parent", workflow=EACH)
        driver.settle(parent, "failed")
        assert driver.one(Retry("each", "t")) is None

    def _bring_to(self, driver: StoreDriver, status: str) -> None:
        if status == "queued":
            driver.submit()
        elif status == "running":
            driver.held()
        else:
            driver.ended(status=status)
