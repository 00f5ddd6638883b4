"""Prune: what may be forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.rows import RunQuery, RunRow
from outlast.store.verbs import (
    FENCE,
    Cancel,
    Claim,
    Forget,
    Keep,
    Prune,
    Retry,
    Send,
    Settle,
    Submit,
    SubmitMany,
    Verb,
)
from outlast.testing.conformance.harness import Desk, Promises
from outlast.testing.conformance.session_desk import noted


def letter(desk: Desk, id: str = "r", **fields: Any) -> RunRow:
    """A dead letter that has begun to deal with the outside world."""
    row = desk.held(id, interruptions_max=1, **fields)
    assert desk.record(row, 1, kind="intent") is None
    assert desk.release(row, "deploy") == "dead"
    return row


def in_batches(desk: Desk, before: float, limit: int) -> list[int]:
    """How many each batch took. Asked again and again, as `app.prune` does: until less than the limit was found."""
    counts: list[int] = []
    while not counts or counts[-1] == limit:
        counts.append(desk.one(Prune(before, limit=limit)))
    return counts


class PrunePromises(Promises):
    def test_a_pruned_run_is_gone_with_its_journal_and_mailbox(self, desk: Desk) -> None:
        row = desk.held()
        desk.record(row, 1)
        desk.one(Send("r", "a", "1", "1"))
        desk.settle(row)
        assert desk.one(Prune(desk.clock.now)) == 0  # before, not at
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run("r") is None
        assert desk.store.journal(row.pk) == []
        assert desk.store.messages(row.pk) == []
        assert desk.one(Prune(desk.clock.now + 1)) == 0

    def test_the_id_of_a_pruned_run_can_be_used_again_for_a_new_one(self, desk: Desk) -> None:
        old = desk.ended()
        desk.one(Prune(desk.clock.now + 1))
        new = desk.submit()
        assert new.pk > old.pk
        assert (new.status, new.started) == ("queued", None)

    @pytest.mark.parametrize("status", ["queued", "running", "parked"])
    def test_a_run_that_has_not_ended_stays(self, desk: Desk, status: str) -> None:
        if status == "queued":
            desk.submit()
        elif status == "running":
            desk.held()
        else:
            desk.ended(status=status)
        before = desk.row()
        assert desk.one(Prune(desk.clock.now + 1e9)) == 0
        assert desk.row() == before

    def test_the_oldest_ends_go_first_up_to_the_limit(self, desk: Desk) -> None:
        for id in ("c", "a", "b"):
            desk.ended(id)
            desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, limit=2)) == 2
        assert desk.store.run("b") is not None
        assert desk.one(Prune(desk.clock.now, limit=2)) == 1

    def test_what_stays_for_its_parents_sake_keeps_nothing_behind_it_from_being_pruned(
        self, desk: Desk
    ) -> None:
        parent = desk.held("parent")
        for number in range(7):
            desk.ended(f"kept{number}", parent="parent")
            desk.clock.forward(1)
            desk.ended(f"old{number}")
        before = desk.clock.now + 1
        assert in_batches(desk, before, 3) == [3, 3, 1]
        assert all(desk.store.run(f"old{number}") is None for number in range(7))
        assert all(desk.store.run(f"kept{number}") is not None for number in range(7))
        desk.settle(parent)
        assert desk.one(Prune(before, limit=100)) == 7 + (desk.clock.now < before)

    def test_a_child_stays_as_long_as_its_parent_has_not_ended(self, desk: Desk) -> None:
        parent = desk.held("parent")
        desk.ended("child", parent="parent")
        desk.ended("orphan", parent="never was")
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run("orphan") is None
        assert desk.store.run("child") is not None
        desk.settle(parent, "parked")
        assert desk.one(Prune(desk.clock.now + 1)) == 0

    def test_a_child_goes_with_its_parent(self, desk: Desk) -> None:
        desk.ended("parent")
        desk.ended("child", parent="parent")
        assert desk.one(Prune(desk.clock.now + 1)) == 2

    def test_who_names_runs_deletes_these_if_they_may_go_and_no_others(self, desk: Desk) -> None:
        held = desk.held("held")
        for id, parent in (("mine", None), ("too", None), ("other", None), ("child", "held")):
            desk.ended(id, parent=parent)
        named = ("mine", "too", "mine", "child", "held", "never was")
        assert desk.one(Prune(desk.clock.now, ids=named)) == 0  # before, not at
        desk.clock.forward(1)
        desk.ended("later")
        assert desk.one(Prune(desk.clock.now, ids=(*named, "later"))) == 2
        assert [desk.store.run(id) for id in ("mine", "too")] == [None, None]
        assert None not in [desk.store.run(id) for id in ("other", "child", "held", "later")]
        desk.settle(held)
        desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, limit=1, ids=named)) == 1
        assert desk.one(Prune(desk.clock.now, ids=named)) == 1
        assert desk.one(Prune(desk.clock.now)) == 2

    def test_what_may_not_go_does_not_stand_before_what_may(self, desk: Desk) -> None:
        parent = desk.held("parent")
        children = (Submit(f"c{n}", "flow", "[]", "t", "s", parent="parent") for n in range(300))
        desk.one(SubmitMany(tuple(children)))
        rows = desk.one(Claim("w1", "all", limit=300))
        desk.commit(*(Settle(row.pk, row.fence, "done") for row in rows))
        for number in range(3):
            desk.clock.forward(1)
            desk.ended(f"x{number}")
        desk.clock.forward(1)
        counts = [desk.one(Prune(desk.clock.now, limit=2)) for _ in range(3)]
        assert counts == [2, 1, 0]
        desk.settle(parent)
        desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, limit=1_000)) == 301

    # -- dead letters

    def test_a_dead_letter_stays_until_what_it_did_is_undone(self, desk: Desk) -> None:
        row = letter(desk)
        desk.clock.forward(10)
        assert desk.one(Prune(desk.clock.now)) == 0
        assert desk.kinds(row) == ["intent", "interruption"]
        assert desk.one(Cancel("r", "given up")) == "queued"
        desk.clock.forward(10)
        assert desk.one(Prune(desk.clock.now)) == 0
        desk.settle(desk.take(), "cancelled")
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run("r") is None
        assert desk.store.journal(row.pk) == []

    def test_a_dead_letter_that_was_retried_and_is_done_is_pruned_as_any_other(self, desk: Desk) -> None:
        letter(desk)
        desk.one(Retry("r", "t"))
        desk.settle(desk.take())
        assert desk.one(Prune(desk.clock.now + 1)) == 1

    def test_a_dead_item_stays_too(self, desk: Desk) -> None:
        desk.put(attempts_max=1)
        desk.release(desk.take("i"), failed=True)
        assert desk.row("i").status == "dead"
        assert desk.one(Prune(desk.clock.now + 1)) == 0
        assert desk.one(Prune(desk.clock.now + 1, items=True)) == 0
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 1

    def test_who_asks_for_it_forgets_dead_letters_too(self, desk: Desk) -> None:
        row = letter(desk)
        desk.ended("done")
        desk.ended("child", parent="r")
        assert desk.one(Prune(desk.clock.now, dead=True)) == 0  # before, not at
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 3
        assert desk.store.journal(row.pk) == []

    def test_who_names_a_dead_letter_deletes_it(self, desk: Desk) -> None:
        letter(desk)
        letter(desk, "other")
        desk.ended("child", parent="other")
        assert desk.one(Prune(desk.clock.now + 1, ids=("r", "child"))) == 2
        assert [row.id for row in desk.store.runs(RunQuery())] == ["other"]

    def test_a_dead_letter_keeps_those_below_it_as_they_are_undone_with_it(self, desk: Desk) -> None:
        letter(desk)
        desk.ended("child", parent="r")
        desk.ended("grandchild", "failed", parent="child")
        desk.clock.forward(10)
        assert desk.one(Prune(desk.clock.now)) == 0
        assert desk.one(Cancel("r", "given up")) == "queued"
        assert desk.one(Prune(desk.clock.now + 1)) == 0
        desk.settle(desk.take(), "cancelled")
        assert desk.one(Prune(desk.clock.now + 1)) == 3

    def test_a_dead_letter_keeps_those_above_it(self, desk: Desk) -> None:
        """Their ids would be new work, which would find the dead letter in the place of a child of its own."""
        desk.ended("grandparent")
        desk.ended("parent", parent="grandparent")
        letter(desk, "dead", parent="parent")
        desk.ended("sibling", parent="parent")
        desk.ended("aunt", parent="grandparent")
        assert desk.one(Prune(desk.clock.now + 1)) == 2
        assert {row.id for row in desk.store.runs(RunQuery())} == {"grandparent", "parent", "dead"}
        assert desk.one(Cancel("dead", "given up")) == "queued"
        desk.settle(desk.take("dead"), "cancelled")
        assert desk.one(Prune(desk.clock.now + 1)) == 3

    def test_what_is_far_below_a_run_that_has_not_ended_stays(self, desk: Desk) -> None:
        """That may still have to undo it, by its child."""
        above = desk.held("grandparent")
        desk.ended("parent", parent="grandparent")
        desk.ended("child", parent="parent")
        assert desk.one(Prune(desk.clock.now + 1)) == 0
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 0
        desk.settle(above)
        assert desk.one(Prune(desk.clock.now + 1)) == 3

    def test_dead_letters_do_not_stand_before_what_may_go(self, desk: Desk) -> None:
        for number in range(7):
            letter(desk, f"dead{number}")
            desk.clock.forward(1)
            desk.ended(f"old{number}")
        before = desk.clock.now + 1
        assert in_batches(desk, before, 3) == [3, 3, 1]
        assert {row.id for row in desk.store.runs(RunQuery())} == {f"dead{number}" for number in range(7)}
        assert desk.one(Prune(before, limit=5, dead=True)) == 5
        assert desk.one(Prune(before, limit=5, dead=True)) == 2

    # -- in a batch

    @pytest.mark.parametrize("verb", ["record", "keep", "forget"])
    def test_a_late_record_of_a_run_that_is_pruned_in_the_same_batch_is_refused(
        self, desk: Desk, verb: str
    ) -> None:
        """A life that has not heard of its end yet, and the tidying of the same process."""
        late = noted(desk.ended(), 1)
        late = late._replace(fence=abs(late.fence))
        verbs: dict[str, Verb] = {
            "record": late,
            "keep": Keep("s", "t", {"f": "1"}, record=late),
            "forget": Forget("s", "t", record=late),
        }
        desk.clock.forward(10)
        refused, pruned = desk.commit(verbs[verb], Prune(desk.clock.now - 5))
        assert (refused.why, pruned) == (FENCE, 1)
        assert desk.store.run("r") is None
        assert desk.store.session("s") is None

    def test_of_what_one_batch_says_of_a_session_the_last_counts_when_it_is_pruned(self, desk: Desk) -> None:
        desk.commit(Keep("kept", "1", {"f": "1"}, ttl=10.0), Keep("kept", "2", {"f": "2"}))
        desk.commit(Keep("gone", "1", {"f": "1"}, ttl=10.0), Forget("gone", "2"))
        desk.commit(Keep("short", "1", {"f": "1"}), Keep("short", "2", {"f": "2"}, ttl=10.0))
        desk.clock.forward(100)
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 2
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 0
        kept = desk.store.session("kept")
        assert kept is not None
        assert kept.fields == {"f": "2"}
