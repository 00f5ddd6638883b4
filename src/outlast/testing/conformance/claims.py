"""Check Claim: which runs a worker gets, in which order, and each only once."""

from __future__ import annotations

import pytest

from outlast.store.commands import WORKER, Claim, Refused, Release
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver


def ids(rows: list[RunRow]) -> list[str]:
    return [row.id for row in rows]


class ClaimContract(Contract):
    def test_a_claimed_run_belongs_to_its_worker_under_a_fence(self, driver: StoreDriver) -> None:
        driver.submit(timeout=30.0)
        driver.clock.forward(100)
        (row,) = driver.claim("w1")
        assert row == driver.row()
        assert (row.status, row.worker, row.started) == ("running", "w1", driver.clock.now)
        assert row.deadline == driver.clock.now + 30.0
        assert row.fence > 0

    def test_a_claimed_run_is_not_claimed_again(self, driver: StoreDriver) -> None:
        driver.submit()
        assert ids(driver.claim("w1")) == ["r"]
        assert driver.claim("w1") == []
        assert driver.claim("w2") == []
        assert driver.claim("w2", ids=("r",)) == []

    def test_the_first_start_and_its_deadline_stay_over_later_claims(
        self, driver: StoreDriver
    ) -> None:
        first = driver.held(timeout=30.0)
        driver.clock.forward(5)
        driver.one(Release(first.pk, first.fence, "later"))
        second = driver.take()
        assert (second.started, second.deadline) == (first.started, first.deadline)
        assert second.fence > first.fence

    def test_a_worker_that_is_not_registered_cannot_claim(self, driver: StoreDriver) -> None:
        driver.submit()
        outcome = driver.one(Claim("stranger", "t"))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER
        assert driver.row().status == "queued"

    def test_the_same_token_again_gets_the_same_runs(self, driver: StoreDriver) -> None:
        for number in range(4):
            driver.submit(f"r{number}")
        driver.register_worker("w1")
        command = Claim("w1", "again", limit=3)
        first = driver.one(command)
        assert ids(first) == ["r0", "r1", "r2"]
        assert driver.one(command) == first
        driver.settle(first[1])
        assert ids(driver.one(command)) == ["r0", "r2"]
        assert driver.row("r3").status == "queued"

    def test_another_worker_gets_nothing_by_the_same_token(self, driver: StoreDriver) -> None:
        driver.submit()
        driver.register_worker("w1")
        driver.register_worker("w2")
        assert ids(driver.one(Claim("w1", "same"))) == ["r"]
        assert driver.one(Claim("w2", "same")) == []
        assert driver.row().worker == "w1"

    def test_no_more_than_the_limit_is_claimed(self, driver: StoreDriver) -> None:
        for number in range(5):
            driver.submit(f"r{number}")
        assert len(driver.claim()) == 1
        assert len(driver.claim(limit=3)) == 3
        assert len(driver.claim(limit=3)) == 1

    def test_the_highest_priority_goes_first_then_the_oldest(self, driver: StoreDriver) -> None:
        for id, priority in (("low", -1), ("first", 0), ("high", 5), ("second", 0)):
            driver.submit(id, priority=priority)
            driver.clock.forward(1)
        assert ids(driver.claim(limit=10)) == ["high", "first", "second", "low"]

    def test_interrupted_runs_go_before_new_ones_of_their_priority(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        early, late = driver.held("early"), driver.held("late")
        driver.submit("urgent", priority=1)
        driver.one(Release(late.pk, late.fence, "drain"))
        driver.clock.forward(1)
        driver.one(Release(early.pk, early.fence, "drain"))
        assert ids(driver.claim(limit=10)) == ["urgent", "late", "early", "new"]

    def test_a_run_released_uninterrupted_is_not_raised(self, driver: StoreDriver) -> None:
        driver.submit("older")
        row = driver.held("younger")
        driver.one(Release(row.pk, row.fence, "not mine", interrupted=False))
        assert ids(driver.claim(limit=10)) == ["older", "younger"]

    def test_a_run_is_not_claimed_before_it_is_due(self, driver: StoreDriver) -> None:
        driver.submit(delay=10.0)
        driver.clock.forward(9.9)
        assert driver.claim() == []
        driver.clock.forward(0.1)
        assert ids(driver.claim()) == ["r"]

    def test_a_run_that_is_named_is_claimed_only_when_it_is_due(self, driver: StoreDriver) -> None:
        driver.submit("later", delay=1000.0)
        driver.wait(driver.held("waiting"), due=driver.clock.now + 2000.0)
        driver.wait(driver.held("never"))
        driver.submit("other")
        named = ("waiting", "later", "never", "absent")
        assert driver.claim(ids=named, limit=5) == []
        driver.clock.forward(1000)
        assert ids(driver.claim(ids=named, limit=5)) == ["later"]
        driver.clock.forward(1000)
        assert ids(driver.claim(ids=named, limit=5)) == ["waiting"]

    def test_runs_that_are_named_are_claimed_whatever_their_queue_and_workflow(
        self, driver: StoreDriver
    ) -> None:
        """Include suspects and interrupted runs, because a claim by id wants that very run."""
        driver.submit("a", queue="one", workflow="x")
        driver.release(driver.held("b", queue="two", worker="w2"))
        driver.die(driver.held("c"))
        driver.submit("d")
        claimed = driver.claim(
            "w3", ids=("c", "b", "a"), queues=("none",), workflows=("y",), limit=5, returned=0
        )
        assert sorted(ids(claimed)) == ["a", "b", "c"]

    def test_no_more_of_the_named_than_the_limit_are_claimed(self, driver: StoreDriver) -> None:
        for id in ("a", "b", "c"):
            driver.submit(id)
        assert len(driver.claim(ids=("a", "b", "c"), limit=2)) == 2
        assert len(driver.claim(ids=("a", "b", "c"), limit=2)) == 1

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled", "parked", "running"])
    def test_only_queued_and_waiting_runs_can_be_claimed(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = driver.held()
        if status != "running":
            driver.settle(row, status)
        assert driver.claim("w2") == []
        assert driver.claim("w2", ids=("r",)) == []
        assert driver.row().status == status

    def test_a_claim_is_by_queue_and_workflow(self, driver: StoreDriver) -> None:
        driver.submit("a", queue="mail", workflow="send")
        driver.submit("b", queue="mail", workflow="sort")
        driver.submit("c", queue="web", workflow="send")
        assert driver.claim(queues=("none",), limit=5) == []
        assert ids(driver.claim(queues=("mail",), workflows=("send", "other"), limit=5)) == ["a"]
        assert ids(driver.claim(workflows=("send",), limit=5)) == ["c"]
        assert ids(driver.claim(queues=("web", "mail"), limit=5)) == ["b"]

    # -- in which order

    def test_what_was_due_earlier_goes_first(self, driver: StoreDriver) -> None:
        """Order by due time, not by age: a run due before another goes first, however young."""
        driver.submit("late", delay=20.0)
        driver.submit("early", delay=10.0)
        driver.wait(driver.held("slept"), due=driver.clock.now + 15.0)
        driver.clock.forward(5)
        driver.submit("now")
        driver.submit("just after")
        driver.clock.forward(100)
        assert ids(driver.claim(limit=10)) == ["now", "just after", "early", "slept", "late"]

    def test_the_whole_order(self, driver: StoreDriver) -> None:
        """Order by priority, interrupted before new, older interruption, then earlier due time."""
        for priority in (0, 7, -7):
            for age, id in enumerate(("new", "newer")):
                driver.submit(
                    f"{id} {priority}", priority=priority, queue=f"q{age}", workflow=f"f{priority}"
                )
            driver.clock.forward(1)
        for id, priority in (("back", 0), ("back", 7), ("earlier", 7), ("earlier", 0)):
            driver.held(f"{id} {priority}", priority=priority, queue=f"q{priority}")
        for id in ("earlier 7", "earlier 0", "back 0", "back 7"):
            driver.clock.forward(1)
            driver.release(driver.row(id))
        claimed = driver.claim(limit=100)
        assert ids(claimed) == [
            "earlier 7", "back 7", "new 7", "newer 7",
            "earlier 0", "back 0", "new 0", "newer 0",
            "new -7", "newer -7",
        ]  # fmt: skip
        assert [row.fence for row in claimed] == sorted(row.fence for row in claimed)

    def test_the_first_of_several_queues_and_workflows_are_the_first_of_all(
        self, driver: StoreDriver
    ) -> None:
        for number in range(12):
            driver.submit(
                f"r{number}",
                queue=f"q{number % 3}",
                workflow=f"f{number % 4}",
                priority=number // 6,
            )
        assert ids(driver.claim(limit=8)) == [f"r{number}" for number in (6, 7, 8, 9, 10, 11, 0, 1)]

    def test_to_be_interrupted_again_does_not_lose_the_place(self, driver: StoreDriver) -> None:
        for id in ("a", "b"):
            driver.release(driver.held(id))
            driver.clock.forward(1)
        driver.release(driver.take("a"))
        assert ids(driver.claim(limit=5)) == ["a", "b"]

    def test_of_two_interrupted_runs_the_older_interruption_goes_first_whatever_their_delays(
        self, driver: StoreDriver
    ) -> None:
        driver.release(driver.held("older"), delay=10.0)
        driver.clock.forward(1)
        driver.release(driver.held("younger"))
        driver.clock.forward(20)
        assert ids(driver.claim(limit=1)) == ["older"]

    def test_a_queue_that_is_named_twice_is_one_queue(self, driver: StoreDriver) -> None:
        driver.submit("a", queue="q")
        driver.submit("b", queue="q")
        assert ids(driver.claim(queues=("q", "q"), workflows=("flow", "flow"), limit=5)) == [
            "a",
            "b",
        ]
        assert [row.lives for row in map(driver.row, ("a", "b"))] == [1, 1]

    # -- what is left to others

    def test_no_more_interrupted_runs_than_asked_for_are_claimed(self, driver: StoreDriver) -> None:
        for number in range(4):
            driver.release(driver.held(f"back{number}", queue=f"q{number % 2}"))
        for number in range(3):
            driver.submit(f"new{number}", queue=f"q{number % 2}")
        assert ids(driver.claim(limit=3, returned=2)) == ["back0", "back1", "new0"]
        assert ids(driver.claim(limit=2, returned=0)) == ["new1", "new2"]
        assert driver.claim(limit=5, returned=0) == []
        assert ids(driver.claim(limit=5, returned=1)) == ["back2"]
        assert ids(driver.claim(limit=5, returned=9)) == ["back3"]

    def test_a_share_for_new_work_is_not_taken_by_returned_work_of_higher_priority(
        self, driver: StoreDriver
    ) -> None:
        for number in range(3):
            driver.release(driver.held(f"back{number}", priority=9))
        driver.submit("new", priority=-9)
        assert ids(driver.claim(limit=2, returned=1)) == ["back0", "new"]

    def test_what_nobody_has_asked_a_share_for_takes_all(self, driver: StoreDriver) -> None:
        for number in range(3):
            driver.release(driver.held(f"back{number}"))
        driver.submit("new")
        assert ids(driver.claim(limit=3)) == ["back0", "back1", "back2"]

    def test_suspects_are_claimed_by_who_asks_for_them_and_nobody_else(
        self, driver: StoreDriver
    ) -> None:
        for number in range(2):
            driver.suspect(f"suspect{number}", priority=9 * number)
        driver.submit("new")
        assert ids(driver.claim("w2", limit=5)) == ["new"]
        assert driver.claim("w2", limit=5, queues=("other",), suspects=True) == []
        assert driver.claim("w2", limit=5, workflows=("other",), suspects=True) == []
        assert ids(driver.claim("w2", suspects=True)) == ["suspect1"]
        assert ids(driver.claim("w2", limit=5, suspects=True)) == ["suspect0"]

    def test_workflows_that_a_worker_does_not_know_wait_for_one_that_does(
        self, driver: StoreDriver
    ) -> None:
        for number in range(5):
            driver.submit(f"newer{number}", workflow="newer", priority=9)
        driver.submit("known")
        assert ids(driver.claim(workflows=("flow",), limit=3)) == ["known"]
        assert driver.claim(workflows=("flow",), limit=3) == []
        assert ids(driver.claim(workflows=("newer",), limit=3)) == ["newer0", "newer1", "newer2"]

    def test_nothing_asked_for_is_nothing_claimed(self, driver: StoreDriver) -> None:
        before = driver.submit()
        assert driver.claim(limit=0) == []
        assert driver.claim(ids=("r",), limit=0) == []
        assert driver.row() == before

    def test_what_comes_due_together_is_claimed_together(self, driver: StoreDriver) -> None:
        for number in range(50):
            driver.submit(f"d{number}", delay=10.0)
            driver.wait(driver.held(f"w{number}"), due=driver.clock.now + 10.0)
        assert driver.claim(limit=200) == []
        driver.clock.forward(10)
        assert len(driver.claim(limit=200)) == 100

    def test_a_claim_that_is_repeated_takes_nothing_more_even_if_there_is_more(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.submit("a")
        command = Claim("w1", "again", limit=5)
        first = driver.one(command)
        driver.submit("b", priority=9)
        assert driver.commit(command, command) == [first, first]
        assert driver.row("b").status == "queued"

    def test_a_repeated_claim_of_what_was_released_claims_again(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.submit("a")
        command = Claim("w1", "again")
        (row,) = driver.one(command)
        driver.release(row)
        (again,) = driver.one(command)
        assert again.fence > row.fence
