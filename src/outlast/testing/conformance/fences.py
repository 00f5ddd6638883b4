"""Fences: no stale writer, and a number that only grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.rows import RunRow
from outlast.store.verbs import (
    FENCE,
    STATUS,
    UNKNOWN,
    Cancel,
    Decide,
    Keep,
    Leave,
    Prune,
    Record,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
    Undo,
    Verb,
    Wait,
)
from outlast.testing.conformance.harness import Desk, Promises, entry

FENCED: dict[str, Callable[[RunRow], Verb]] = {
    "record": lambda row: Record(row.pk, 77, row.fence, "step", "k", 1.0),
    "wait": lambda row: Wait(row.pk, row.fence, ("name",)),
    "settle": lambda row: Settle(row.pk, row.fence, "done"),
    "release": lambda row: Release(row.pk, row.fence, "why"),
    "undo": lambda row: Undo(row.pk, row.fence, "{}"),
}


def lose_by_release(desk: Desk, row: RunRow) -> None:
    desk.one(Release(row.pk, row.fence, "drain"))


def lose_by_leave(desk: Desk, _: RunRow) -> None:
    desk.one(Leave("w1"))


def lose_by_sweep(desk: Desk, _: RunRow) -> None:
    assert desk.lease_over().runs == ("r",)


def lose_by_retry(desk: Desk, row: RunRow) -> None:
    desk.settle(row, "failed")
    assert desk.one(Retry("r", "t")) is None


def lose_by_resume(desk: Desk, row: RunRow) -> None:
    desk.settle(row, "parked")
    assert desk.one(Resume("r", "t")) is None


def lose_by_undo(desk: Desk, row: RunRow) -> None:
    assert desk.one(Undo(row.pk, row.fence, '{"status":"failed"}')) is None


def lose_by_decision(desk: Desk, row: RunRow) -> None:
    desk.settle(row, "parked")
    seen = desk.store.last_seq(row.pk)
    assert desk.one(Decide("r", "k", "{}", seen, "t")) is None


LOSSES = [
    lose_by_release,
    lose_by_leave,
    lose_by_sweep,
    lose_by_retry,
    lose_by_resume,
    lose_by_undo,
    lose_by_decision,
]


class FencePromises(Promises):
    @pytest.mark.parametrize("verb", FENCED)
    @pytest.mark.parametrize("lose", LOSSES)
    def test_an_old_fence_is_refused_once_somebody_else_has_the_run(
        self, desk: Desk, lose: Callable[[Desk, RunRow], None], verb: str
    ) -> None:
        stale = desk.held()
        lose(desk, stale)
        current = desk.take(worker="w2")
        assert current.fence > stale.fence
        before = (desk.row(), desk.store.journal(stale.pk))
        assert desk.one(FENCED[verb](stale)) == Refused(FENCE)
        assert (desk.row(), desk.store.journal(stale.pk)) == before

    @pytest.mark.parametrize("verb", ["record", "wait", "settle", "undo"])
    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_fence_that_was_given_up_writes_nothing_while_nobody_has_the_run(
        self, desk: Desk, lose: Callable[[Desk, RunRow], None], verb: str
    ) -> None:
        stale = desk.held()
        lose(desk, stale)
        before = (desk.row(), desk.store.journal(stale.pk))
        assert desk.one(FENCED[verb](stale)) == Refused(FENCE)
        assert (desk.row(), desk.store.journal(stale.pk)) == before

    @pytest.mark.parametrize("lose", LOSSES)
    def test_the_stores_own_entry_does_not_pass_for_the_one_a_stale_life_wanted_to_record(
        self, desk: Desk, lose: Callable[[Desk, RunRow], None]
    ) -> None:
        """The store took the number that the life is about to use: a result told to be recorded would be lost."""
        stale = desk.held()
        desk.record(stale, 1)
        lose(desk, stale)
        taken = desk.store.journal(stale.pk)[-1].seq
        assert taken == 2
        assert desk.record(stale, taken, value='"lost"') == Refused(FENCE)

    @pytest.mark.parametrize("lose", LOSSES)
    def test_an_entry_tells_under_which_fence_it_was_written(
        self, desk: Desk, lose: Callable[[Desk, RunRow], None]
    ) -> None:
        """Of a life's its own, also of a `done`; the store's own have the negative of the one that is void."""
        first = desk.held()
        desk.commit(entry(first, 1), entry(first, 2, kind="done", key="item"))
        lose(desk, first)
        second = desk.take(worker="w2")
        desk.commit(Keep("s", "t", {"a": "1"}, record=entry(second, 4)), entry(second, 5))
        own, other = first.fence, second.fence
        fences = {e.seq: e.fence for e in desk.store.journal(first.pk)}
        assert fences == {1: own, 2: own, 3: -own, 4: other, 5: other}
        del fences[2]
        assert {e.seq: e.fence for e in desk.store.history(first.pk)} == fences

    def test_an_entry_of_a_run_that_never_had_a_fence_has_none(self, desk: Desk) -> None:
        row = desk.submit()
        desk.commit(Cancel("r", "no"), Retry("r", "t"))
        assert [(e.kind, e.fence) for e in desk.store.journal(row.pk)] == [("retry", 0)]
        desk.record(held := desk.take(), 2)
        assert [e.fence for e in desk.store.journal(row.pk)] == [0, held.fence]

    @pytest.mark.parametrize("verb", FENCED)
    @pytest.mark.parametrize("status", ["done", "failed", "cancelled", "parked"])
    def test_a_fence_is_void_after_the_end(self, desk: Desk, status: str, verb: str) -> None:
        row = desk.held()
        desk.settle(row, status, value="1", reason="why")
        before = (desk.row(), desk.store.journal(row.pk))
        outcome = desk.one(FENCED[verb](row))
        assert outcome == (None if verb == "settle" else Refused(FENCE))  # a settle is a repeat
        assert (desk.row(), desk.store.journal(row.pk)) == before

    @pytest.mark.parametrize("verb", FENCED)
    def test_a_number_that_no_life_was_given_is_no_fence(self, desk: Desk, verb: str) -> None:
        desk.submit("queued")
        voided = desk.ended("voided")
        current = desk.held("current")
        impostors = [
            desk.row("queued"),  # as it stands in the store: nobody's
            desk.row("voided"),
            desk.row("queued")._replace(fence=0),
            current._replace(fence=current.fence + 1),
            current._replace(fence=-current.fence),
            current._replace(fence=0),
            voided._replace(fence=0),
            current._replace(pk=current.pk + 1000),
        ]
        for impostor in impostors:
            assert desk.one(FENCED[verb](impostor)) == Refused(FENCE), impostor
        assert [desk.row(id).status for id in ("queued", "voided", "current")] == [
            "queued",
            "done",
            "running",
        ]

    def test_another_runs_fence_is_refused(self, desk: Desk) -> None:
        mine, other = desk.held("mine"), desk.held("other")
        assert desk.one(Record(other.pk, 1, mine.fence, "step", "k", 1.0)) == Refused(FENCE)
        assert desk.store.journal(other.pk) == []

    def test_a_refused_verb_fails_alone_in_a_mixed_batch(self, desk: Desk) -> None:
        good, stale = desk.held("good"), desk.held("stale")
        desk.one(Release(stale.pk, stale.fence, "drain"))
        taken = desk.take("stale", "w2")
        outcomes = desk.commit(
            entry(good, 1),
            entry(stale, 2),
            entry(taken, 2),
            Send("good", "m", "1", "1"),
            Send("nobody", "m", "1", "1"),
            Settle(stale.pk, stale.fence, "done", value='"stale"'),
            entry(good, 2),
            Release(stale.pk, stale.fence, "mine"),
            Retry("good", "t"),
            Settle(good.pk, good.fence, "done", value='"good"'),
        )
        assert [outcome and outcome.why for outcome in outcomes] == [
            None, FENCE, None, None, UNKNOWN, FENCE, None, FENCE, STATUS, None
        ]  # fmt: skip
        assert (desk.row("good").status, desk.row("good").value) == ("done", '"good"')
        assert (desk.row("stale").worker, desk.row("stale").value) == ("w2", None)
        assert desk.kinds(taken) == ["interruption", "step"]
        assert desk.kinds(good) == ["step", "step"]

    def test_verbs_of_a_batch_see_those_before_them(self, desk: Desk) -> None:
        row = desk.held()
        outcomes = desk.commit(
            entry(row, 1), Release(row.pk, row.fence, "drain"), entry(row, 3), Cancel("r", "why")
        )
        assert outcomes == [None, "queued", Refused(FENCE), "queued"]
        assert desk.kinds(row) == ["step", "interruption"]

    def test_fences_only_grow_over_all_runs_claims_and_pruning(self, desk: Desk) -> None:
        fences = []
        for number in range(3):
            row = desk.held("same")
            fences.append(row.fence)
            desk.one(Release(row.pk, row.fence, "drain"))
            fences.append((row := desk.take("same")).fence)
            fences.append(desk.held(f"other{number}").fence)
            desk.settle(row)
            desk.clock.forward(1)
            assert desk.one(Prune(desk.clock.now)) == 1
        assert fences == sorted(set(fences))

    def test_the_fence_of_another_run_is_none(self, desk: Desk) -> None:
        """Also where all fences of a batch are good, each for another run."""
        one, other = desk.held("one"), desk.held("other")
        swapped = [entry(one, 1)._replace(fence=other.fence), entry(other, 1)._replace(fence=one.fence)]
        assert [refused.why for refused in desk.commit(*swapped)] == [FENCE, FENCE]
        taken, stolen = desk.commit(entry(one, 1), entry(other, 1)._replace(fence=one.fence))
        assert (taken, stolen.why) == (None, FENCE)
        assert [len(desk.store.journal(row.pk)) for row in (one, other)] == [1, 0]

    def test_a_writer_of_a_pruned_run_cannot_touch_the_next_run_of_that_id(self, desk: Desk) -> None:
        old = desk.ended()
        desk.clock.forward(1)
        desk.one(Prune(desk.clock.now))
        held = old._replace(fence=abs(old.fence))
        new = desk.held()
        for make in FENCED.values():
            assert desk.one(make(held)) == Refused(FENCE)
            assert desk.one(make(held._replace(pk=new.pk))) == Refused(FENCE)
        assert desk.row() == new
        assert desk.store.journal(new.pk) == []
