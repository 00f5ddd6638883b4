"""Check Undo: a run is queued to be compensated, with the verdict that it ends with."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    FENCE,
    STATUS,
    Cancel,
    Command,
    Refused,
    Release,
    SetQueueLimits,
    Settle,
    SetWaiting,
    Undo,
)
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.undo_setups import (
    VERDICT,
    queue_counts,
    run_with_effect,
    undo,
    verdict_of,
)


class UndoContract(Contract):
    """Check how an execution asks for its compensation."""

    @pytest.mark.parametrize("kind", ["intent", "compensation", "child", "step", "decision"])
    def test_an_intent_a_compensation_or_a_child_may_need_compensation(
        self, driver: StoreDriver, kind: str
    ) -> None:
        run_with_effect(driver, "other")
        run_with_effect(driver, kind=kind)
        assert driver.store.may_need_compensation("r") == (
            kind in ("intent", "compensation", "child")
        )
        assert not driver.store.may_need_compensation("nobody")

    def test_undo_queues_the_run_with_its_verdict_in_row_and_journal(
        self, driver: StoreDriver
    ) -> None:
        row = run_with_effect(driver, timeout=50.0)
        driver.one(Cancel("r", "stop"))
        assert queue_counts(driver) == (0, 1)
        driver.clock.forward(3)
        now = undo(driver, row)
        assert (now.status, now.fence, now.worker, now.undoing) == (
            "queued",
            -row.fence,
            None,
            VERDICT,
        )
        assert (now.due, now.ready, now.ended, now.waits) == (driver.clock.now, 1, None, "")
        assert (now.cancel, now.deadline, now.timeout) == (None, None, 50.0)
        assert queue_counts(driver) == (1, 0)
        last = driver.store.journal(row.pk)[-1]
        assert (last.seq, last.kind, last.key, last.at, last.value) == (
            2,
            "undoing",
            "",
            driver.clock.now,
            VERDICT,
        )

    def test_undo_is_not_an_interruption_but_goes_before_new_work(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        now = undo(driver, run_with_effect(driver))
        assert (now.interruptions, now.interruptions_in_a_row, now.interrupted) == (
            0,
            0,
            driver.clock.now,
        )
        assert driver.kinds(now) == ["intent", "undoing"]
        assert [row.id for row in driver.claim("w2", limit=5)] == ["r", "new"]

    def test_undo_keeps_the_place_of_an_earlier_interruption(self, driver: StoreDriver) -> None:
        driver.release(run_with_effect(driver))
        since = driver.clock.now
        driver.clock.forward(5)
        assert undo(driver, driver.take()).interrupted == since

    def test_undo_resets_the_count_of_consecutive_interruptions(self, driver: StoreDriver) -> None:
        driver.submit(interruptions_max=3)
        for _ in range(2):
            driver.release(driver.take())
        now = undo(driver, driver.take())
        assert now.interruptions_in_a_row == 0
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "dead"

    def test_undo_clears_the_suspicion_of_a_suspect(self, driver: StoreDriver) -> None:
        driver.die(run_with_effect(driver))
        driver.die(driver.take(worker="w2"), backoff=0.0)
        assert driver.row().is_suspect
        now = undo(driver, driver.take(worker="w3"))
        assert (now.deaths_in_a_row, now.deaths, now.ready) == (0, 2, 1)

    def test_a_claimed_undo_has_its_verdict_and_no_deadline(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver, timeout=50.0))
        row = driver.take()
        assert (row.undoing, row.deadline, row.status) == (VERDICT, None, "running")
        # A first execution would read no journal.
        assert row.lives == 2
        assert queue_counts(driver) == (0, 1)

    def test_undo_may_be_repeated_until_the_run_is_claimed(self, driver: StoreDriver) -> None:
        row = run_with_effect(driver)
        command = Undo(row.pk, row.fence, VERDICT)
        assert driver.one(command) is None
        before = (driver.row(), driver.store.journal(row.pk), driver.store.queues())
        driver.clock.forward(5)
        assert driver.commit(command, command) == [None, None]
        assert (driver.row(), driver.store.journal(row.pk)) == before[:2]
        assert queue_counts(driver) == (1, 0)
        driver.take(worker="w2")
        assert driver.one(command) == Refused(FENCE)

    def test_undo_by_an_execution_that_lost_the_run_is_refused(self, driver: StoreDriver) -> None:
        row = run_with_effect(driver)
        driver.die(row)
        before = (driver.row(), driver.store.journal(row.pk))
        assert driver.one(Undo(row.pk, row.fence, VERDICT)) == Refused(FENCE)
        assert (driver.row(), driver.store.journal(row.pk)) == before

    def test_a_stale_undo_is_not_taken_for_a_repeat_of_another(self, driver: StoreDriver) -> None:
        """Cover an execution that was suspended past its lease.

        Meanwhile a person cancelled the dead letter. The store did not take its own verdict.
        """
        stale = run_with_effect(driver, attempts_max=1)
        driver.die(stale)
        assert driver.one(Cancel("r", "no use")) == "queued"
        assert driver.one(Undo(stale.pk, stale.fence, VERDICT)) == Refused(FENCE)
        assert verdict_of(driver, stale)["status"] == "cancelled"

    def test_a_run_that_is_being_undone_is_not_undone_again(self, driver: StoreDriver) -> None:
        undo(driver, run_with_effect(driver))
        row = driver.take()
        assert driver.one(Undo(row.pk, row.fence, '{"status":"done"}')) == Refused(
            STATUS, "undoing"
        )
        assert (driver.row(), driver.kinds(row)) == (row, ["intent", "undoing"])

    def test_the_execution_that_asked_for_the_undo_writes_nothing_more(
        self, driver: StoreDriver
    ) -> None:
        row = run_with_effect(driver)
        undo(driver, row)
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
        child = run_with_effect(driver, "child", parent="parent")
        driver.wait(parent, children=("child",))
        undo(driver, child)
        assert driver.claim("w2", ids=("parent",)) == []
        driver.settle(driver.take("child"), "failed")
        assert driver.take("parent").id == "parent"

    def test_a_run_that_waits_for_its_undo_frees_its_slot_of_a_limited_queue(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("q", None, 1))
        row = run_with_effect(driver, queue="q")
        driver.submit("next", queue="q")
        assert driver.claim("w2", queues=("q",), limit=5) == []
        undo(driver, row)
        assert [each.id for each in driver.claim("w2", queues=("q",), limit=5)] == ["r"]

    def test_release_after_undo_returns_queued(self, driver: StoreDriver) -> None:
        """Release nothing more once the execution has asked for compensation."""
        row = run_with_effect(driver)
        undo(driver, row)
        assert driver.one(Release(row.pk, row.fence, "drain")) == "queued"
        assert driver.kinds(row) == ["intent", "undoing"]
