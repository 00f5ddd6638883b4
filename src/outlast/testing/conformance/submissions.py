"""Submit: an id is an idempotency key."""

from __future__ import annotations

import pytest

from outlast.store.verbs import WORKER, Cancel, Refused, Submit
from outlast.testing.conformance.harness import Desk, Promises

SECOND = "t2"
NEW = Submit(
    "r", "flow", '["tides"]', "t1", "seed", queue="slow", priority=3, delay=5.0, timeout=60.0, parent="p"
)


class SubmissionPromises(Promises):
    def test_a_submitted_run_is_read_back_as_it_was_given(self, desk: Desk) -> None:
        assert desk.one(NEW).new
        row = desk.row()
        assert (row.id, row.workflow, row.args, row.seed) == ("r", "flow", '["tides"]', "seed")
        assert (row.queue, row.priority, row.parent, row.timeout) == ("slow", 3, "p", 60.0)
        assert (row.status, row.worker, row.started, row.ended, row.deadline) == (
            "queued",
            None,
            None,
            None,
            None,
        )
        assert (row.created, row.due) == (desk.clock.now, desk.clock.now + 5.0)
        assert (row.deaths, row.interruptions, row.waits, row.cancel) == (0, 0, "", None)
        assert desk.store.journal(row.pk) == []

    def test_an_unknown_id_has_no_run(self, desk: Desk) -> None:
        assert desk.store.run("nobody") is None

    def test_an_id_that_exists_is_returned_and_not_touched(self, desk: Desk) -> None:
        desk.one(NEW)
        first = desk.row()
        desk.clock.forward(10)
        again = desk.one(NEW._replace(token=SECOND, workflow="other", args="[]", priority=9, seed="another"))
        assert not again.new
        assert again.row == first
        assert desk.row() == first

    def test_the_same_token_again_is_new_again(self, desk: Desk) -> None:
        desk.one(NEW)
        first = desk.row()
        desk.clock.forward(1)
        assert [outcome.new for outcome in desk.commit(NEW, NEW)] == [True, True]
        assert desk.one(NEW).new
        assert desk.row() == first

    def test_a_repeat_in_the_same_batch_is_new_too_and_another_token_joins(self, desk: Desk) -> None:
        """As the writer commits what many gave it at once."""
        outcomes = desk.commit(NEW, NEW, NEW._replace(token=SECOND), NEW._replace(id="other"))
        assert [outcome.new for outcome in outcomes] == [True, True, False, True]
        assert outcomes[2].row == desk.row()
        assert desk.store.queues()[0].queued == 2

    @pytest.mark.parametrize("since", ["claimed", "given back", "cancelled", "ended"])
    def test_the_same_token_is_not_new_once_something_became_of_the_run(self, desk: Desk, since: str) -> None:
        verb = NEW._replace(delay=0.0)
        desk.one(verb)
        if since == "cancelled":
            desk.one(Cancel("r", "no"))
        else:
            row = desk.take()
            if since == "given back":
                desk.release(row)
            elif since == "ended":
                desk.settle(row)
        outcome = desk.one(verb)
        assert not outcome.new
        assert outcome.row == desk.row()

    def test_a_worker_that_submits_owns_the_run_at_once(self, desk: Desk) -> None:
        desk.enlist("w1")
        row = desk.submit(worker="w1", timeout=30.0)
        assert (row.status, row.worker, row.started) == ("running", "w1", desk.clock.now)
        assert row.deadline == desk.clock.now + 30.0
        assert row.fence > 0
        assert desk.claim("w2") == []

    def test_an_owned_submission_with_the_same_token_is_new_again_while_it_is_held(self, desk: Desk) -> None:
        desk.enlist("w1")
        verb = NEW._replace(worker="w1")
        first = desk.one(verb)
        assert first.row == desk.row()
        assert desk.one(verb) == first
        desk.settle(first.row)
        assert not desk.one(verb).new

    def test_the_same_token_of_another_worker_is_not_new(self, desk: Desk) -> None:
        desk.enlist("w1")
        desk.enlist("w2")
        first = desk.one(NEW._replace(worker="w1"))
        again = desk.one(NEW._replace(worker="w2"))
        assert not again.new
        assert again.row == first.row

    def test_a_worker_that_is_not_enlisted_cannot_submit_for_itself(self, desk: Desk) -> None:
        outcome = desk.one(NEW._replace(worker="stranger"))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER
        assert desk.store.run("r") is None

    def test_runs_that_ended_keep_their_id(self, desk: Desk) -> None:
        desk.one(NEW)
        desk.one(Cancel("r", "no"))
        again = desk.one(NEW._replace(token=SECOND))
        assert not again.new
        assert again.row.status == "cancelled"
