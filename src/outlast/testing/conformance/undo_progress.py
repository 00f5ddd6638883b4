"""Check how a compensation proceeds and ends, and how other commands treat it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.commands import (
    STATUS,
    DeregisterWorker,
    Drain,
    Prune,
    Refused,
    Resume,
    Retry,
    Send,
    Settle,
)
from outlast.store.rows import RunQuery, RunRow, Status
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.undo_setups import (
    VERDICT,
    dead_letter_to_undo,
    queue_counts,
    run_with_effect,
    undo,
)


class UndoProgressContract(Contract):
    """Check a run while it is being compensated."""

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_is_settled_is_no_longer_being_undone(
        self, driver: StoreDriver, status: Status
    ) -> None:
        undo(driver, run_with_effect(driver))
        row = driver.take()
        driver.settle(row, status)
        assert (driver.row().status, driver.row().undoing) == (status, None)
        assert queue_counts(driver) == (0, 0)
        assert driver.one(Settle(row.pk, row.fence, status)) is None

    def test_a_stuck_run_is_parked_and_keeps_its_verdict(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver))
        driver.settle(driver.take(), "parked", reason="stuck")
        assert (driver.row().status, driver.row().undoing) == ("parked", VERDICT)

    def test_runs_that_are_being_undone_are_listed_on_their_own(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver, "a"))
        run_with_effect(driver, "b")
        for wanted, found in ((True, {"a"}), (False, {"b"}), (None, {"a", "b"})):
            assert {row.id for row in driver.store.runs(RunQuery(undoing=wanted))} == found
        driver.settle(driver.take("a"), "failed")
        assert driver.store.runs(RunQuery(undoing=True)) == []

    @pytest.mark.parametrize(
        "lose",
        [
            lambda driver, row: driver.release(row),
            lambda driver, row: driver.release(row, interrupted=False),
            lambda driver, row: driver.wait(row, due=driver.clock.now),
            lambda driver, _: driver.one(DeregisterWorker("w1")),
            lambda driver, _: driver.one(Drain("w1", "x")),
            lambda driver, row: driver.die(row),
        ],
    )
    def test_the_undo_continues_however_an_execution_ends(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], Any]
    ) -> None:
        undo(driver, run_with_effect(driver, timeout=5.0))
        lose(driver, driver.take())
        row = driver.take(worker="w2")
        assert (row.undoing, row.deadline) == (VERDICT, None)

    def test_a_dead_letter_keeps_its_verdict(self, driver: StoreDriver) -> None:
        assert dead_letter_to_undo(driver).undoing == VERDICT

    def test_resuming_a_stuck_run_continues_the_undo(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver, timeout=5.0))
        driver.settle(driver.take(), "parked")
        driver.clock.forward(100)
        assert driver.one(Resume("r", "t")) is None
        assert (driver.row().status, driver.row().undoing, driver.row().deadline) == (
            "queued",
            VERDICT,
            None,
        )

    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_retrying_a_stuck_run_continues_the_undo_and_voids_nothing(
        self, driver: StoreDriver, end: str
    ) -> None:
        if end == "dead":
            row = dead_letter_to_undo(driver)
        else:
            row = undo(driver, run_with_effect(driver, timeout=5.0))
            driver.settle(driver.take(), "parked", failed_at=1)
        driver.clock.forward(100)
        assert driver.commit(Retry("r", "t"), Retry("r", "t")) == [None, None]
        now = driver.row()
        assert (now.status, now.undoing, now.deadline) == ("queued", VERDICT, None)
        assert queue_counts(driver) == (1, 0)
        last = driver.store.journal(row.pk)[-1]
        assert (last.kind, json.loads(last.value or "")) == (
            "retry",
            {"from": None, "was": end, "undoing": True, "token": "t"},
        )
        assert driver.kinds(row).count("retry") == 1
        assert driver.take(worker="w2").undoing == VERDICT

    def test_a_run_that_was_undone_is_retried_like_any_other(self, driver: StoreDriver) -> None:
        row = undo(driver, run_with_effect(driver, timeout=5.0))
        driver.settle(driver.take(), "failed", failed_at=1)
        assert driver.one(Retry("r", "t")) is None
        assert (driver.row().undoing, driver.row().deadline) == (None, driver.clock.now + 5.0)
        assert json.loads(driver.store.journal(row.pk)[-1].value or "")["from"] == 1

    def test_a_parked_run_that_is_not_being_undone_is_not_retried(
        self, driver: StoreDriver
    ) -> None:
        driver.settle(run_with_effect(driver), "parked")
        assert driver.one(Retry("r", "t")) == Refused(STATUS, "parked")

    def test_a_run_that_is_being_undone_still_receives_messages(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver))
        assert driver.one(Send("r", "a", "1", "1")) is None

    def test_prune_keeps_a_dead_letter_that_is_not_undone_yet_and_its_children(
        self, driver: StoreDriver
    ) -> None:
        """Pruning it would erase the only record of what is not compensated outside."""
        dead_letter_to_undo(driver)
        driver.ended("child", parent="r")
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 0
        driver.one(Retry("r", "t"))
        driver.settle(driver.take(worker="w2"), "failed")
        assert driver.one(Prune(driver.clock.now + 1)) == 2
