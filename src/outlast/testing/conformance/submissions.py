"""Submit: an id is an idempotency key."""

from __future__ import annotations

from outlast.store.verbs import WORKER, Cancel, Refused, Submit
from outlast.testing.conformance.harness import Desk, Promises

SECOND = "t2"
NEW = Submit(
    "r", "flow", '["tides"]', "t1", "seed", queue="slow", priority=3, delay=5.0, timeout=60.0, parent="p"
)


class SubmissionPromises(Promises):
    def test_a_submitted_run_is_read_back_as_it_was_given(self, desk: Desk) -> None:
        outcome = desk.one(NEW)
        row = desk.row()
        assert outcome.new
        assert outcome.row == row
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
        first = desk.one(NEW).row
        desk.clock.forward(10)
        again = desk.one(NEW._replace(token=SECOND, workflow="other", args="[]", priority=9, seed="another"))
        assert not again.new
        assert again.row == first
        assert desk.row() == first

    def test_the_same_token_again_is_new_again(self, desk: Desk) -> None:
        first = desk.one(NEW)
        assert desk.one(NEW) == first
        assert desk.commit(NEW, NEW) == [first, first]

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
