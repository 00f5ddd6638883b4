"""Claim: which runs a worker gets, in which order, and once each."""

from __future__ import annotations

import pytest

from outlast.store.rows import RunRow
from outlast.store.verbs import WORKER, Claim, Refused, Release
from outlast.testing.conformance.harness import Desk, Promises


def ids(rows: list[RunRow]) -> list[str]:
    return [row.id for row in rows]


class ClaimPromises(Promises):
    def test_a_claimed_run_belongs_to_its_worker_under_a_fence(self, desk: Desk) -> None:
        desk.submit(timeout=30.0)
        desk.clock.forward(100)
        (row,) = desk.claim("w1")
        assert row == desk.row()
        assert (row.status, row.worker, row.started) == ("running", "w1", desk.clock.now)
        assert row.deadline == desk.clock.now + 30.0
        assert row.fence > 0

    def test_a_claimed_run_is_not_claimed_again(self, desk: Desk) -> None:
        desk.submit()
        assert ids(desk.claim("w1")) == ["r"]
        assert desk.claim("w1") == []
        assert desk.claim("w2") == []
        assert desk.claim("w2", ids=("r",)) == []

    def test_the_first_start_and_its_deadline_stay_over_later_claims(self, desk: Desk) -> None:
        first = desk.held(timeout=30.0)
        desk.clock.forward(5)
        desk.one(Release(first.pk, first.fence, "later"))
        second = desk.take()
        assert (second.started, second.deadline) == (first.started, first.deadline)
        assert second.fence > first.fence

    def test_a_worker_that_is_not_enlisted_cannot_claim(self, desk: Desk) -> None:
        desk.submit()
        outcome = desk.one(Claim("stranger", "t"))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER
        assert desk.row().status == "queued"

    def test_the_same_token_again_gets_the_same_runs(self, desk: Desk) -> None:
        for number in range(4):
            desk.submit(f"r{number}")
        desk.enlist("w1")
        verb = Claim("w1", "again", limit=3)
        first = desk.one(verb)
        assert ids(first) == ["r0", "r1", "r2"]
        assert desk.one(verb) == first
        desk.settle(first[1])
        assert ids(desk.one(verb)) == ["r0", "r2"]
        assert desk.row("r3").status == "queued"

    def test_another_worker_gets_nothing_by_the_same_token(self, desk: Desk) -> None:
        desk.submit()
        desk.enlist("w1")
        desk.enlist("w2")
        assert ids(desk.one(Claim("w1", "same"))) == ["r"]
        assert desk.one(Claim("w2", "same")) == []
        assert desk.row().worker == "w1"

    def test_no_more_than_the_limit_is_claimed(self, desk: Desk) -> None:
        for number in range(5):
            desk.submit(f"r{number}")
        assert len(desk.claim()) == 1
        assert len(desk.claim(limit=3)) == 3
        assert len(desk.claim(limit=3)) == 1

    def test_the_highest_priority_goes_first_then_the_oldest(self, desk: Desk) -> None:
        for id, priority in (("low", -1), ("first", 0), ("high", 5), ("second", 0)):
            desk.submit(id, priority=priority)
            desk.clock.forward(1)
        assert ids(desk.claim(limit=10)) == ["high", "first", "second", "low"]

    def test_interrupted_runs_go_before_new_ones_of_their_priority(self, desk: Desk) -> None:
        desk.submit("new")
        early, late = desk.held("early"), desk.held("late")
        desk.submit("urgent", priority=1)
        desk.one(Release(late.pk, late.fence, "drain"))
        desk.clock.forward(1)
        desk.one(Release(early.pk, early.fence, "drain"))
        assert ids(desk.claim(limit=10)) == ["urgent", "late", "early", "new"]

    def test_a_run_given_back_uninterrupted_is_not_raised(self, desk: Desk) -> None:
        desk.submit("older")
        row = desk.held("younger")
        desk.one(Release(row.pk, row.fence, "not mine", interrupted=False))
        assert ids(desk.claim(limit=10)) == ["older", "younger"]

    def test_a_run_is_not_claimed_before_it_is_due(self, desk: Desk) -> None:
        desk.submit(delay=10.0)
        desk.clock.forward(9.9)
        assert desk.claim() == []
        desk.clock.forward(0.1)
        assert ids(desk.claim()) == ["r"]

    def test_a_run_that_is_named_is_claimed_only_when_it_is_due(self, desk: Desk) -> None:
        desk.submit("later", delay=1000.0)
        desk.wait(desk.held("waiting"), due=desk.clock.now + 2000.0)
        desk.wait(desk.held("never"))
        desk.submit("other")
        named = ("waiting", "later", "never", "absent")
        assert desk.claim(ids=named, limit=5) == []
        desk.clock.forward(1000)
        assert ids(desk.claim(ids=named, limit=5)) == ["later"]
        desk.clock.forward(1000)
        assert ids(desk.claim(ids=named, limit=5)) == ["waiting"]

    def test_runs_that_are_named_are_claimed_whatever_their_queue_and_workflow(self, desk: Desk) -> None:
        """And whether they are suspects or were interrupted: who names a run wants that run."""
        desk.submit("a", queue="one", workflow="x")
        desk.release(desk.held("b", queue="two", worker="w2"))
        desk.die(desk.held("c"))
        desk.submit("d")
        claimed = desk.claim(
            "w3", ids=("c", "b", "a"), queues=("none",), workflows=("y",), limit=5, returned=0
        )
        assert sorted(ids(claimed)) == ["a", "b", "c"]

    def test_no_more_of_the_named_than_the_limit_are_claimed(self, desk: Desk) -> None:
        for id in ("a", "b", "c"):
            desk.submit(id)
        assert len(desk.claim(ids=("a", "b", "c"), limit=2)) == 2
        assert len(desk.claim(ids=("a", "b", "c"), limit=2)) == 1

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled", "parked", "running"])
    def test_only_queued_and_waiting_runs_can_be_claimed(self, desk: Desk, status: str) -> None:
        row = desk.held()
        if status != "running":
            desk.settle(row, status)
        assert desk.claim("w2") == []
        assert desk.claim("w2", ids=("r",)) == []
        assert desk.row().status == status

    def test_a_claim_is_by_queue_and_workflow(self, desk: Desk) -> None:
        desk.submit("a", queue="mail", workflow="send")
        desk.submit("b", queue="mail", workflow="sort")
        desk.submit("c", queue="web", workflow="send")
        assert desk.claim(queues=("none",), limit=5) == []
        assert ids(desk.claim(queues=("mail",), workflows=("send", "other"), limit=5)) == ["a"]
        assert ids(desk.claim(workflows=("send",), limit=5)) == ["c"]
        assert ids(desk.claim(queues=("web", "mail"), limit=5)) == ["b"]

    # -- in which order

    def test_what_was_due_earlier_goes_first(self, desk: Desk) -> None:
        """Older before younger; but a run that came to sleep ten minutes ago is not older than one due before it."""
        desk.submit("late", delay=20.0)
        desk.submit("early", delay=10.0)
        desk.wait(desk.held("slept"), due=desk.clock.now + 15.0)
        desk.clock.forward(5)
        desk.submit("now")
        desk.submit("just after")
        desk.clock.forward(100)
        assert ids(desk.claim(limit=10)) == ["now", "just after", "early", "slept", "late"]

    def test_the_whole_order(self, desk: Desk) -> None:
        """Priority, then interrupted before new, then the older interruption, then what was due earlier."""
        for priority in (0, 7, -7):
            for age, id in enumerate(("new", "newer")):
                desk.submit(f"{id} {priority}", priority=priority, queue=f"q{age}", workflow=f"f{priority}")
            desk.clock.forward(1)
        for id, priority in (("back", 0), ("back", 7), ("earlier", 7), ("earlier", 0)):
            desk.held(f"{id} {priority}", priority=priority, queue=f"q{priority}")
        for id in ("earlier 7", "earlier 0", "back 0", "back 7"):
            desk.clock.forward(1)
            desk.release(desk.row(id))
        claimed = desk.claim(limit=100)
        assert ids(claimed) == [
            "earlier 7", "back 7", "new 7", "newer 7",
            "earlier 0", "back 0", "new 0", "newer 0",
            "new -7", "newer -7",
        ]  # fmt: skip
        assert [row.fence for row in claimed] == sorted(row.fence for row in claimed)

    def test_the_first_of_several_queues_and_workflows_are_the_first_of_all(self, desk: Desk) -> None:
        for number in range(12):
            desk.submit(f"r{number}", queue=f"q{number % 3}", workflow=f"f{number % 4}", priority=number // 6)
        assert ids(desk.claim(limit=8)) == [f"r{number}" for number in (6, 7, 8, 9, 10, 11, 0, 1)]

    def test_to_be_interrupted_again_does_not_lose_the_place(self, desk: Desk) -> None:
        for id in ("a", "b"):
            desk.release(desk.held(id))
            desk.clock.forward(1)
        desk.release(desk.take("a"))
        assert ids(desk.claim(limit=5)) == ["a", "b"]

    def test_of_two_interrupted_runs_the_older_interruption_goes_first_whatever_their_delays(
        self, desk: Desk
    ) -> None:
        desk.release(desk.held("older"), delay=10.0)
        desk.clock.forward(1)
        desk.release(desk.held("younger"))
        desk.clock.forward(20)
        assert ids(desk.claim(limit=1)) == ["older"]

    def test_a_queue_that_is_named_twice_is_one_queue(self, desk: Desk) -> None:
        desk.submit("a", queue="q")
        desk.submit("b", queue="q")
        assert ids(desk.claim(queues=("q", "q"), workflows=("flow", "flow"), limit=5)) == ["a", "b"]
        assert [row.lives for row in map(desk.row, ("a", "b"))] == [1, 1]

    # -- what is left to others

    def test_no_more_interrupted_runs_than_asked_for_are_claimed(self, desk: Desk) -> None:
        for number in range(4):
            desk.release(desk.held(f"back{number}", queue=f"q{number % 2}"))
        for number in range(3):
            desk.submit(f"new{number}", queue=f"q{number % 2}")
        assert ids(desk.claim(limit=3, returned=2)) == ["back0", "back1", "new0"]
        assert ids(desk.claim(limit=2, returned=0)) == ["new1", "new2"]
        assert desk.claim(limit=5, returned=0) == []
        assert ids(desk.claim(limit=5, returned=1)) == ["back2"]
        assert ids(desk.claim(limit=5, returned=9)) == ["back3"]

    def test_a_share_for_new_work_is_not_taken_by_returned_work_of_higher_priority(self, desk: Desk) -> None:
        for number in range(3):
            desk.release(desk.held(f"back{number}", priority=9))
        desk.submit("new", priority=-9)
        assert ids(desk.claim(limit=2, returned=1)) == ["back0", "new"]

    def test_what_nobody_has_asked_a_share_for_takes_all(self, desk: Desk) -> None:
        for number in range(3):
            desk.release(desk.held(f"back{number}"))
        desk.submit("new")
        assert ids(desk.claim(limit=3)) == ["back0", "back1", "back2"]

    def test_suspects_are_claimed_by_who_asks_for_them_and_nobody_else(self, desk: Desk) -> None:
        for number in range(2):
            desk.suspect(f"suspect{number}", priority=9 * number)
        desk.submit("new")
        assert ids(desk.claim("w2", limit=5)) == ["new"]
        assert desk.claim("w2", limit=5, queues=("other",), suspects=True) == []
        assert desk.claim("w2", limit=5, workflows=("other",), suspects=True) == []
        assert ids(desk.claim("w2", suspects=True)) == ["suspect1"]
        assert ids(desk.claim("w2", limit=5, suspects=True)) == ["suspect0"]

    def test_workflows_that_a_worker_does_not_know_wait_for_one_that_does(self, desk: Desk) -> None:
        for number in range(5):
            desk.submit(f"newer{number}", workflow="newer", priority=9)
        desk.submit("known")
        assert ids(desk.claim(workflows=("flow",), limit=3)) == ["known"]
        assert desk.claim(workflows=("flow",), limit=3) == []
        assert ids(desk.claim(workflows=("newer",), limit=3)) == ["newer0", "newer1", "newer2"]

    def test_nothing_asked_for_is_nothing_claimed(self, desk: Desk) -> None:
        before = desk.submit()
        assert desk.claim(limit=0) == []
        assert desk.claim(ids=("r",), limit=0) == []
        assert desk.row() == before

    def test_what_comes_due_together_is_claimed_together(self, desk: Desk) -> None:
        for number in range(50):
            desk.submit(f"d{number}", delay=10.0)
            desk.wait(desk.held(f"w{number}"), due=desk.clock.now + 10.0)
        assert desk.claim(limit=200) == []
        desk.clock.forward(10)
        assert len(desk.claim(limit=200)) == 100

    def test_a_claim_that_is_repeated_takes_nothing_more_even_if_there_is_more(self, desk: Desk) -> None:
        desk.enlist()
        desk.submit("a")
        verb = Claim("w1", "again", limit=5)
        first = desk.one(verb)
        desk.submit("b", priority=9)
        assert desk.commit(verb, verb) == [first, first]
        assert desk.row("b").status == "queued"

    def test_a_repeated_claim_of_what_was_given_back_claims_anew(self, desk: Desk) -> None:
        desk.enlist()
        desk.submit("a")
        verb = Claim("w1", "again")
        (row,) = desk.one(verb)
        desk.release(row)
        (again,) = desk.one(verb)
        assert again.fence > row.fence
