"""Dead letters: runs that nobody executes any more until a person says so."""

from __future__ import annotations

import pytest

from outlast.store.rows import RunQuery, RunRow
from outlast.store.verbs import (
    FENCE,
    STATUS,
    Cancel,
    Leave,
    Prune,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
)
from outlast.testing.conformance.harness import Desk, Promises


def dead_letter(desk: Desk, id: str = "r") -> RunRow:
    """A run that died alone at its first start. The row of its last life."""
    row = desk.held(id, attempts_max=1)
    assert desk.lease_over().dead == (id,)
    return row


class LetterPromises(Promises):
    # -- interruptions

    def test_interruptions_are_free_up_to_their_maximum(self, desk: Desk) -> None:
        desk.submit(interruptions_max=4)
        for turn in range(1, 4):
            assert desk.release(desk.take()) == "queued"
            assert desk.row().interruptions_in_a_row == turn
        row = desk.take()
        assert desk.release(row, "deploy") == "dead"
        now = desk.row()
        assert (now.status, now.ended, now.interruptions, now.deaths) == ("dead", desk.clock.now, 4, 0)
        assert "4 times" in (now.reason or "")
        assert "deploy" in (now.reason or "")
        assert desk.kinds(row) == ["interruption"] * 4

    def test_a_release_into_death_is_accepted_again_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held(interruptions_max=1)
        verb = Release(row.pk, row.fence, "deploy")
        assert desk.one(verb) == "dead"
        before = (desk.row(), desk.store.journal(row.pk))
        assert desk.commit(verb, verb) == ["dead", "dead"]
        assert (desk.row(), desk.store.journal(row.pk)) == before

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child"])
    def test_progress_ends_a_row_of_interruptions(self, desk: Desk, kind: str) -> None:
        desk.submit(interruptions_max=2)
        seq = 1
        for _ in range(5):
            row = desk.take()
            desk.record(row, seq, kind=kind)
            seq += 2
            assert desk.release(row) == "queued"
            assert desk.row().interruptions_in_a_row == 1
        assert desk.release(desk.take()) == "dead"
        assert desk.row().interruptions == 6

    def test_progress_counts_over_a_wait_too(self, desk: Desk) -> None:
        desk.submit(interruptions_max=2)
        assert desk.release(desk.take()) == "queued"
        row = desk.take()
        desk.record(row, 2)
        desk.wait(row, due=desk.clock.now)
        assert desk.release(desk.take()) == "queued"
        assert desk.release(desk.take()) == "dead"

    @pytest.mark.parametrize("kind", ["fired", "message", "cancel"])
    def test_what_merely_reached_a_run_is_no_progress(self, desk: Desk, kind: str) -> None:
        desk.submit(interruptions_max=2)
        desk.release(desk.take())
        row = desk.take()
        desk.record(row, 2, kind=kind)
        assert desk.release(row) == "dead"

    def test_a_worker_that_leaves_can_bring_a_run_over_its_last_interruption(self, desk: Desk) -> None:
        desk.held(interruptions_max=1)
        assert desk.one(Leave("w1")) is None
        assert desk.row().status == "dead"

    def test_a_run_that_is_put_aside_or_waits_is_not_interrupted(self, desk: Desk) -> None:
        desk.submit(interruptions_max=1)
        for _ in range(3):
            assert desk.release(desk.take(), interrupted=False) == "queued"
            desk.wait(desk.take(), due=desk.clock.now)
        assert desk.row().interruptions == 0

    # -- what can be done with one

    def test_a_dead_letter_has_ended_and_is_listed_as_dead(self, desk: Desk) -> None:
        row = dead_letter(desk)
        now = desk.row()
        assert (now.status, now.worker, now.fence) == ("dead", None, -row.fence)
        assert [r.id for r in desk.store.runs(RunQuery(statuses=("dead",)))] == ["r"]
        assert desk.one(Send("r", "a", "1", "1")) == Refused(STATUS, "dead")
        assert desk.one(Resume("r", "t")) == Refused(STATUS, "dead")
        assert desk.store.queues()[0].dead == 1

    def test_a_dead_letter_is_pruned_only_if_that_is_asked_for(self, desk: Desk) -> None:
        row = dead_letter(desk)
        assert desk.one(Prune(desk.clock.now + 1)) == 0
        assert desk.row().status == "dead"
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 1
        assert desk.store.run("r") is None
        assert desk.store.journal(row.pk) == []

    def test_a_dead_letter_is_cancelled_at_once(self, desk: Desk) -> None:
        row = dead_letter(desk)
        desk.clock.forward(5)
        assert desk.one(Cancel("r", "no use")) == "cancelled"
        now = desk.row()
        assert (now.status, now.reason, now.ended, now.ready) == ("cancelled", "no use", desk.clock.now, 0)
        assert desk.kinds(row) == ["death"]
        assert desk.one(Cancel("r", "again")) == Refused(STATUS, "cancelled")

    def test_the_stale_life_of_a_cancelled_dead_letter_has_settled_nothing(self, desk: Desk) -> None:
        """It was stopped past its lease and comes back: told that its result was taken, it would lose it."""
        stale = dead_letter(desk)
        desk.one(Cancel("r", "no use"))
        for status in ("done", "cancelled"):
            assert desk.one(Settle(stale.pk, stale.fence, status, value='"late"')) == Refused(FENCE)
        assert desk.row().value is None

    def test_a_release_into_death_is_accepted_again_after_it_was_cancelled(self, desk: Desk) -> None:
        row = desk.held(interruptions_max=1)
        verb = Release(row.pk, row.fence, "deploy")
        assert desk.commit(verb, Cancel("r", "no use"), verb) == ["dead", "cancelled", "cancelled"]

    def test_a_retried_dead_letter_starts_with_clean_counts(self, desk: Desk) -> None:
        row = dead_letter(desk)
        desk.clock.forward(5)
        assert desk.one(Retry("r", "t")) is None
        now = desk.row()
        assert (now.status, now.due, now.ready, now.ended, now.reason) == (
            "queued", desk.clock.now, 1, None, None
        )  # fmt: skip
        assert (now.deaths, now.deaths_in_a_row, now.interruptions_in_a_row, now.failures) == (0, 0, 0, 0)
        assert desk.kinds(row) == ["death", "retry"]
        assert [r.id for r in desk.claim("w2")] == ["r"]

    def test_a_retried_dead_letter_has_all_its_attempts_again(self, desk: Desk) -> None:
        desk.submit(attempts_max=2, interruptions_max=2)
        for turn in range(2):
            desk.take(worker=f"w{turn}")
            desk.lease_over(backoff=0.0)
        assert desk.row().status == "dead"
        desk.one(Retry("r", "t"))
        desk.take(worker="w2")
        assert desk.lease_over().dead == ()
        desk.one(Cancel("r", "no"))
        desk.settle(desk.take(worker="w3"), "cancelled")
        desk.one(Retry("r", "t2"))
        assert desk.release(desk.take(worker="w3")) == "queued"
        assert desk.release(desk.take(worker="w3")) == "dead"

    def test_a_run_that_was_cancelled_before_it_started_has_a_journal_when_it_is_retried(
        self, desk: Desk
    ) -> None:
        """A life that took it for its first would number its entries over the `retry`."""
        desk.submit()
        desk.commit(Cancel("r", "no"), Retry("r", "t"))
        row = desk.take()
        assert desk.kinds(row) == ["retry"]
        assert row.lives > 1

    def test_lives_are_counted(self, desk: Desk) -> None:
        assert desk.submit("queued").lives == 0
        row = desk.held()
        for lives in range(1, 4):
            assert row.lives == lives
            desk.release(row)
            row = desk.take()
