"""Check UndoChild: a parent has a child's effects compensated."""

from __future__ import annotations

import threading

import pytest

from outlast.store.commands import (
    FENCE,
    UNKNOWN,
    Refused,
    Settle,
    Undo,
    UndoChild,
)
from outlast.testing.conformance.harness import WAIT_SECONDS, Contract, StoreDriver
from outlast.testing.conformance.undo_setups import (
    AT_REST,
    VERDICT,
    child_at_rest,
    queue_counts,
    run_with_effect,
    undo,
    verdict_of,
)


class UndoChildContract(Contract):
    """Check which children are compensated, and which stay as they are."""

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    def test_a_child_that_is_done_is_undone(self, driver: StoreDriver, kind: str) -> None:
        driver.held("parent")
        child = run_with_effect(driver, "child", kind, parent="parent", timeout=50.0)
        driver.settle(child, "done", value='"paid"')
        driver.submit("new")
        driver.clock.forward(3)
        assert driver.one(UndoChild("child", "parent", "its parent failed")) == "queued"
        now = driver.row("child")
        assert verdict_of(driver, child) == {
            "status": "cancelled",
            "value": None,
            "error": None,
            "reason": "its parent failed",
            "failed_at": None,
        }
        assert (now.status, now.value, now.ended, now.due) == (
            "queued",
            '"paid"',
            None,
            driver.clock.now,
        )
        assert (now.fence, now.deadline) == (-child.fence, None)
        assert queue_counts(driver) == (2, 1)
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.lives) for each in claimed] == [("child", 2), ("new", 1)]

    def test_undoing_a_child_again_changes_nothing_and_returns_its_status(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        child = run_with_effect(driver, "child", parent="parent")
        driver.settle(child)
        command = UndoChild("child", "parent", "why")
        assert driver.commit(command, command) == ["queued", "queued"]
        row = driver.take("child")
        assert driver.one(command) == "running"
        assert driver.one(UndoChild("child", "parent", "another")) == "running"
        driver.wait(parent, children=("child",))
        assert driver.claim("w2", ids=("parent",)) == []
        driver.settle(row, "cancelled")
        assert driver.take("parent").id == "parent"
        assert driver.one(command) == "cancelled"
        assert (driver.row("child").value, driver.kinds(child)) == (None, ["intent", "undoing"])

    def test_a_child_that_has_nothing_to_undo_stays_done(self, driver: StoreDriver) -> None:
        before = driver.ended("child", parent="parent")
        assert driver.one(UndoChild("child", "parent", "why")) == "done"
        assert driver.row("child") == before

    @pytest.mark.parametrize("status", ["running", "parked", "failed", "cancelled"])
    def test_a_child_that_is_not_done_stays_as_it_is(
        self, driver: StoreDriver, status: str
    ) -> None:
        child = run_with_effect(driver, "child", parent="parent")
        if status != "running":
            driver.settle(child, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why")) == status
        assert (driver.row("child"), driver.kinds(child)) == (before, ["intent"])

    @pytest.mark.parametrize("kind", ["intent", "step"])
    @pytest.mark.parametrize("status", AT_REST)
    def test_an_unheld_child_at_rest_is_undone_on_request(
        self, driver: StoreDriver, status: str, kind: str
    ) -> None:
        """Compensate whatever the child has done: its own code must no longer execute."""
        child = child_at_rest(driver, status, kind)
        assert driver.row("child").status == status
        driver.submit("new")
        driver.clock.forward(3)
        command = UndoChild("child", "parent", "its parent failed", unheld=True)
        assert driver.commit(command, command) == ["queued", "queued"]
        assert verdict_of(driver, child) == {
            "status": "cancelled",
            "value": None,
            "error": None,
            "reason": "its parent failed",
            "failed_at": None,
        }
        now = driver.row("child")
        assert (now.status, now.due, now.ended, now.waits) == ("queued", driver.clock.now, None, "")
        assert (now.cancel, now.deadline, now.deaths_in_a_row) == (None, None, 0)
        assert queue_counts(driver) == (2, 0)
        assert driver.kinds(child).count("undoing") == 1
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.undoing is not None) for each in claimed] == [
            ("child", True),
            ("new", False),
        ]

    @pytest.mark.parametrize("status", AT_REST)
    def test_an_unheld_child_at_rest_stays_as_it_is_without_that_request(
        self, driver: StoreDriver, status: str
    ) -> None:
        child_at_rest(driver, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why")) == status
        assert driver.row("child") == before

    @pytest.mark.parametrize("status", ["running", "failed", "cancelled"])
    def test_a_child_that_is_held_or_has_ended_is_not_unheld(
        self, driver: StoreDriver, status: str
    ) -> None:
        child = run_with_effect(driver, "child", parent="parent")
        if status != "running":
            driver.settle(child, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why", unheld=True)) == status
        assert (driver.row("child"), driver.kinds(child)) == (before, ["intent"])

    def test_an_unheld_child_that_has_not_started_has_nothing_to_undo(
        self, driver: StoreDriver
    ) -> None:
        before = driver.submit("child", parent="parent")
        assert driver.one(UndoChild("child", "parent", "why", unheld=True)) == "queued"
        assert (driver.row("child"), driver.kinds(before)) == (before, [])

    @pytest.mark.parametrize("status", ["queued", "waiting", "parked", "dead"])
    def test_an_unheld_child_that_is_being_undone_keeps_its_verdict(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = undo(driver, run_with_effect(driver, "child", parent="parent", attempts_max=1))
        if status != "queued":
            row = driver.take("child", "w2")
        if status == "waiting":
            driver.wait(row)
        elif status == "parked":
            driver.settle(row, "parked")
        elif status == "dead":
            driver.die(row)
        before = (driver.row("child"), driver.kinds(row))
        assert driver.one(UndoChild("child", "parent", "why", unheld=True)) == status
        assert (driver.row("child"), driver.kinds(row)) == before
        assert before[0].undoing == VERDICT

    def test_an_unheld_child_that_is_done_is_undone_only_if_it_may_have_effects(
        self, driver: StoreDriver
    ) -> None:
        for id, kind, status in (("paid", "intent", "queued"), ("idle", "step", "done")):
            driver.settle(run_with_effect(driver, id, kind, parent="parent"))
            assert driver.one(UndoChild(id, "parent", "why", unheld=True)) == status

    def test_the_last_execution_of_an_undone_child_writes_nothing_more(
        self, driver: StoreDriver
    ) -> None:
        child = run_with_effect(driver, "child", parent="parent")
        driver.release(child)
        driver.one(UndoChild("child", "parent", "why", unheld=True))
        before = (driver.row("child"), driver.kinds(child))
        assert driver.one(Settle(child.pk, child.fence, "done")) == Refused(FENCE)
        assert driver.record(child, len(before[1]) + 1) == Refused(FENCE)
        assert (driver.row("child"), driver.kinds(child)) == before

    @pytest.mark.parametrize("unheld", [False, True])
    def test_only_a_childs_own_parent_can_undo_it(self, driver: StoreDriver, unheld: bool) -> None:
        for id, parent in (("child", "parent"), ("root", None)):
            driver.settle(run_with_effect(driver, id, parent=parent))
        for command in (
            UndoChild("child", "another", "why", unheld),
            UndoChild("root", "parent", "why", unheld),
            UndoChild("nobody", "parent", "why", unheld),
        ):
            assert driver.one(command) == Refused(UNKNOWN)
        assert [driver.row(id).status for id in ("child", "root")] == ["done", "done"]

    def test_a_repeated_settle_is_refused_after_the_child_was_undone(
        self, driver: StoreDriver
    ) -> None:
        child = run_with_effect(driver, "child", parent="parent")
        command = Settle(child.pk, child.fence, "done")
        assert driver.commit(command, UndoChild("child", "parent", "why"), command) == [
            None,
            "queued",
            Refused(FENCE),
        ]

    def test_an_undo_notifies_listeners(self, driver: StoreDriver) -> None:
        row, child = run_with_effect(driver), run_with_effect(driver, "child", parent="r")
        driver.settle(child)
        for command in (Undo(row.pk, row.fence, VERDICT), UndoChild("child", "r", "why")):
            notified = threading.Event()
            driver.store.listen(notified.set)
            driver.one(command)
            assert notified.wait(WAIT_SECONDS)
