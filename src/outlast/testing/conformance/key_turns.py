"""Check that runs with a key take turns: see `Claim`."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.commands import (
    Cancel,
    Retry,
    Send,
    SetQueueLimits,
    Submit,
    SubmitMany,
)
from outlast.testing.conformance.harness import Contract, StoreDriver


def submit_all(driver: StoreDriver, *ids: str) -> None:
    """Submit runs whose keys are the first letters of their ids."""
    for id in ids:
        driver.submit(id, key=id[0])


def claim_ids(driver: StoreDriver, limit: int = 1, **fields: Any) -> list[str]:
    return [row.id for row in driver.claim(limit=limit, **fields)]


def claims(driver: StoreDriver, count: int) -> list[str]:
    """Claim one run at a time, while time passes."""
    found: list[str] = []
    for _ in range(count):
        driver.clock.forward(1)
        found += claim_ids(driver)
    return found


class KeyTurnContract(Contract):
    def test_a_key_is_kept_with_a_run(self, driver: StoreDriver) -> None:
        assert driver.submit("a", key="customer-7").key == "customer-7"
        assert driver.submit("b", key="").key == ""
        assert driver.submit("c").key is None
        driver.one(SubmitMany((Submit("d", "flow", "[]", "t", "s", key="kéy\n'\"%"),)))
        assert driver.row("d").key == "kéy\n'\"%"
        assert [row.key for row in driver.claim(limit=9)] == [
            driver.row(id).key for id in ("a", "b", "c", "d")
        ]

    def test_keys_take_turns(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
        assert claims(driver, 8) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]

    def test_keys_take_turns_within_one_claim(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "a3", "b1", "b2")
        assert claim_ids(driver, 4) == ["a1", "b1", "a2", "b2"]
        assert claim_ids(driver, 4) == ["a3"]

    def test_one_who_comes_late_waits_for_one_run_of_each_other_key(
        self, driver: StoreDriver
    ) -> None:
        submit_all(driver, *(f"a{n}" for n in range(50)), *(f"b{n}" for n in range(50)))
        assert claims(driver, 5) == ["a0", "b0", "a1", "b1", "a2"]
        submit_all(driver, "c0", "c1")
        found = claims(driver, 8)
        assert found.index("c0") <= 2
        assert found.index("c1") - found.index("c0") <= 3

    def test_priority_goes_before_turns(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "b1")
        driver.submit("a2", key="a", priority=5)
        driver.submit("a3", key="a", priority=5)
        driver.submit("c1", key="c", priority=-1)
        assert claims(driver, 6) == ["a2", "a3", "b1", "a1", "c1"]

    def test_priority_goes_before_turns_within_one_claim(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "b1")
        driver.submit("a2", key="a", priority=5)
        driver.submit("a3", key="a", priority=5)
        driver.submit("x", priority=3)
        assert claim_ids(driver, 3) == ["a2", "a3", "x"]
        assert claim_ids(driver, 3) == ["b1", "a1"]

    def test_a_run_that_is_held_back_leaves_its_place_in_the_claim_to_another(
        self, driver: StoreDriver
    ) -> None:
        one_at_a_time = SetQueueLimits(
            "default", None, None, key_concurrency_max=1, keep_key_concurrency=False
        )
        driver.one(one_at_a_time)
        driver.submit("a1", key="a", workflow="one", priority=5)
        driver.submit("a2", key="a", workflow="two", priority=5)
        driver.submit("b1", key="b")
        driver.submit("x")
        driver.clock.forward(1)
        assert claim_ids(driver, 3) == ["a1", "x", "b1"]

    def test_a_run_of_higher_priority_goes_first_although_another_had_the_turn(
        self, driver: StoreDriver
    ) -> None:
        submit_all(driver, "a1")
        assert claim_ids(driver, workflows=("other",)) == []
        driver.submit("a2", key="a", priority=1)
        driver.submit("b1", key="b", priority=1)
        driver.submit("b0", key="b", priority=-1)
        assert claims(driver, 4) == ["a2", "b1", "a1", "b0"]

    def test_interrupted_runs_go_first_within_their_key(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "a3", "b1")
        (row,) = driver.claim()
        driver.release(row)
        driver.clock.forward(1)
        assert claims(driver, 4) == ["a1", "b1", "a2", "a3"]

    def test_due_times_order_the_runs_of_a_key(self, driver: StoreDriver) -> None:
        driver.submit("a1", key="a", delay=20.0)
        driver.submit("a2", key="a", delay=10.0)
        assert claim_ids(driver, 5) == []
        assert driver.store.peek(("default",), ("flow",)).next_due == driver.clock.now + 10
        driver.clock.forward(30)
        assert driver.store.peek(("default",), ("flow",)).ready
        assert claim_ids(driver, 5) == ["a2", "a1"]

    def test_runs_without_a_key_take_no_turns(self, driver: StoreDriver) -> None:
        driver.submit("x1")
        driver.submit("x2")
        submit_all(driver, "a1", "a2")
        driver.clock.forward(1)
        assert claim_ids(driver, 2) == ["x1", "x2"]
        assert claim_ids(driver, 2) == ["a1", "a2"]

    def test_a_workflow_that_a_worker_does_not_know_holds_back_no_other(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("a1", key="a", workflow="new", priority=9)
        driver.submit("a2", key="a", workflow="old")
        driver.submit("a3", key="a", workflow="old")
        assert claim_ids(driver, 5, workflows=("old",)) == ["a2", "a3"]
        found = driver.store.peek(("default",), ("old",))
        assert (found.ready, found.unknown) == (False, ("new",))
        assert claim_ids(driver, 5, workflows=("new",)) == ["a1"]

    def test_queues_do_not_share_keys(self, driver: StoreDriver) -> None:
        driver.submit("a1", key="a", queue="one")
        driver.submit("a2", key="a", queue="two")
        assert claim_ids(driver, 5, queues=("two",)) == ["a2"]
        assert claim_ids(driver, 5, queues=("one", "two")) == ["a1"]

    def test_items_take_turns_too(self, driver: StoreDriver) -> None:
        for id in ("a1", "a2", "b1"):
            driver.put(id, key=id[0])
        taken: list[str] = []
        for _ in range(3):
            driver.clock.forward(1)
            taken += claim_ids(driver, queues=("items",), workflows=("",))
        assert taken == ["a1", "b1", "a2"]

    @pytest.mark.parametrize("looked", [False, True])
    def test_the_next_run_gets_the_turn_of_one_that_is_cancelled(
        self, driver: StoreDriver, looked: bool
    ) -> None:
        submit_all(driver, "a1", "a2", "a3")
        if looked:
            assert claim_ids(driver, workflows=("other",)) == []
        assert driver.one(Cancel("a1", "why")) == "cancelled"
        assert driver.one(Cancel("a3", "why")) == "cancelled"
        assert claim_ids(driver, 5) == ["a2"]

    def test_a_waiting_run_comes_back_in_its_keys_turn(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "b1")
        (row,) = driver.claim()
        driver.wait(row, waits=("go",))
        assert driver.one(Send("a1", "go", "m1", "1")) is None
        assert driver.store.peek(("default",), ("flow",)).ready
        driver.clock.forward(1)
        assert sorted(claim_ids(driver, 5)) == ["a1", "a2", "b1"]

    def test_a_parent_with_a_key_wakes_when_its_child_ends(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1")
        (row,) = driver.claim()
        driver.submit("child", parent="a1")
        driver.wait(row, children=("child",))
        (child,) = driver.claim(limit=5)
        driver.settle(child)
        assert claim_ids(driver, 5) == ["a1"]

    def test_a_retried_run_takes_its_turn(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1")
        (row,) = driver.claim()
        driver.settle(row, "failed")
        assert driver.one(Retry("a1", "again")) is None
        assert claim_ids(driver, 5) == ["a1"]

    def test_a_run_of_a_key_that_is_asked_for_by_its_id_goes_first(
        self, driver: StoreDriver
    ) -> None:
        submit_all(driver, "a1", "a2", "a3")
        assert driver.take("a2").id == "a2"
        assert claim_ids(driver, 5) == ["a1", "a3"]

    def test_suspects_take_turns_of_their_own(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1")
        row = driver.die(driver.take("a1", "first"))
        row = driver.die(driver.take("a1", "second"), backoff=0.0)
        assert row.is_suspect
        submit_all(driver, "a2")
        assert claim_ids(driver, 5, worker="w3") == ["a2"]
        assert driver.store.peek(("default",), ("flow",)).suspect
        assert claim_ids(driver, 5, worker="w3", suspects=True) == ["a1"]

    def test_a_thousand_keys_and_more_are_all_claimed(self, driver: StoreDriver) -> None:
        driver.one(
            SubmitMany(
                tuple(
                    Submit(f"r{n}", "flow", "[]", "t", "s", key=f"k{n % 1200}") for n in range(1300)
                )
            )
        )
        found: set[str] = set()
        for _ in range(40):
            driver.clock.forward(1)
            found.update(claim_ids(driver, 100))
        assert len(found) == 1300
        peek = driver.store.peek(("default",), ("flow",))
        assert (peek.ready, peek.overdue) == (False, False)
