"""Check Cancel of runs whose effects must be compensated."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    STATUS,
    Cancel,
    Refused,
)
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.undo_setups import (
    dead_letter_to_undo,
    queue_counts,
    run_with_effect,
    undo,
    verdict_of,
)


class UndoByCancelContract(Contract):
    """Check which runs are compensated to be cancelled."""

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_cancelling_a_parked_or_dead_run_with_effects_undoes_it(
        self, driver: StoreDriver, end: str, kind: str
    ) -> None:
        row = run_with_effect(driver, kind=kind, attempts_max=1, timeout=50.0)
        if end == "dead":
            driver.release(row)
            driver.die(driver.take())
        else:
            driver.settle(row, "parked", error='"e"', reason="unknown", failed_at=1)
        driver.submit("new")
        driver.clock.forward(7)
        assert driver.one(Cancel("r", "not needed")) == "queued"
        now = driver.row()
        assert verdict_of(driver, row) == {
            "status": "cancelled",
            "value": None,
            "error": None,
            "reason": "not needed",
            "failed_at": None,
        }
        assert (now.status, now.due, now.ended, now.cancel, now.deadline) == (
            "queued",
            driver.clock.now,
            None,
            None,
            None,
        )
        assert (now.error, now.reason, now.failed_at, now.deaths_in_a_row) == (None, None, None, 0)
        assert queue_counts(driver) == (2, 0)
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.lives > 1) for each in claimed] == [("r", True), ("new", False)]

    def test_the_verdict_has_the_first_reason_to_cancel(self, driver: StoreDriver) -> None:
        row = run_with_effect(driver)
        driver.one(Cancel("r", "first"))
        driver.settle(row, "parked")
        assert driver.one(Cancel("r", "second")) == "queued"
        assert verdict_of(driver, row)["reason"] == "first"

    @pytest.mark.parametrize("kind", ["step", "attempt", "decision"])
    def test_a_parked_run_with_nothing_to_undo_is_cancelled_at_once(
        self, driver: StoreDriver, kind: str
    ) -> None:
        row = run_with_effect(driver, kind=kind)
        driver.settle(row, "parked")
        assert driver.one(Cancel("r", "no")) == "cancelled"
        assert (driver.row().undoing, driver.kinds(row)) == (None, [kind])

    def test_a_running_or_queued_run_with_effects_is_asked_to_cancel_like_any_other(
        self, driver: StoreDriver
    ) -> None:
        row = run_with_effect(driver)
        assert driver.one(Cancel("r", "stop")) == "running"
        driver.release(row)
        assert driver.one(Cancel("r", "stop")) == "queued"
        assert (driver.row().cancel, driver.row().undoing) == ("stop", None)

    @pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked", "dead"])
    def test_a_run_that_is_being_undone_cannot_be_cancelled(
        self, driver: StoreDriver, status: str
    ) -> None:
        if status == "dead":
            dead_letter_to_undo(driver)
        else:
            undo(driver, run_with_effect(driver))
            if status != "queued":
                row = driver.take()
                if status == "waiting":
                    driver.wait(row)
                elif status == "parked":
                    driver.settle(row, "parked")
        before = (driver.row(), driver.store.journal(driver.row().pk))
        assert before[0].status == status
        assert driver.one(Cancel("r", "why")) == Refused(STATUS, "undoing")
        assert (driver.row(), driver.store.journal(before[0].pk)) == before

    def test_a_run_that_was_undone_cannot_be_cancelled(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver))
        driver.settle(driver.take(), "failed")
        assert driver.one(Cancel("r", "why")) == Refused(STATUS, "failed")
