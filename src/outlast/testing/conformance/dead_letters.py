"""Check dead letters: runs that no worker executes until a person asks for it."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    FENCE,
    STATUS,
    Cancel,
    DeregisterWorker,
    Prune,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
)
from outlast.store.rows import RunQuery, RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver


def dead_letter(driver: StoreDriver, id: str = "r") -> RunRow:
    """Return the row of the last life of a run that died alone at its first start."""
    row = driver.held(id, attempts_max=1)
    assert driver.lease_over().dead == (id,)
    return row


class LetterContract(Contract):
    # -- interruptions

    def test_interruptions_are_free_up_to_their_maximum(self, driver: StoreDriver) -> None:
        driver.submit(interruptions_max=4)
        for turn in range(1, 4):
            assert driver.release(driver.take()) == "queued"
            assert driver.row().interruptions_in_a_row == turn
        row = driver.take()
        assert driver.release(row, "deploy") == "dead"
        now = driver.row()
        assert (now.status, now.ended, now.interruptions, now.deaths) == (
            "dead",
            driver.clock.now,
            4,
            0,
        )
        assert "4 times" in (now.reason or "")
        assert "deploy" in (now.reason or "")
        assert driver.kinds(row) == ["interruption"] * 4

    def test_a_release_into_death_is_accepted_again_and_changes_nothing(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(interruptions_max=1)
        command = Release(row.pk, row.fence, "deploy")
        assert driver.one(command) == "dead"
        before = (driver.row(), driver.store.journal(row.pk))
        assert driver.commit(command, command) == ["dead", "dead"]
        assert (driver.row(), driver.store.journal(row.pk)) == before

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child"])
    def test_progress_ends_a_row_of_interruptions(self, driver: StoreDriver, kind: str) -> None:
        driver.submit(interruptions_max=2)
        seq = 1
        for _ in range(5):
            row = driver.take()
            driver.record(row, seq, kind=kind)
            seq += 2
            assert driver.release(row) == "queued"
            assert driver.row().interruptions_in_a_row == 1
        assert driver.release(driver.take()) == "dead"
        assert driver.row().interruptions == 6

    def test_progress_counts_over_a_wait_too(self, driver: StoreDriver) -> None:
        driver.submit(interruptions_max=2)
        assert driver.release(driver.take()) == "queued"
        row = driver.take()
        driver.record(row, 2)
        driver.wait(row, due=driver.clock.now)
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "dead"

    @pytest.mark.parametrize("kind", ["fired", "message", "cancel"])
    def test_what_merely_reached_a_run_is_no_progress(self, driver: StoreDriver, kind: str) -> None:
        driver.submit(interruptions_max=2)
        driver.release(driver.take())
        row = driver.take()
        driver.record(row, 2, kind=kind)
        assert driver.release(row) == "dead"

    def test_a_worker_that_leaves_can_bring_a_run_over_its_last_interruption(
        self, driver: StoreDriver
    ) -> None:
        driver.held(interruptions_max=1)
        assert driver.one(DeregisterWorker("w1")) is None
        assert driver.row().status == "dead"

    def test_a_run_that_is_put_aside_or_waits_is_not_interrupted(self, driver: StoreDriver) -> None:
        driver.submit(interruptions_max=1)
        for _ in range(3):
            assert driver.release(driver.take(), interrupted=False) == "queued"
            driver.wait(driver.take(), due=driver.clock.now)
        assert driver.row().interruptions == 0

    # -- what can be done with one

    def test_a_dead_letter_has_ended_and_is_listed_as_dead(self, driver: StoreDriver) -> None:
        row = dead_letter(driver)
        now = driver.row()
        assert (now.status, now.worker, now.fence) == ("dead", None, -row.fence)
        assert [r.id for r in driver.store.runs(RunQuery(statuses=("dead",)))] == ["r"]
        assert driver.one(Send("r", "a", "1", "1")) == Refused(STATUS, "dead")
        assert driver.one(Resume("r", "t")) == Refused(STATUS, "dead")
        assert driver.store.queues()[0].dead == 1

    def test_a_dead_letter_is_pruned_only_if_that_is_asked_for(self, driver: StoreDriver) -> None:
        row = dead_letter(driver)
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        assert driver.row().status == "dead"
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 1
        assert driver.store.run("r") is None
        assert driver.store.journal(row.pk) == []

    def test_a_dead_letter_is_cancelled_at_once(self, driver: StoreDriver) -> None:
        row = dead_letter(driver)
        driver.clock.forward(5)
        assert driver.one(Cancel("r", "no use")) == "cancelled"
        now = driver.row()
        assert (now.status, now.reason, now.ended, now.ready) == (
            "cancelled",
            "no use",
            driver.clock.now,
            0,
        )
        assert driver.kinds(row) == ["death"]
        assert driver.one(Cancel("r", "again")) == Refused(STATUS, "cancelled")

    def test_the_stale_life_of_a_cancelled_dead_letter_has_settled_nothing(
        self, driver: StoreDriver
    ) -> None:
        """Cover a life that was suspended past its lease.

        If the store accepted its settle, the result would be lost.
        """
        stale = dead_letter(driver)
        driver.one(Cancel("r", "no use"))
        for status in ("done", "cancelled"):
            assert driver.one(Settle(stale.pk, stale.fence, status, value='"late"')) == Refused(
                FENCE
            )
        assert driver.row().value is None

    def test_a_release_into_death_is_accepted_again_after_it_was_cancelled(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(interruptions_max=1)
        command = Release(row.pk, row.fence, "deploy")
        assert driver.commit(command, Cancel("r", "no use"), command) == [
            "dead",
            "cancelled",
            "cancelled",
        ]

    def test_a_retried_dead_letter_starts_with_clean_counts(self, driver: StoreDriver) -> None:
        row = dead_letter(driver)
        driver.clock.forward(5)
        assert driver.one(Retry("r", "t")) is None
        now = driver.row()
        assert (now.status, now.due, now.ready, now.ended, now.reason) == (
            "queued", driver.clock.now, 1, None, None
        )  # fmt: skip
        assert (now.deaths, now.deaths_in_a_row, now.interruptions_in_a_row, now.failures) == (
            0,
            0,
            0,
            0,
        )
        assert driver.kinds(row) == ["death", "retry"]
        assert [r.id for r in driver.claim("w2")] == ["r"]

    def test_a_retried_dead_letter_has_all_its_attempts_again(self, driver: StoreDriver) -> None:
        driver.submit(attempts_max=2, interruptions_max=2)
        for turn in range(2):
            driver.take(worker=f"w{turn}")
            driver.lease_over(backoff=0.0)
        assert driver.row().status == "dead"
        driver.one(Retry("r", "t"))
        driver.take(worker="w2")
        assert driver.lease_over().dead == ()
        driver.one(Cancel("r", "no"))
        driver.settle(driver.take(worker="w3"), "cancelled")
        driver.one(Retry("r", "t2"))
        assert driver.release(driver.take(worker="w3")) == "queued"
        assert driver.release(driver.take(worker="w3")) == "dead"

    def test_a_run_that_was_cancelled_before_it_started_has_a_journal_when_it_is_retried(
        self, driver: StoreDriver
    ) -> None:
        """Otherwise a life would count as the first and reuse the number of the `retry` entry."""
        driver.submit()
        driver.commit(Cancel("r", "no"), Retry("r", "t"))
        row = driver.take()
        assert driver.kinds(row) == ["retry"]
        assert row.lives > 1

    def test_lives_are_counted(self, driver: StoreDriver) -> None:
        assert driver.submit("queued").lives == 0
        row = driver.held()
        for lives in range(1, 4):
            assert row.lives == lives
            driver.release(row)
            row = driver.take()
