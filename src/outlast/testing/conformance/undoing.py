"""Undo and UndoChild, and what the other verbs do with a run that is being undone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.rows import RunQuery, RunRow
from outlast.store.verbs import (
    FENCE,
    STATUS,
    UNKNOWN,
    Cancel,
    Drain,
    Leave,
    Limit,
    Prune,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
    Undo,
    UndoChild,
    Verb,
    Wait,
)
from outlast.testing.conformance.harness import WAIT_SECONDS, Desk, Promises

VERDICT = '{"status":"failed","value":null,"error":"{\\"type\\":\\"E\\"}","reason":"r","failed_at":3}'


def dealt(desk: Desk, id: str = "r", kind: str = "intent", **fields: Any) -> RunRow:
    """A run in somebody's hands that may have to be undone."""
    row = desk.held(id, **fields)
    assert desk.record(row, 1, kind=kind) is None
    return row


def undoing(desk: Desk, row: RunRow, verdict: str = VERDICT) -> RunRow:
    assert desk.one(Undo(row.pk, row.fence, verdict)) is None
    return desk.row(row.id)


def dead_undoing(desk: Desk, id: str = "r") -> RunRow:
    """A dead letter that is not undone yet."""
    undoing(desk, dealt(desk, id, attempts_max=1))
    desk.take(id, "grave")
    assert id in desk.lease_over().dead
    return desk.row(id)


AT_REST = ["queued", "waiting", "parked", "dead"]


def at_rest(desk: Desk, status: str, kind: str = "intent") -> RunRow:
    """A child that has begun, and that nobody holds; the row is its life's, whose fence is void."""
    row = dealt(desk, "child", kind, parent="parent", attempts_max=1, timeout=500.0)
    if status == "queued":
        desk.release(row)
    elif status == "waiting":
        desk.wait(row, waits=("mail",))
    elif status == "parked":
        desk.settle(row, "parked")
    else:
        desk.release(row)
        desk.die(desk.take("child"))
    return row


def counts(desk: Desk, queue: str = "default") -> tuple[int, int]:
    (found,) = (one for one in desk.store.queues() if one.name == queue)
    return found.queued, found.running


def told(desk: Desk, row: RunRow) -> dict[str, Any]:
    """The verdict, which row and journal must agree on."""
    last = desk.store.journal(row.pk)[-1]
    assert (last.kind, last.value, last.at) == ("undoing", desk.row(row.id).undoing, desk.clock.now)
    verdict: dict[str, Any] = json.loads(last.value or "")
    return verdict


class UndoPromises(Promises):
    @pytest.mark.parametrize("kind", ["intent", "compensation", "child", "step", "decision"])
    def test_a_run_has_dealt_with_the_world_by_an_intent_a_compensation_or_a_child(
        self, desk: Desk, kind: str
    ) -> None:
        dealt(desk, "other")
        dealt(desk, kind=kind)
        assert desk.store.has_dealt("r") == (kind in ("intent", "compensation", "child"))
        assert not desk.store.has_dealt("nobody")

    def test_a_run_to_be_undone_is_queued_with_its_verdict_in_row_and_journal(self, desk: Desk) -> None:
        row = dealt(desk, timeout=50.0)
        desk.one(Cancel("r", "stop"))
        assert counts(desk) == (0, 1)
        desk.clock.forward(3)
        now = undoing(desk, row)
        assert (now.status, now.fence, now.worker, now.undoing) == ("queued", -row.fence, None, VERDICT)
        assert (now.due, now.ready, now.ended, now.waits) == (desk.clock.now, 1, None, "")
        assert (now.cancel, now.deadline, now.timeout) == (None, None, 50.0)
        assert counts(desk) == (1, 0)
        last = desk.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.key, last.at, last.value) == (
            2, "undoing", "", desk.clock.now, VERDICT
        )  # fmt: skip

    def test_to_be_undone_is_no_interruption_but_goes_before_new_work(self, desk: Desk) -> None:
        desk.submit("new")
        now = undoing(desk, dealt(desk))
        assert (now.interruptions, now.interruptions_in_a_row, now.interrupted) == (0, 0, desk.clock.now)
        assert desk.kinds(now) == ["intent", "undoing"]
        assert [row.id for row in desk.claim("w2", limit=5)] == ["r", "new"]

    def test_to_be_undone_does_not_lose_the_place_of_an_earlier_interruption(self, desk: Desk) -> None:
        desk.release(dealt(desk))
        since = desk.clock.now
        desk.clock.forward(5)
        assert undoing(desk, desk.take()).interrupted == since

    def test_a_row_of_interruptions_does_not_go_on_in_the_undo(self, desk: Desk) -> None:
        desk.submit(interruptions_max=3)
        for _ in range(2):
            desk.release(desk.take())
        now = undoing(desk, desk.take())
        assert now.interruptions_in_a_row == 0
        assert desk.release(desk.take()) == "queued"
        assert desk.release(desk.take()) == "queued"
        assert desk.release(desk.take()) == "dead"

    def test_a_suspect_that_is_to_be_undone_is_one_no_longer(self, desk: Desk) -> None:
        desk.die(dealt(desk))
        desk.die(desk.take(worker="w2"), backoff=0.0)
        assert desk.row().is_suspect
        now = undoing(desk, desk.take(worker="w3"))
        assert (now.deaths_in_a_row, now.deaths, now.ready) == (0, 2, 1)

    def test_what_is_undone_is_claimed_with_its_verdict_and_without_a_deadline(self, desk: Desk) -> None:
        undoing(desk, dealt(desk, timeout=50.0))
        row = desk.take()
        assert (row.undoing, row.deadline, row.status) == (VERDICT, None, "running")
        assert row.lives == 2  # a first life would read no journal
        assert counts(desk) == (0, 1)

    def test_an_undo_is_accepted_again_while_nobody_has_claimed_the_run(self, desk: Desk) -> None:
        row = dealt(desk)
        verb = Undo(row.pk, row.fence, VERDICT)
        assert desk.one(verb) is None
        before = (desk.row(), desk.store.journal(row.pk), desk.store.queues())
        desk.clock.forward(5)
        assert desk.commit(verb, verb) == [None, None]
        assert (desk.row(), desk.store.journal(row.pk)) == before[:2]
        assert counts(desk) == (1, 0)
        desk.take(worker="w2")
        assert desk.one(verb) == Refused(FENCE)

    def test_an_undo_of_a_life_whose_run_was_taken_away_is_refused(self, desk: Desk) -> None:
        row = dealt(desk)
        desk.die(row)
        before = (desk.row(), desk.store.journal(row.pk))
        assert desk.one(Undo(row.pk, row.fence, VERDICT)) == Refused(FENCE)
        assert (desk.row(), desk.store.journal(row.pk)) == before

    def test_a_stale_undo_does_not_pass_for_somebody_elses(self, desk: Desk) -> None:
        """It was stopped past its lease; meanwhile a person cancelled its dead letter. Its own verdict was not taken."""
        stale = dealt(desk, attempts_max=1)
        desk.die(stale)
        assert desk.one(Cancel("r", "no use")) == "queued"
        assert desk.one(Undo(stale.pk, stale.fence, VERDICT)) == Refused(FENCE)
        assert told(desk, stale)["status"] == "cancelled"

    def test_what_is_being_undone_is_not_undone_once_more(self, desk: Desk) -> None:
        undoing(desk, dealt(desk))
        row = desk.take()
        assert desk.one(Undo(row.pk, row.fence, '{"status":"done"}')) == Refused(STATUS, "undoing")
        assert (desk.row(), desk.kinds(row)) == (row, ["intent", "undoing"])

    def test_nothing_more_is_written_by_the_life_that_wanted_the_undo(self, desk: Desk) -> None:
        row = dealt(desk)
        undoing(desk, row)
        before = (desk.row(), desk.store.journal(row.pk))
        late: list[Verb] = [Settle(row.pk, row.fence, "failed"), Wait(row.pk, row.fence, ("a",))]
        assert desk.commit(*late) == [Refused(FENCE)] * 2
        assert desk.record(row, 2) == Refused(FENCE)  # the number of the store's own entry
        assert desk.record(row, 3) == Refused(FENCE)
        assert (desk.row(), desk.store.journal(row.pk)) == before

    def test_a_parent_waits_until_its_child_is_undone(self, desk: Desk) -> None:
        parent = desk.held("parent")
        child = dealt(desk, "child", parent="parent")
        desk.wait(parent, children=("child",))
        undoing(desk, child)
        assert desk.claim("w2", ids=("parent",)) == []
        desk.settle(desk.take("child"), "failed")
        assert desk.take("parent").id == "parent"

    # -- how it goes on, and ends

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_is_settled_is_no_longer_being_undone(self, desk: Desk, status: str) -> None:
        undoing(desk, dealt(desk))
        row = desk.take()
        desk.settle(row, status)
        assert (desk.row().status, desk.row().undoing) == (status, None)
        assert counts(desk) == (0, 0)
        assert desk.one(Settle(row.pk, row.fence, status)) is None

    def test_a_stuck_run_is_parked_and_still_to_be_undone(self, desk: Desk) -> None:
        undoing(desk, dealt(desk))
        desk.settle(desk.take(), "parked", reason="stuck")
        assert (desk.row().status, desk.row().undoing) == ("parked", VERDICT)

    def test_runs_that_are_being_undone_are_listed_on_their_own(self, desk: Desk) -> None:
        undoing(desk, dealt(desk, "a"))
        dealt(desk, "b")
        for wanted, found in ((True, {"a"}), (False, {"b"}), (None, {"a", "b"})):
            assert {row.id for row in desk.store.runs(RunQuery(undoing=wanted))} == found
        desk.settle(desk.take("a"), "failed")
        assert desk.store.runs(RunQuery(undoing=True)) == []

    @pytest.mark.parametrize(
        "lose",
        [
            lambda desk, row: desk.release(row),
            lambda desk, row: desk.release(row, interrupted=False),
            lambda desk, row: desk.wait(row, due=desk.clock.now),
            lambda desk, _: desk.one(Leave("w1")),
            lambda desk, _: desk.one(Drain("w1", "x")),
            lambda desk, row: desk.die(row),
        ],
    )
    def test_however_a_life_lets_go_the_undo_goes_on(
        self, desk: Desk, lose: Callable[[Desk, RunRow], Any]
    ) -> None:
        undoing(desk, dealt(desk, timeout=5.0))
        lose(desk, desk.take())
        row = desk.take(worker="w2")
        assert (row.undoing, row.deadline) == (VERDICT, None)

    def test_a_dead_letter_is_still_to_be_undone(self, desk: Desk) -> None:
        assert dead_undoing(desk).undoing == VERDICT

    def test_a_stuck_run_is_resumed_to_be_undone_further(self, desk: Desk) -> None:
        undoing(desk, dealt(desk, timeout=5.0))
        desk.settle(desk.take(), "parked")
        desk.clock.forward(100)
        assert desk.one(Resume("r", "t")) is None
        assert (desk.row().status, desk.row().undoing, desk.row().deadline) == ("queued", VERDICT, None)

    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_a_stuck_run_is_retried_to_be_undone_further_and_nothing_is_voided(
        self, desk: Desk, end: str
    ) -> None:
        if end == "dead":
            row = dead_undoing(desk)
        else:
            row = undoing(desk, dealt(desk, timeout=5.0))
            desk.settle(desk.take(), "parked", failed_at=1)
        desk.clock.forward(100)
        assert desk.commit(Retry("r", "t"), Retry("r", "t")) == [None, None]
        now = desk.row()
        assert (now.status, now.undoing, now.deadline) == ("queued", VERDICT, None)
        assert counts(desk) == (1, 0)
        last = desk.store.journal(row.pk)[-1]
        assert (last.kind, json.loads(last.value or "")) == (
            "retry",
            {"from": None, "was": end, "undoing": True, "token": "t"},
        )
        assert desk.kinds(row).count("retry") == 1
        assert desk.take(worker="w2").undoing == VERDICT

    def test_a_run_that_was_undone_is_retried_as_any_other(self, desk: Desk) -> None:
        row = undoing(desk, dealt(desk, timeout=5.0))
        desk.settle(desk.take(), "failed", failed_at=1)
        assert desk.one(Retry("r", "t")) is None
        assert (desk.row().undoing, desk.row().deadline) == (None, desk.clock.now + 5.0)
        assert json.loads(desk.store.journal(row.pk)[-1].value or "")["from"] == 1

    def test_a_parked_run_that_is_not_being_undone_is_not_retried(self, desk: Desk) -> None:
        desk.settle(dealt(desk), "parked")
        assert desk.one(Retry("r", "t")) == Refused(STATUS, "parked")

    def test_a_run_that_is_being_undone_still_gets_mail(self, desk: Desk) -> None:
        undoing(desk, dealt(desk))
        assert desk.one(Send("r", "a", "1", "1")) is None

    def test_a_dead_letter_that_is_not_undone_yet_stays_with_its_children(self, desk: Desk) -> None:
        """Pruned, nobody would know any more what was left undone in the world."""
        dead_undoing(desk)
        desk.ended("child", parent="r")
        assert desk.one(Prune(desk.clock.now + 1)) == 0
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 0
        desk.one(Retry("r", "t"))
        desk.settle(desk.take(worker="w2"), "failed")
        assert desk.one(Prune(desk.clock.now + 1)) == 2

    # -- Cancel

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    @pytest.mark.parametrize("end", ["parked", "dead"])
    def test_a_run_at_rest_that_has_dealt_with_the_world_is_undone_to_be_cancelled(
        self, desk: Desk, end: str, kind: str
    ) -> None:
        row = dealt(desk, kind=kind, attempts_max=1, timeout=50.0)
        if end == "dead":
            desk.release(row)
            desk.die(desk.take())
        else:
            desk.settle(row, "parked", error='"e"', reason="unknown", failed_at=1)
        desk.submit("new")
        desk.clock.forward(7)
        assert desk.one(Cancel("r", "not needed")) == "queued"
        now = desk.row()
        assert told(desk, row) == {
            "status": "cancelled", "value": None, "error": None, "reason": "not needed", "failed_at": None
        }  # fmt: skip
        assert (now.status, now.due, now.ended, now.cancel, now.deadline) == (
            "queued", desk.clock.now, None, None, None
        )  # fmt: skip
        assert (now.error, now.reason, now.failed_at, now.deaths_in_a_row) == (None, None, None, 0)
        assert counts(desk) == (2, 0)
        claimed = desk.claim("w2", limit=5)
        assert [(each.id, each.lives > 1) for each in claimed] == [("r", True), ("new", False)]

    def test_the_first_reason_to_cancel_is_the_verdicts(self, desk: Desk) -> None:
        row = dealt(desk)
        desk.one(Cancel("r", "first"))
        desk.settle(row, "parked")
        assert desk.one(Cancel("r", "second")) == "queued"
        assert told(desk, row)["reason"] == "first"

    @pytest.mark.parametrize("kind", ["step", "attempt", "decision"])
    def test_a_run_at_rest_with_nothing_to_undo_is_cancelled_at_once(self, desk: Desk, kind: str) -> None:
        row = dealt(desk, kind=kind)
        desk.settle(row, "parked")
        assert desk.one(Cancel("r", "no")) == "cancelled"
        assert (desk.row().undoing, desk.kinds(row)) == (None, [kind])

    def test_a_run_that_has_an_effect_and_goes_on_is_asked_as_any_other(self, desk: Desk) -> None:
        row = dealt(desk)
        assert desk.one(Cancel("r", "stop")) == "running"
        desk.release(row)
        assert desk.one(Cancel("r", "stop")) == "queued"
        assert (desk.row().cancel, desk.row().undoing) == ("stop", None)

    @pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked", "dead"])
    def test_a_run_that_is_being_undone_cannot_be_cancelled(self, desk: Desk, status: str) -> None:
        if status == "dead":
            dead_undoing(desk)
        else:
            undoing(desk, dealt(desk))
            if status != "queued":
                row = desk.take()
                if status == "waiting":
                    desk.wait(row)
                elif status == "parked":
                    desk.settle(row, "parked")
        before = (desk.row(), desk.store.journal(desk.row().pk))
        assert before[0].status == status
        assert desk.one(Cancel("r", "why")) == Refused(STATUS, "undoing")
        assert (desk.row(), desk.store.journal(before[0].pk)) == before

    def test_a_run_that_was_undone_has_ended_as_any_other(self, desk: Desk) -> None:
        undoing(desk, dealt(desk))
        desk.settle(desk.take(), "failed")
        assert desk.one(Cancel("r", "why")) == Refused(STATUS, "failed")

    # -- UndoChild

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child"])
    def test_a_child_that_is_done_is_undone(self, desk: Desk, kind: str) -> None:
        desk.held("parent")
        child = dealt(desk, "child", kind, parent="parent", timeout=50.0)
        desk.settle(child, "done", value='"paid"')
        desk.submit("new")
        desk.clock.forward(3)
        assert desk.one(UndoChild("child", "parent", "its parent failed")) == "queued"
        now = desk.row("child")
        assert told(desk, child) == {
            "status": "cancelled", "value": None, "error": None, "reason": "its parent failed", "failed_at": None
        }  # fmt: skip
        assert (now.status, now.value, now.ended, now.due) == ("queued", '"paid"', None, desk.clock.now)
        assert (now.fence, now.deadline) == (-child.fence, None)
        assert counts(desk) == (2, 1)
        claimed = desk.claim("w2", limit=5)
        assert [(each.id, each.lives) for each in claimed] == [("child", 2), ("new", 1)]

    def test_to_undo_a_child_again_changes_nothing_and_tells_how_far_it_is(self, desk: Desk) -> None:
        parent = desk.held("parent")
        child = dealt(desk, "child", parent="parent")
        desk.settle(child)
        verb = UndoChild("child", "parent", "why")
        assert desk.commit(verb, verb) == ["queued", "queued"]
        row = desk.take("child")
        assert desk.one(verb) == "running"
        assert desk.one(UndoChild("child", "parent", "another")) == "running"
        desk.wait(parent, children=("child",))
        assert desk.claim("w2", ids=("parent",)) == []
        desk.settle(row, "cancelled")
        assert desk.take("parent").id == "parent"
        assert desk.one(verb) == "cancelled"
        assert (desk.row("child").value, desk.kinds(child)) == (None, ["intent", "undoing"])

    def test_a_child_that_has_nothing_to_undo_stays_done(self, desk: Desk) -> None:
        before = desk.ended("child", parent="parent")
        assert desk.one(UndoChild("child", "parent", "why")) == "done"
        assert desk.row("child") == before

    @pytest.mark.parametrize("status", ["running", "parked", "failed", "cancelled"])
    def test_a_child_that_is_not_done_stays_as_it_is(self, desk: Desk, status: str) -> None:
        child = dealt(desk, "child", parent="parent")
        if status != "running":
            desk.settle(child, status)
        before = desk.row("child")
        assert desk.one(UndoChild("child", "parent", "why")) == status
        assert (desk.row("child"), desk.kinds(child)) == (before, ["intent"])

    @pytest.mark.parametrize("kind", ["intent", "step"])
    @pytest.mark.parametrize("status", AT_REST)
    def test_a_child_at_rest_that_nobody_holds_is_undone_if_that_is_asked_for(
        self, desk: Desk, status: str, kind: str
    ) -> None:
        """Whatever it has done: its own code is not to be executed any more."""
        child = at_rest(desk, status, kind)
        assert desk.row("child").status == status
        desk.submit("new")
        desk.clock.forward(3)
        verb = UndoChild("child", "parent", "its parent failed", unheld=True)
        assert desk.commit(verb, verb) == ["queued", "queued"]
        assert told(desk, child) == {
            "status": "cancelled", "value": None, "error": None, "reason": "its parent failed", "failed_at": None
        }  # fmt: skip
        now = desk.row("child")
        assert (now.status, now.due, now.ended, now.waits) == ("queued", desk.clock.now, None, "")
        assert (now.cancel, now.deadline, now.deaths_in_a_row) == (None, None, 0)
        assert counts(desk) == (2, 0)
        assert desk.kinds(child).count("undoing") == 1
        claimed = desk.claim("w2", limit=5)
        assert [(each.id, each.undoing is not None) for each in claimed] == [("child", True), ("new", False)]

    @pytest.mark.parametrize("status", AT_REST)
    def test_a_child_at_rest_stays_as_it_is_if_that_is_not_asked_for(self, desk: Desk, status: str) -> None:
        at_rest(desk, status)
        before = desk.row("child")
        assert desk.one(UndoChild("child", "parent", "why")) == status
        assert desk.row("child") == before

    @pytest.mark.parametrize("status", ["running", "failed", "cancelled"])
    def test_a_child_that_somebody_holds_or_that_has_ended_is_not_taken_for_unheld(
        self, desk: Desk, status: str
    ) -> None:
        child = dealt(desk, "child", parent="parent")
        if status != "running":
            desk.settle(child, status)
        before = desk.row("child")
        assert desk.one(UndoChild("child", "parent", "why", unheld=True)) == status
        assert (desk.row("child"), desk.kinds(child)) == (before, ["intent"])

    def test_an_unheld_child_that_has_not_begun_has_nothing_to_undo(self, desk: Desk) -> None:
        before = desk.submit("child", parent="parent")
        assert desk.one(UndoChild("child", "parent", "why", unheld=True)) == "queued"
        assert (desk.row("child"), desk.kinds(before)) == (before, [])

    @pytest.mark.parametrize("status", ["queued", "waiting", "parked", "dead"])
    def test_an_unheld_child_that_is_being_undone_keeps_its_verdict(self, desk: Desk, status: str) -> None:
        row = undoing(desk, dealt(desk, "child", parent="parent", attempts_max=1))
        if status != "queued":
            row = desk.take("child", "w2")
        if status == "waiting":
            desk.wait(row)
        elif status == "parked":
            desk.settle(row, "parked")
        elif status == "dead":
            desk.die(row)
        before = (desk.row("child"), desk.kinds(row))
        assert desk.one(UndoChild("child", "parent", "why", unheld=True)) == status
        assert (desk.row("child"), desk.kinds(row)) == before
        assert before[0].undoing == VERDICT

    def test_an_unheld_child_that_is_done_is_undone_only_if_there_may_be_something_to_undo(
        self, desk: Desk
    ) -> None:
        for id, kind, status in (("paid", "intent", "queued"), ("idle", "step", "done")):
            desk.settle(dealt(desk, id, kind, parent="parent"))
            assert desk.one(UndoChild(id, "parent", "why", unheld=True)) == status

    def test_the_life_that_an_unheld_child_had_writes_nothing_more(self, desk: Desk) -> None:
        child = dealt(desk, "child", parent="parent")
        desk.release(child)
        desk.one(UndoChild("child", "parent", "why", unheld=True))
        before = (desk.row("child"), desk.kinds(child))
        assert desk.one(Settle(child.pk, child.fence, "done")) == Refused(FENCE)
        assert desk.record(child, len(before[1]) + 1) == Refused(FENCE)
        assert (desk.row("child"), desk.kinds(child)) == before

    @pytest.mark.parametrize("unheld", [False, True])
    def test_only_its_own_parent_can_have_a_child_undone(self, desk: Desk, unheld: bool) -> None:
        for id, parent in (("child", "parent"), ("root", None)):
            desk.settle(dealt(desk, id, parent=parent))
        for verb in (
            UndoChild("child", "another", "why", unheld),
            UndoChild("root", "parent", "why", unheld),
            UndoChild("nobody", "parent", "why", unheld),
        ):
            assert desk.one(verb) == Refused(UNKNOWN)
        assert [desk.row(id).status for id in ("child", "root")] == ["done", "done"]

    def test_the_settle_of_a_child_that_is_undone_since_is_no_repeat_any_more(self, desk: Desk) -> None:
        child = dealt(desk, "child", parent="parent")
        verb = Settle(child.pk, child.fence, "done")
        assert desk.commit(verb, UndoChild("child", "parent", "why"), verb) == [
            None, "queued", Refused(FENCE)
        ]  # fmt: skip

    def test_what_is_to_be_undone_rings_the_bell(self, desk: Desk) -> None:
        row, child = dealt(desk), dealt(desk, "child", parent="r")
        desk.settle(child)
        for verb in (Undo(row.pk, row.fence, VERDICT), UndoChild("child", "r", "why")):
            rung = threading.Event()
            desk.store.listen(rung.set)
            desk.one(verb)
            assert rung.wait(WAIT_SECONDS)

    def test_a_slot_of_a_limited_queue_is_free_while_a_run_is_to_be_undone(self, desk: Desk) -> None:
        desk.one(Limit("q", None, 1))
        row = dealt(desk, queue="q")
        desk.submit("next", queue="q")
        assert desk.claim("w2", queues=("q",), limit=5) == []
        undoing(desk, row)
        assert [each.id for each in desk.claim("w2", queues=("q",), limit=5)] == ["r"]

    def test_a_release_under_the_fence_of_an_undo_tells_that_it_is_queued(self, desk: Desk) -> None:
        """A life that gives back what it has asked to be undone has nothing to give back."""
        row = dealt(desk)
        undoing(desk, row)
        assert desk.one(Release(row.pk, row.fence, "drain")) == "queued"
        assert desk.kinds(row) == ["intent", "undoing"]
