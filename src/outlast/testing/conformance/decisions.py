"""Check Decide: a person's decision on an effect whose outcome is unknown."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from outlast.store.commands import (
    FENCE,
    STATUS,
    UNKNOWN,
    VERSION,
    Cancel,
    Decide,
    Refused,
    Resume,
    Settle,
)
from outlast.store.protocol import BadValue
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import WAIT_SECONDS, Contract, StoreDriver
from outlast.testing.conformance.undo_setups import VERDICT, queue_counts, run_with_effect, undo

HAPPENED = '{"what":"happened","value":{"id":7},"intent":1}'


def parked(driver: StoreDriver, id: str = "r", **fields: Any) -> RunRow:
    """Return a run that waits for a decision, as the row of the life that parked it."""
    row = run_with_effect(driver, id, **fields)
    driver.settle(row, "parked", reason="unknown")
    return row


def decision(mark: str = "t", **fields: Any) -> Decide:
    said: dict[str, Any] = {"id": "r", "key": "flow/pay#1", "decision": HAPPENED, "seen": 1}
    return Decide(**(said | fields), token=mark)


class DecisionContract(Contract):
    def test_a_decision_is_recorded_and_its_run_queued(self, driver: StoreDriver) -> None:
        row = parked(driver)
        driver.clock.forward(5)
        assert driver.one(decision()) is None
        now = driver.row()
        assert (now.status, now.due, now.ready, now.reason, now.undoing) == (
            "queued", driver.clock.now, 1, None, None
        )  # fmt: skip
        assert queue_counts(driver) == (1, 0)
        last = driver.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.key, last.at) == (
            2,
            "decision",
            "flow/pay#1",
            driver.clock.now,
        )
        assert json.loads(last.value or "") == {**json.loads(HAPPENED), "token": "t"}
        assert driver.take(worker="w2").lives == 2

    def test_a_decided_run_is_queued_as_a_resumed_one_is(self, driver: StoreDriver) -> None:
        for id in ("decided", "resumed"):
            driver.release(run_with_effect(driver, id, timeout=50.0))
            row = driver.take(id)
            driver.one(Cancel(id, "stop"))
            driver.settle(row, "parked", reason="unknown", error='"e"', failed_at=1)
        driver.clock.forward(100)
        assert driver.commit(decision(id="decided", seen=2), Resume("resumed", "t")) == [None, None]
        one, other = (
            driver.row(id)._replace(id="", pk=0, fence=0, token=None)
            for id in ("decided", "resumed")
        )
        assert one == other
        assert one.deadline == driver.clock.now + 50.0
        assert driver.kinds(driver.row("decided")) == ["intent", "interruption", "decision"]

    def test_the_same_decision_again_is_accepted_and_does_nothing(
        self, driver: StoreDriver
    ) -> None:
        row = parked(driver)
        assert driver.commit(decision(), decision(decision='{"what":"did_not"}')) == [None, None]
        driver.settle(driver.take(), "parked")
        before = (driver.row(), driver.store.journal(row.pk))
        assert driver.one(decision()) is None
        assert (driver.row(), driver.store.journal(row.pk)) == before
        assert driver.one(decision("another", seen=2)) is None
        assert driver.kinds(row) == ["intent", "decision", "decision"]

    def test_a_token_is_known_among_values_that_are_not_json(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.record(row, 1, kind="intent", value="{not json")
        driver.settle(row, "parked")
        assert driver.commit(decision(), decision()) == [None, None]
        assert driver.kinds(row) == ["intent", "decision"]

    def test_a_token_of_another_run_is_not_its_own(self, driver: StoreDriver) -> None:
        for id in ("r", "other"):
            parked(driver, id)
        assert driver.commit(decision(), decision(id="other")) == [None, None]
        assert driver.row("other").status == "queued"

    @pytest.mark.parametrize("seen", [0, 2])
    def test_a_decision_on_something_else_than_there_is_now_is_refused(
        self, driver: StoreDriver, seen: int
    ) -> None:
        row = parked(driver)
        before = driver.row()
        assert driver.one(decision(seen=seen)) == Refused(VERSION, "1")
        assert (driver.row(), driver.kinds(row)) == (before, ["intent"])

    def test_of_two_decisions_on_the_same_the_first_counts(self, driver: StoreDriver) -> None:
        row = parked(driver)
        assert driver.commit(decision(), decision("late")) == [None, Refused(STATUS, "queued")]
        driver.settle(driver.take(), "parked")
        assert driver.one(decision("late")) == Refused(VERSION, "2")
        assert driver.kinds(row) == ["intent", "decision"]

    @pytest.mark.parametrize("status", ["running", "done", "failed", "cancelled", "dead"])
    def test_only_a_parked_run_is_decided(self, driver: StoreDriver, status: str) -> None:
        row = run_with_effect(driver, attempts_max=1)
        if status == "dead":
            driver.die(row)
        elif status != "running":
            driver.settle(row, status)
        before = (driver.row(), driver.store.journal(row.pk))
        assert driver.one(decision()) == Refused(STATUS, status)
        assert (driver.row(), driver.store.journal(row.pk)) == before

    def test_nobody_can_decide_an_unknown_run(self, driver: StoreDriver) -> None:
        assert driver.one(decision()) == Refused(UNKNOWN)

    @pytest.mark.parametrize("text", ["", "{", "[]", "1", "null"])
    def test_a_decision_that_is_no_object_is_a_bad_value_and_nothing_is_written(
        self, driver: StoreDriver, text: str
    ) -> None:
        row = parked(driver)
        before = driver.row()
        with pytest.raises(BadValue):
            driver.one(decision(decision=text))
        assert (driver.row(), driver.kinds(row)) == (before, ["intent"])

    def test_the_life_that_parked_a_run_cannot_write_after_the_decision(
        self, driver: StoreDriver
    ) -> None:
        row = parked(driver)
        driver.one(decision())
        # The store's own entry has this number.
        assert driver.record(row, 2) == Refused(FENCE)
        assert driver.one(Settle(row.pk, row.fence, "parked")) == Refused(FENCE)
        assert driver.row().status == "queued"

    # -- with a verdict

    def test_a_decision_with_a_verdict_has_the_run_undone(self, driver: StoreDriver) -> None:
        row = parked(driver, timeout=50.0)
        driver.submit("new")
        driver.clock.forward(5)
        assert driver.one(decision(verdict=VERDICT)) is None
        now = driver.row()
        assert (now.status, now.undoing, now.deadline, now.cancel) == (
            "queued",
            VERDICT,
            None,
            None,
        )
        assert queue_counts(driver) == (2, 0)
        assert [(e.kind, e.key, e.value == VERDICT) for e in driver.store.journal(row.pk)[1:]] == [
            ("decision", "flow/pay#1", False),
            ("undoing", "", True),
        ]
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.undoing) for each in claimed] == [("r", VERDICT), ("new", None)]

    def test_a_decision_with_a_verdict_is_made_once(self, driver: StoreDriver) -> None:
        row = parked(driver)
        command = decision(verdict=VERDICT)
        assert driver.commit(command, command) == [None, None]
        driver.settle(driver.take(), "parked")
        assert driver.one(command) is None
        assert (driver.row().status, driver.kinds(row)) == (
            "parked",
            ["intent", "decision", "undoing"],
        )

    def test_a_decision_on_a_stuck_run_goes_on_with_the_undo(self, driver: StoreDriver) -> None:
        row = run_with_effect(driver, timeout=5.0)
        undo(driver, row)
        driver.settle(driver.take(), "parked", reason="stuck")
        driver.clock.forward(100)
        assert driver.one(decision(seen=2)) is None
        assert (driver.row().status, driver.row().undoing, driver.row().deadline) == (
            "queued",
            VERDICT,
            None,
        )
        assert driver.kinds(row) == ["intent", "undoing", "decision"]

    def test_a_decision_notifies(self, driver: StoreDriver) -> None:
        parked(driver)
        notified = threading.Event()
        driver.store.listen(notified.set)
        driver.one(decision())
        assert notified.wait(WAIT_SECONDS)
