"""Check Undo and UndoChild, and how other commands treat a run that is being compensated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.commands import (
    FENCE,
    STATUS,
    UNKNOWN,
    Cancel,
    Command,
    DeregisterWorker,
    Drain,
    Prune,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    SetQueueLimits,
    Settle,
    SetWaiting,
    Undo,
    UndoChild,
)
from outlast.store.rows import RunQuery, RunRow
from outlast.testing.conformance.harness import WAIT_SECONDS, Contract, StoreDriver

VERDICT = (
    '{"status":"failed","value":null,"error":"{\\"type\\":\\"E\\"}","reason":"r","failed_at":3}'
)


def dealt(driver: StoreDriver, id: str = "r", kind: str = "intent", **fields: Any) -> RunRow:
    """Return a held run that may have to be compensated."""
    row = driver.held(id, **fields)
    assert driver.record(row, 1, kind=kind) is None
    return row


def undoing(driver: StoreDriver, row: RunRow, verdict: str = VERDICT) -> RunRow:
    assert driver.one(Undo(row.pk, row.fence, verdict)) is None
    return driver.row(row.id)


def dead_undoing(driver: StoreDriver, id: str = "r") -> RunRow:
    """Return a dead letter that is not compensated yet."""
    undoing(driver, dealt(driver, id, attempts_max=1))
    driver.take(id, "grave")
    assert id in driver.lease_over().dead
    return driver.row(id)


AT_REST = ["queued", "waiting", "parked", "dead"]


def at_rest(driver: StoreDriver, status: str, kind: str = "intent") -> RunRow:
    """Return a child that has started and that no worker holds.

    The row is that of its last life, whose fence is void.
    """
    row = dealt(driver, "child", kind, parent="parent", attempts_max=1, timeout=500.0)
    if status == "queued":
        driver.release(row)
    elif status == "waiting":
        driver.wait(row, waits=("mail",))
    elif status == "parked":
        driver.settle(row, "parked")
    else:
        driver.release(row)
        driver.die(driver.take("child"))
    return row


def counts(driver: StoreDriver, queue: str = "default") -> tuple[int, int]:
    (found,) = (one for one in driver.store.queues() if one.name == queue)
    return found.queued, found.running


def told(driver: StoreDriver, row: RunRow) -> dict[str, Any]:
    """Return the verdict, on which row and journal must agree."""
    last = driver.store.journal(row.pk)[-1]
    assert (last.kind, last.value, last.at) == (
        "undoing",
        driver.row(row.id).undoing,
        driver.clock.now,
    )
    verdict: dict[str, Any] = json.loads(last.value or "")
    return verdict


class UndoContract(Contract):
    @pytest.mark.parametrize("kind", ["intent", "compensation", "child", "step", "decision"])
    def test_a_run_has_dealt_with_the_world_by_an_intent_a_compensation_or_a_child(
        self, driver: StoreDriver, kind: str
    ) -> None:
        dealt(driver, "other")
        dealt(driver, kind=kind)
        assert driver.store.has_dealt("r") == (kind in ("intent", "compensation", "child"))
        assert not driver.store.has_dealt("nobody")

    def test_a_run_to_be_undone_is_queued_with_its_verdict_in_row_and_journal(
        self, driver: StoreDriver
    ) -> None:
        row = dealt(driver, timeout=50.0)
        driver.one(Cancel("r", "stop"))
        assert counts(driver) == (0, 1)
        driver.clock.forward(3)
        now = undoing(driver, row)
        assert (now.status, now.fence, now.worker, now.undoing) == (
            "queued",
            -row.fence,
            None,
            VERDICT,
        )
        assert (now.due, now.ready, now.ended, now.waits) == (driver.clock.now, 1, None, "")
        assert (now.cancel, now.deadline, now.timeout) == (None, None, 50.0)
        assert counts(driver) == (1, 0)
        last = driver.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.key, last.at, last.value) == (
            2,
            "undoing",
            "",
            driver.clock.now,
            VERDICT,
        )

    def test_to_be_undone_is_no_interruption_but_goes_before_new_work(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        now = undoing(driver, dealt(driver))
        assert (now.interruptions, now.interruptions_in_a_row, now.interrupted) == (
            0,
            0,
            driver.clock.now,
        )
        assert driver.kinds(now) == ["intent", "undoing"]
        assert [row.id for row in driver.claim("w2", limit=5)] == ["r", "new"]

    def test_to_be_undone_does_not_lose_the_place_of_an_earlier_interruption(
        self, driver: StoreDriver
    ) -> None:
        driver.release(dealt(driver))
        since = driver.clock.now
        driver.clock.forward(5)
        assert undoing(driver, driver.take()).interrupted == since

    def test_a_row_of_interruptions_does_not_go_on_in_the_undo(self, driver: StoreDriver) -> None:
        driver.submit(interruptions_max=3)
        for _ in range(2):
            driver.release(driver.take())
        now = undoing(driver, driver.take())
        assert now.interruptions_in_a_row == 0
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "dead"

    def test_a_suspect_that_is_to_be_undone_is_one_no_longer(self, driver: StoreDriver) -> None:
        driver.die(dealt(driver))
        driver.die(driver.take(worker="w2"), backoff=0.0)
        assert driver.row().is_suspect
        now = undoing(driver, driver.take(worker="w3"))
        assert (now.deaths_in_a_row, now.deaths, now.ready) == (0, 2, 1)

    def test_what_is_undone_is_claimed_with_its_verdict_and_without_a_deadline(
        self, driver: StoreDriver
    ) -> None:
        undoing(driver, dealt(driver, timeout=50.0))
        row = driver.take()
        assert (row.undoing, row.deadline, row.status) == (VERDICT, None, "running")
        # A first life would read no journal.
        assert row.lives == 2
        assert counts(driver) == (0, 1)

    def test_an_undo_is_accepted_again_while_nobody_has_claimed_the_run(
        self, driver: StoreDriver
    ) -> None:
        row = dealt(driver)
        command = Undo(row.pk, row.fence, VERDICT)
        assert driver.one(command) is None
        before = (driver.row(), driver.store.journal(row.pk), driver.store.queues())
        driver.clock.forward(5)
        assert driver.commit(command, command) == [None, None]
        assert (driver.row(), driver.store.journal(row.pk)) == before[:2]
        assert counts(driver) == (1, 0)
        driver.take(worker="w2")
        assert driver.one(command) == Refused(FENCE)

    def test_an_undo_of_a_life_whose_run_was_taken_away_is_refused(
        self, driver: StoreDriver
    ) -> None:
        row = dealt(driver)
        driver.die(row)
        before = (driver.row(), driver.store.journal(row.pk))
        assert driver.one(Undo(row.pk, row.fence, VERDICT)) == Refused(FENCE)
        assert (driver.row(), driver.store.journal(row.pk)) == before

    def test_a_stale_undo_does_not_pass_for_somebody_elses(self, driver: StoreDriver) -> None:
        """Cover a life that was suspended past its lease while a person cancelled its dead letter.

        Its own verdict was not taken.
        """
        stale = dealt(driver, attempts_max=1)
        driver.die(stale)
        assert driver.one(Cancel("r", "no use")) == "queued"
        assert driver.one(Undo(stale.pk, stale.fence, VERDICT)) == Refused(FENCE)
        assert told(driver, stale)["status"] == "cancelled"

    def test_what_is_being_undone_is_not_undone_once_more(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver))
        row = driver.take()
        assert driver.one(Undo(row.pk, row.fence, '{"status":"done"}')) == Refused(
            STATUS, "undoing"
        )
        assert (driver.row(), driver.kinds(row)) == (row, ["intent", "undoing"])

    def test_nothing_more_is_written_by_the_life_that_wanted_the_undo(
        self, driver: StoreDriver
    ) -> None:
        row = dealt(driver)
        undoing(driver, row)
        before = (driver.row(), driver.store.journal(row.pk))
        late: list[Command] = [
            Settle(row.pk, row.fence, "failed"),
            SetWaiting(row.pk, row.fence, ("a",)),
        ]
        assert driver.commit(*late) == [Refused(FENCE)] * 2
        # The store's own entry has this number.
        assert driver.record(row, 2) == Refused(FENCE)
        assert driver.record(row, 3) == Refused(FENCE)
        assert (driver.row(), driver.store.journal(row.pk)) == before

    def test_a_parent_waits_until_its_child_is_undone(self, driver: StoreDriver) -> None:
        parent = driver.held("parent")
        child = dealt(driver, "child", parent="parent")
        driver.wait(parent, children=("child",))
        undoing(driver, child)
        assert driver.claim("w2", ids=("parent",)) == []
        driver.settle(driver.take("child"), "failed")
        assert driver.take("parent").id == "parent"

    # -- how it proceeds and ends

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_is_settled_is_no_longer_being_undone(
        self, driver: StoreDriver, status: str
    ) -> None:
        undoing(driver, dealt(driver))
        row = driver.take()
        driver.settle(row, status)
        assert (driver.row().status, driver.row().undoing) == (status, None)
        assert counts(driver) == (0, 0)
        assert driver.one(Settle(row.pk, row.fence, status)) is None

    def test_a_stuck_run_is_parked_and_still_to_be_undone(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver))
        driver.settle(driver.take(), "parked", reason="stuck")
        assert (driver.row().status, driver.row().undoing) == ("parked", VERDICT)

    def test_runs_that_are_being_undone_are_listed_on_their_own(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver, "a"))
        dealt(driver, "b")
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
    def test_however_a_life_lets_go_the_undo_goes_on(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], Any]
    ) -> None:
        undoing(driver, dealt(driver, timeout=5.0))
        lose(driver, driver.take())
        row = driver.take(worker="w2")
        assert (row.undoing, row.deadline) == (VERDICT, None)

    def test_a_dead_letter_is_still_to_be_undone(self, driver: StoreDriver) -> None:
        assert dead_undoing(driver).undoing == VERDICT

    def test_a_stuck_run_is_resumed_to_be_undone_further(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver, timeout=5.0))
        driver.settle(driver.take(), "parked")
        driver.clock.forward(100)
        assert driver.one(Resume("r", "t")) is None
        assert (driver.row().status, driver.row().undoing, driver.row().deadline) == (
            "queued",
            VERDICT,
            None,
        )

    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_a_stuck_run_is_retried_to_be_undone_further_and_nothing_is_voided(
        self, driver: StoreDriver, end: str
    ) -> None:
        if end == "dead":
            row = dead_undoing(driver)
        else:
            row = undoing(driver, dealt(driver, timeout=5.0))
            driver.settle(driver.take(), "parked", failed_at=1)
        driver.clock.forward(100)
        assert driver.commit(Retry("r", "t"), Retry("r", "t")) == [None, None]
        now = driver.row()
        assert (now.status, now.undoing, now.deadline) == ("queued", VERDICT, None)
        assert counts(driver) == (1, 0)
        last = driver.store.journal(row.pk)[-1]
        assert (last.kind, json.loads(last.value or "")) == (
            "retry",
            {"from": None, "was": end, "undoing": True, "token": "t"},
        )
        assert driver.kinds(row).count("retry") == 1
        assert driver.take(worker="w2").undoing == VERDICT

    def test_a_run_that_was_undone_is_retried_as_any_other(self, driver: StoreDriver) -> None:
        row = undoing(driver, dealt(driver, timeout=5.0))
        driver.settle(driver.take(), "failed", failed_at=1)
        assert driver.one(Retry("r", "t")) is None
        assert (driver.row().undoing, driver.row().deadline) == (None, driver.clock.now + 5.0)
        assert json.loads(driver.store.journal(row.pk)[-1].value or "")["from"] == 1

    def test_a_parked_run_that_is_not_being_undone_is_not_retried(
        self, driver: StoreDriver
    ) -> None:
        driver.settle(dealt(driver), "parked")
        assert driver.one(Retry("r", "t")) == Refused(STATUS, "parked")

    def test_a_run_that_is_being_undone_still_gets_mail(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver))
        assert driver.one(Send("r", "a", "1", "1")) is None

    def test_a_dead_letter_that_is_not_undone_yet_stays_with_its_children(
        self, driver: StoreDriver
    ) -> None:
        """Pruning it would erase the only record of what is not compensated outside."""
        dead_undoing(driver)
        driver.ended("child", parent="r")
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 0
        driver.one(Retry("r", "t"))
        driver.settle(driver.take(worker="w2"), "failed")
        assert driver.one(Prune(driver.clock.now + 1)) == 2

    # -- Cancel

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_a_run_at_rest_that_has_dealt_with_the_world_is_undone_to_be_cancelled(
        self, driver: StoreDriver, end: str, kind: str
    ) -> None:
        row = dealt(driver, kind=kind, attempts_max=1, timeout=50.0)
        if end == "dead":
            driver.release(row)
            driver.die(driver.take())
        else:
            driver.settle(row, "parked", error='"e"', reason="unknown", failed_at=1)
        driver.submit("new")
        driver.clock.forward(7)
        assert driver.one(Cancel("r", "not needed")) == "queued"
        now = driver.row()
        assert told(driver, row) == {
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
        assert counts(driver) == (2, 0)
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.lives > 1) for each in claimed] == [("r", True), ("new", False)]

    def test_the_first_reason_to_cancel_is_the_verdicts(self, driver: StoreDriver) -> None:
        row = dealt(driver)
        driver.one(Cancel("r", "first"))
        driver.settle(row, "parked")
        assert driver.one(Cancel("r", "second")) == "queued"
        assert told(driver, row)["reason"] == "first"

    @pytest.mark.parametrize("kind", ["step", "attempt", "decision"])
    def test_a_run_at_rest_with_nothing_to_undo_is_cancelled_at_once(
        self, driver: StoreDriver, kind: str
    ) -> None:
        row = dealt(driver, kind=kind)
        driver.settle(row, "parked")
        assert driver.one(Cancel("r", "no")) == "cancelled"
        assert (driver.row().undoing, driver.kinds(row)) == (None, [kind])

    def test_a_run_that_has_an_effect_and_goes_on_is_asked_as_any_other(
        self, driver: StoreDriver
    ) -> None:
        row = dealt(driver)
        assert driver.one(Cancel("r", "stop")) == "running"
        driver.release(row)
        assert driver.one(Cancel("r", "stop")) == "queued"
        assert (driver.row().cancel, driver.row().undoing) == ("stop", None)

    @pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked", "dead"])
    def test_a_run_that_is_being_undone_cannot_be_cancelled(
        self, driver: StoreDriver, status: str
    ) -> None:
        if status == "dead":
            dead_undoing(driver)
        else:
            undoing(driver, dealt(driver))
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

    def test_a_run_that_was_undone_has_ended_as_any_other(self, driver: StoreDriver) -> None:
        undoing(driver, dealt(driver))
        driver.settle(driver.take(), "failed")
        assert driver.one(Cancel("r", "why")) == Refused(STATUS, "failed")

    # -- UndoChild

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    def test_a_child_that_is_done_is_undone(self, driver: StoreDriver, kind: str) -> None:
        driver.held("parent")
        child = dealt(driver, "child", kind, parent="parent", timeout=50.0)
        driver.settle(child, "done", value='"paid"')
        driver.submit("new")
        driver.clock.forward(3)
        assert driver.one(UndoChild("child", "parent", "its parent failed")) == "queued"
        now = driver.row("child")
        assert told(driver, child) == {
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
        assert counts(driver) == (2, 1)
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.lives) for each in claimed] == [("child", 2), ("new", 1)]

    def test_to_undo_a_child_again_changes_nothing_and_tells_how_far_it_is(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        child = dealt(driver, "child", parent="parent")
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
        child = dealt(driver, "child", parent="parent")
        if status != "running":
            driver.settle(child, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why")) == status
        assert (driver.row("child"), driver.kinds(child)) == (before, ["intent"])

    @pytest.mark.parametrize("kind", ["intent", "step"])
    @pytest.mark.parametrize("status", AT_REST)
    def test_a_child_at_rest_that_nobody_holds_is_undone_if_that_is_asked_for(
        self, driver: StoreDriver, status: str, kind: str
    ) -> None:
        """Compensate whatever the child has done: its own code must not execute any more."""
        child = at_rest(driver, status, kind)
        assert driver.row("child").status == status
        driver.submit("new")
        driver.clock.forward(3)
        command = UndoChild("child", "parent", "its parent failed", unheld=True)
        assert driver.commit(command, command) == ["queued", "queued"]
        assert told(driver, child) == {
            "status": "cancelled",
            "value": None,
            "error": None,
            "reason": "its parent failed",
            "failed_at": None,
        }
        now = driver.row("child")
        assert (now.status, now.due, now.ended, now.waits) == ("queued", driver.clock.now, None, "")
        assert (now.cancel, now.deadline, now.deaths_in_a_row) == (None, None, 0)
        assert counts(driver) == (2, 0)
        assert driver.kinds(child).count("undoing") == 1
        claimed = driver.claim("w2", limit=5)
        assert [(each.id, each.undoing is not None) for each in claimed] == [
            ("child", True),
            ("new", False),
        ]

    @pytest.mark.parametrize("status", AT_REST)
    def test_a_child_at_rest_stays_as_it_is_if_that_is_not_asked_for(
        self, driver: StoreDriver, status: str
    ) -> None:
        at_rest(driver, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why")) == status
        assert driver.row("child") == before

    @pytest.mark.parametrize("status", ["running", "failed", "cancelled"])
    def test_a_child_that_somebody_holds_or_that_has_ended_is_not_taken_for_unheld(
        self, driver: StoreDriver, status: str
    ) -> None:
        child = dealt(driver, "child", parent="parent")
        if status != "running":
            driver.settle(child, status)
        before = driver.row("child")
        assert driver.one(UndoChild("child", "parent", "why", unheld=True)) == status
        assert (driver.row("child"), driver.kinds(child)) == (before, ["intent"])

    def test_an_unheld_child_that_has_not_begun_has_nothing_to_undo(
        self, driver: StoreDriver
    ) -> None:
        before = driver.submit("child", parent="parent")
        assert driver.one(UndoChild("child", "parent", "why", unheld=True)) == "queued"
        assert (driver.row("child"), driver.kinds(before)) == (before, [])

    @pytest.mark.parametrize("status", ["queued", "waiting", "parked", "dead"])
    def test_an_unheld_child_that_is_being_undone_keeps_its_verdict(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = undoing(driver, dealt(driver, "child", parent="parent", attempts_max=1))
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

    def test_an_unheld_child_that_is_done_is_undone_only_if_there_may_be_something_to_undo(
        self, driver: StoreDriver
    ) -> None:
        for id, kind, status in (("paid", "intent", "queued"), ("idle", "step", "done")):
            driver.settle(dealt(driver, id, kind, parent="parent"))
            assert driver.one(UndoChild(id, "parent", "why", unheld=True)) == status

    def test_the_life_that_an_unheld_child_had_writes_nothing_more(
        self, driver: StoreDriver
    ) -> None:
        child = dealt(driver, "child", parent="parent")
        driver.release(child)
        driver.one(UndoChild("child", "parent", "why", unheld=True))
        before = (driver.row("child"), driver.kinds(child))
        assert driver.one(Settle(child.pk, child.fence, "done")) == Refused(FENCE)
        assert driver.record(child, len(before[1]) + 1) == Refused(FENCE)
        assert (driver.row("child"), driver.kinds(child)) == before

    @pytest.mark.parametrize("unheld", [False, True])
    def test_only_its_own_parent_can_have_a_child_undone(
        self, driver: StoreDriver, unheld: bool
    ) -> None:
        for id, parent in (("child", "parent"), ("root", None)):
            driver.settle(dealt(driver, id, parent=parent))
        for command in (
            UndoChild("child", "another", "why", unheld),
            UndoChild("root", "parent", "why", unheld),
            UndoChild("nobody", "parent", "why", unheld),
        ):
            assert driver.one(command) == Refused(UNKNOWN)
        assert [driver.row(id).status for id in ("child", "root")] == ["done", "done"]

    def test_the_settle_of_a_child_that_is_undone_since_is_no_repeat_any_more(
        self, driver: StoreDriver
    ) -> None:
        child = dealt(driver, "child", parent="parent")
        command = Settle(child.pk, child.fence, "done")
        assert driver.commit(command, UndoChild("child", "parent", "why"), command) == [
            None,
            "queued",
            Refused(FENCE),
        ]

    def test_what_is_to_be_undone_rings_the_bell(self, driver: StoreDriver) -> None:
        row, child = dealt(driver), dealt(driver, "child", parent="r")
        driver.settle(child)
        for command in (Undo(row.pk, row.fence, VERDICT), UndoChild("child", "r", "why")):
            notified = threading.Event()
            driver.store.listen(notified.set)
            driver.one(command)
            assert notified.wait(WAIT_SECONDS)

    def test_a_slot_of_a_limited_queue_is_free_while_a_run_is_to_be_undone(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("q", None, 1))
        row = dealt(driver, queue="q")
        driver.submit("next", queue="q")
        assert driver.claim("w2", queues=("q",), limit=5) == []
        undoing(driver, row)
        assert [each.id for each in driver.claim("w2", queues=("q",), limit=5)] == ["r"]

    def test_a_release_under_the_fence_of_an_undo_tells_that_it_is_queued(
        self, driver: StoreDriver
    ) -> None:
        """Asking for compensation leaves a life with nothing to release."""
        row = dealt(driver)
        undoing(driver, row)
        assert driver.one(Release(row.pk, row.fence, "drain")) == "queued"
        assert driver.kinds(row) == ["intent", "undoing"]
