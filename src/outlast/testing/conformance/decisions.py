"""Decide: what a person says of an effect that nobody knows the outcome of."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from outlast.store.protocol import BadValue
from outlast.store.rows import RunRow
from outlast.store.verbs import FENCE, STATUS, UNKNOWN, VERSION, Cancel, Decide, Refused, Resume, Settle
from outlast.testing.conformance.harness import WAIT_SECONDS, Desk, Promises
from outlast.testing.conformance.undoing import VERDICT, counts, dealt, undoing

HAPPENED = '{"what":"happened","value":{"id":7},"intent":1}'


def parked(desk: Desk, id: str = "r", **fields: Any) -> RunRow:
    """A run that waits for a decision; its row of the life that parked it."""
    row = dealt(desk, id, **fields)
    desk.settle(row, "parked", reason="unknown")
    return row


def decision(mark: str = "t", **fields: Any) -> Decide:
    said: dict[str, Any] = {"id": "r", "key": "flow/pay#1", "decision": HAPPENED, "seen": 1}
    return Decide(**(said | fields), token=mark)


class DecisionPromises(Promises):
    def test_a_decision_is_recorded_and_its_run_queued(self, desk: Desk) -> None:
        row = parked(desk)
        desk.clock.forward(5)
        assert desk.one(decision()) is None
        now = desk.row()
        assert (now.status, now.due, now.ready, now.reason, now.undoing) == (
            "queued", desk.clock.now, 1, None, None
        )  # fmt: skip
        assert counts(desk) == (1, 0)
        last = desk.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.key, last.at) == (2, "decision", "flow/pay#1", desk.clock.now)
        assert json.loads(last.value or "") == {**json.loads(HAPPENED), "token": "t"}
        assert desk.take(worker="w2").lives == 2

    def test_a_decided_run_is_queued_as_a_resumed_one_is(self, desk: Desk) -> None:
        for id in ("decided", "resumed"):
            desk.release(dealt(desk, id, timeout=50.0))
            row = desk.take(id)
            desk.one(Cancel(id, "stop"))
            desk.settle(row, "parked", reason="unknown", error='"e"', failed_at=1)
        desk.clock.forward(100)
        assert desk.commit(decision(id="decided", seen=2), Resume("resumed", "t")) == [None, None]
        one, other = (
            desk.row(id)._replace(id="", pk=0, fence=0, token=None) for id in ("decided", "resumed")
        )
        assert one == other
        assert one.deadline == desk.clock.now + 50.0
        assert desk.kinds(desk.row("decided")) == ["intent", "interruption", "decision"]

    def test_the_same_decision_again_is_accepted_and_does_nothing(self, desk: Desk) -> None:
        row = parked(desk)
        assert desk.commit(decision(), decision(decision='{"what":"did_not"}')) == [None, None]
        desk.settle(desk.take(), "parked")
        before = (desk.row(), desk.store.journal(row.pk))
        assert desk.one(decision()) is None
        assert (desk.row(), desk.store.journal(row.pk)) == before
        assert desk.one(decision("another", seen=2)) is None
        assert desk.kinds(row) == ["intent", "decision", "decision"]

    def test_a_token_is_known_among_values_that_are_not_json(self, desk: Desk) -> None:
        row = desk.held()
        desk.record(row, 1, kind="intent", value="{not json")
        desk.settle(row, "parked")
        assert desk.commit(decision(), decision()) == [None, None]
        assert desk.kinds(row) == ["intent", "decision"]

    def test_a_token_of_another_run_is_not_its_own(self, desk: Desk) -> None:
        for id in ("r", "other"):
            parked(desk, id)
        assert desk.commit(decision(), decision(id="other")) == [None, None]
        assert desk.row("other").status == "queued"

    @pytest.mark.parametrize("seen", [0, 2])
    def test_a_decision_on_something_else_than_there_is_now_is_refused(self, desk: Desk, seen: int) -> None:
        row = parked(desk)
        before = desk.row()
        assert desk.one(decision(seen=seen)) == Refused(VERSION, "1")
        assert (desk.row(), desk.kinds(row)) == (before, ["intent"])

    def test_of_two_decisions_on_the_same_the_first_counts(self, desk: Desk) -> None:
        row = parked(desk)
        assert desk.commit(decision(), decision("late")) == [None, Refused(STATUS, "queued")]
        desk.settle(desk.take(), "parked")
        assert desk.one(decision("late")) == Refused(VERSION, "2")
        assert desk.kinds(row) == ["intent", "decision"]

    @pytest.mark.parametrize("status", ["running", "done", "failed", "cancelled", "dead"])
    def test_only_a_parked_run_is_decided(self, desk: Desk, status: str) -> None:
        row = dealt(desk, attempts_max=1)
        if status == "dead":
            desk.die(row)
        elif status != "running":
            desk.settle(row, status)
        before = (desk.row(), desk.store.journal(row.pk))
        assert desk.one(decision()) == Refused(STATUS, status)
        assert (desk.row(), desk.store.journal(row.pk)) == before

    def test_nobody_can_decide_an_unknown_run(self, desk: Desk) -> None:
        assert desk.one(decision()) == Refused(UNKNOWN)

    @pytest.mark.parametrize("text", ["", "{", "[]", "1", "null"])
    def test_a_decision_that_is_no_object_is_a_bad_value_and_nothing_is_written(
        self, desk: Desk, text: str
    ) -> None:
        row = parked(desk)
        before = desk.row()
        with pytest.raises(BadValue):
            desk.one(decision(decision=text))
        assert (desk.row(), desk.kinds(row)) == (before, ["intent"])

    def test_the_life_that_parked_a_run_cannot_write_after_the_decision(self, desk: Desk) -> None:
        row = parked(desk)
        desk.one(decision())
        assert desk.record(row, 2) == Refused(FENCE)  # the number of the store's own entry
        assert desk.one(Settle(row.pk, row.fence, "parked")) == Refused(FENCE)
        assert desk.row().status == "queued"

    # -- with a verdict

    def test_a_decision_with_a_verdict_has_the_run_undone(self, desk: Desk) -> None:
        row = parked(desk, timeout=50.0)
        desk.submit("new")
        desk.clock.forward(5)
        assert desk.one(decision(verdict=VERDICT)) is None
        now = desk.row()
        assert (now.status, now.undoing, now.deadline, now.cancel) == ("queued", VERDICT, None, None)
        assert counts(desk) == (2, 0)
        assert [(e.kind, e.key, e.value == VERDICT) for e in desk.store.journal(row.pk)[1:]] == [
            ("decision", "flow/pay#1", False),
            ("undoing", "", True),
        ]
        claimed = desk.claim("w2", limit=5)
        assert [(each.id, each.undoing) for each in claimed] == [("r", VERDICT), ("new", None)]

    def test_a_decision_with_a_verdict_is_made_once(self, desk: Desk) -> None:
        row = parked(desk)
        verb = decision(verdict=VERDICT)
        assert desk.commit(verb, verb) == [None, None]
        desk.settle(desk.take(), "parked")
        assert desk.one(verb) is None
        assert (desk.row().status, desk.kinds(row)) == ("parked", ["intent", "decision", "undoing"])

    def test_a_decision_on_a_stuck_run_goes_on_with_the_undo(self, desk: Desk) -> None:
        row = dealt(desk, timeout=5.0)
        undoing(desk, row)
        desk.settle(desk.take(), "parked", reason="stuck")
        desk.clock.forward(100)
        assert desk.one(decision(seen=2)) is None
        assert (desk.row().status, desk.row().undoing, desk.row().deadline) == ("queued", VERDICT, None)
        assert desk.kinds(row) == ["intent", "undoing", "decision"]

    def test_a_decision_rings_the_bell(self, desk: Desk) -> None:
        parked(desk)
        rung = threading.Event()
        desk.store.listen(rung.set)
        desk.one(decision())
        assert rung.wait(WAIT_SECONDS)
