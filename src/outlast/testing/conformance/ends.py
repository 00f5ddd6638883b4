"""Check Settle, Release and SetWaiting: how a life ends its hold on a run."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import FENCE, Cancel, Refused, Release, Resume, Settle, SetWaiting
from outlast.store.rows import RunQuery, Status
from outlast.testing.conformance.harness import Contract, StoreDriver


class EndContract(Contract):
    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_settled_run_has_ended_with_what_was_said(
        self, driver: StoreDriver, status: Status
    ) -> None:
        row = driver.held()
        driver.clock.forward(7)
        assert driver.one(Settle(row.pk, row.fence, status, '"v"', '"e"', "why", 4)) is None
        now = driver.row()
        assert (now.status, now.value, now.error, now.reason, now.failed_at) == (
            status,
            '"v"',
            '"e"',
            "why",
            4,
        )
        assert (now.ended, now.worker) == (driver.clock.now, None)

    def test_a_parked_run_has_not_ended(self, driver: StoreDriver) -> None:
        row = driver.ended(status="parked")
        assert (row.status, row.ended, row.worker, row.reason) == ("parked", None, None, "because")

    def test_a_settle_is_accepted_again_and_changes_nothing(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = Settle(row.pk, row.fence, "done", '"first"')
        assert driver.one(command) is None
        before = driver.row()
        driver.clock.forward(5)
        assert driver.commit(command, command._replace(value='"second"')) == [None, None]
        assert driver.row() == before

    def test_a_parked_runs_settle_is_accepted_again_after_it_was_cancelled(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        command = Settle(row.pk, row.fence, "parked")
        assert driver.commit(command, Cancel("r", "no")) == [None, "cancelled"]
        assert driver.one(command) is None
        assert driver.row().status == "cancelled"

    def test_a_settle_is_refused_when_another_fence_settled_it(self, driver: StoreDriver) -> None:
        first = driver.held()
        driver.settle(first, "parked")
        driver.one(Resume("r", "t"))
        driver.settle(driver.take(), "done", value='"second"')
        assert driver.one(Settle(first.pk, first.fence, "failed")) == Refused(FENCE)
        assert (driver.row().status, driver.row().value) == ("done", '"second"')

    def test_a_released_run_is_queued_with_an_interruption_on_record(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.clock.forward(3)
        assert driver.one(Release(row.pk, row.fence, "drain")) == "queued"
        now = driver.row()
        assert (now.status, now.worker, now.reason, now.due) == (
            "queued",
            None,
            "drain",
            driver.clock.now,
        )
        assert (now.interruptions, now.interrupted, now.deaths) == (1, driver.clock.now, 0)
        (entry,) = driver.store.journal(row.pk)
        assert (entry.kind, entry.at, json.loads(entry.value or "")) == (
            "interruption",
            driver.clock.now,
            {"why": "drain"},
        )

    def test_a_release_that_is_no_interruption_leaves_no_entry(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Release(row.pk, row.fence, "not here", interrupted=False))
        assert (driver.row().interruptions, driver.row().interrupted) == (0, None)
        assert driver.store.journal(row.pk) == []

    def test_a_release_is_accepted_again_and_changes_nothing(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = Release(row.pk, row.fence, "drain")
        assert driver.one(command) == "queued"
        before = (driver.row(), driver.store.journal(row.pk))
        driver.clock.forward(5)
        assert driver.commit(command, command) == ["queued", "queued"]
        assert (driver.row(), driver.store.journal(row.pk)) == before
        driver.take(worker="w2")
        assert driver.one(command) == Refused(FENCE)

    def test_a_release_with_a_delay_is_claimable_when_it_is_over(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Release(row.pk, row.fence, "back off", delay=30.0))
        assert driver.claim() == []
        driver.clock.forward(30)
        assert [r.id for r in driver.claim()] == ["r"]

    def test_what_a_run_waits_for_can_be_seen_until_it_goes_on(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.one(SetWaiting(row.pk, row.fence, ("approval", "stop"))) is None
        assert driver.one(SetWaiting(row.pk, row.fence, ("approval", "stop"))) is None
        for name, found in (("approval", ["r"]), ("stop", ["r"]), ("appro", [])):
            assert [r.id for r in driver.store.runs(RunQuery(waiting_for=name))] == found
        driver.one(SetWaiting(row.pk, row.fence, ("stop",)))
        assert driver.store.runs(RunQuery(waiting_for="approval")) == []
        driver.one(SetWaiting(row.pk, row.fence, ()))
        assert driver.store.runs(RunQuery(waiting_for="stop")) == []
        driver.one(SetWaiting(row.pk, row.fence, ("stop",)))
        driver.settle(row)
        assert driver.store.runs(RunQuery(waiting_for="stop")) == []
