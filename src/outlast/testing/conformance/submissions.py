"""Check Submit: an id is an idempotency key."""

from __future__ import annotations

import pytest

from outlast.store.commands import WORKER, Cancel, Refused, Submit
from outlast.testing.conformance.harness import Contract, StoreDriver

SECOND = "t2"
NEW = Submit(
    "r",
    "flow",
    '["tides"]',
    "t1",
    "seed",
    queue="slow",
    priority=3,
    delay=5.0,
    timeout=60.0,
    parent="p",
)


class SubmissionContract(Contract):
    def test_a_submitted_run_is_read_back_as_it_was_given(self, driver: StoreDriver) -> None:
        assert driver.one(NEW).new
        row = driver.row()
        assert (row.id, row.workflow, row.args, row.seed) == ("r", "flow", '["tides"]', "seed")
        assert (row.queue, row.priority, row.parent, row.timeout) == ("slow", 3, "p", 60.0)
        assert (row.status, row.worker, row.started, row.ended, row.deadline) == (
            "queued",
            None,
            None,
            None,
            None,
        )
        assert (row.created, row.due) == (driver.clock.now, driver.clock.now + 5.0)
        assert (row.deaths, row.interruptions, row.waits, row.cancel) == (0, 0, "", None)
        assert driver.store.journal(row.pk) == []

    def test_an_unknown_id_has_no_run(self, driver: StoreDriver) -> None:
        assert driver.store.run("nobody") is None

    def test_an_id_that_exists_is_returned_and_not_touched(self, driver: StoreDriver) -> None:
        driver.one(NEW)
        first = driver.row()
        driver.clock.forward(10)
        again = driver.one(
            NEW._replace(token=SECOND, workflow="other", args="[]", priority=9, seed="another")
        )
        assert not again.new
        assert again.row == first
        assert driver.row() == first

    def test_the_same_token_again_is_new_again(self, driver: StoreDriver) -> None:
        driver.one(NEW)
        first = driver.row()
        driver.clock.forward(1)
        assert [outcome.new for outcome in driver.commit(NEW, NEW)] == [True, True]
        assert driver.one(NEW).new
        assert driver.row() == first

    def test_a_repeat_in_the_same_batch_is_new_too_and_another_token_joins(
        self, driver: StoreDriver
    ) -> None:
        """Batch like the group-commit writer, which commits many callers' commands at once."""
        outcomes = driver.commit(NEW, NEW, NEW._replace(token=SECOND), NEW._replace(id="other"))
        assert [outcome.new for outcome in outcomes] == [True, True, False, True]
        assert outcomes[2].row == driver.row()
        assert driver.store.queues()[0].queued == 2

    @pytest.mark.parametrize("since", ["claimed", "released", "cancelled", "ended"])
    def test_the_same_token_is_not_new_once_something_became_of_the_run(
        self, driver: StoreDriver, since: str
    ) -> None:
        command = NEW._replace(delay=0.0)
        driver.one(command)
        if since == "cancelled":
            driver.one(Cancel("r", "no"))
        else:
            row = driver.take()
            if since == "released":
                driver.release(row)
            elif since == "ended":
                driver.settle(row)
        outcome = driver.one(command)
        assert not outcome.new
        assert outcome.row == driver.row()

    def test_a_worker_that_submits_owns_the_run_at_once(self, driver: StoreDriver) -> None:
        driver.register_worker("w1")
        row = driver.submit(worker="w1", timeout=30.0)
        assert (row.status, row.worker, row.started) == ("running", "w1", driver.clock.now)
        assert row.deadline == driver.clock.now + 30.0
        assert row.fence > 0
        assert driver.claim("w2") == []

    def test_an_owned_submission_with_the_same_token_is_new_again_while_it_is_held(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker("w1")
        command = NEW._replace(worker="w1")
        first = driver.one(command)
        assert first.row == driver.row()
        assert driver.one(command) == first
        driver.settle(first.row)
        assert not driver.one(command).new

    def test_the_same_token_of_another_worker_is_not_new(self, driver: StoreDriver) -> None:
        driver.register_worker("w1")
        driver.register_worker("w2")
        first = driver.one(NEW._replace(worker="w1"))
        again = driver.one(NEW._replace(worker="w2"))
        assert not again.new
        assert again.row == first.row

    def test_a_worker_that_is_not_registered_cannot_submit_for_itself(
        self, driver: StoreDriver
    ) -> None:
        outcome = driver.one(NEW._replace(worker="stranger"))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER
        assert driver.store.run("r") is None

    def test_runs_that_ended_keep_their_id(self, driver: StoreDriver) -> None:
        driver.one(NEW)
        driver.one(Cancel("r", "no"))
        again = driver.one(NEW._replace(token=SECOND))
        assert not again.new
        assert again.row.status == "cancelled"
