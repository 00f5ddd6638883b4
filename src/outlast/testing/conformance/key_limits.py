"""Check the limits per key of SetQueueLimits, and that a queue can be paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import Claim, Prune, Refused, SetQueueLimits, Undo, verdict
from outlast.store.rows import RunRow
from outlast.testing.conformance.abandonment import register_worker, time_goes_by
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.key_turns import claim_ids, claims, submit_all
from outlast.testing.conformance.limits import (
    died,
    failed,
    left,
    parked,
    released,
    settled,
    waiting,
)


def limit(
    driver: StoreDriver,
    concurrency: int | None = None,
    rate: tuple[int, float] | None = None,
    queue: str = "default",
) -> None:
    """Set both limits per key of a queue."""
    starts, period = rate or (None, None)
    command = SetQueueLimits(
        queue,
        None,
        None,
        keep_depth=True,
        keep_concurrency=True,
        key_concurrency_max=concurrency,
        key_starts_max=starts,
        key_period=period,
        keep_key_concurrency=False,
        keep_key_rate=False,
    )
    assert driver.one(command) is None


def next_due(driver: StoreDriver) -> float | None:
    return driver.store.peek(("default",), ("flow",)).next_due


class KeyLimitContract(Contract):
    def test_no_more_runs_of_a_key_execute_than_may_over_all_workers(
        self, driver: StoreDriver
    ) -> None:
        limit(driver, 2)
        submit_all(driver, "a1", "a2", "a3", "a4", "b1")
        assert claim_ids(driver, 2) == ["a1", "b1"]
        assert claim_ids(driver, 9, worker="w2") == ["a2"]
        assert claim_ids(driver, 9, worker="w3") == []
        assert not driver.store.peek(("default",), ("flow",)).ready

    @pytest.mark.parametrize("ended", [settled, parked, waiting, released, failed, died, left])
    def test_however_an_execution_ends_the_next_run_of_its_key_may_start(
        self, driver: StoreDriver, ended: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        limit(driver, 1)
        submit_all(driver, "a1", "a2")
        (row,) = driver.claim("w1", limit=5)
        driver.register_worker("w2")
        ended(driver, row)
        assert driver.store.peek(("default",), ("flow",)).ready
        expected = "a1" if ended in (died, left) else "a2"
        assert claim_ids(driver, 5, worker="w2" if ended is not died else "w3") == [expected]

    def test_a_limit_holds_within_one_batch(self, driver: StoreDriver) -> None:
        limit(driver, 1)
        driver.submit("a1", key="a", workflow="one")
        driver.submit("a2", key="a", workflow="two")
        driver.register_worker()
        first, second = driver.commit(Claim("w1", "t1", limit=5), Claim("w1", "t2", limit=5))
        assert [row.id for row in first] == ["a1"]
        assert second == []
        driver.settle(first[0])
        assert claim_ids(driver, 5) == ["a2"]

    def test_a_waiting_run_that_may_go_on_waits_for_its_keys_limit(
        self, driver: StoreDriver
    ) -> None:
        limit(driver, 1)
        submit_all(driver, "a1", "a2", "a3")
        (row,) = driver.claim()
        driver.wait(row, due=driver.clock.now + 5)
        (second,) = driver.claim()
        assert second.id == "a2"
        driver.clock.forward(10)
        assert claim_ids(driver, 5) == []
        driver.settle(second)
        found = claim_ids(driver, 5)
        assert found in (["a1"], ["a3"])

    def test_a_run_that_is_asked_for_by_its_id_waits_for_its_keys_limit(
        self, driver: StoreDriver
    ) -> None:
        limit(driver, 1)
        submit_all(driver, "a1", "a2")
        row = driver.take("a1")
        assert driver.claim(ids=("a2",)) == []
        driver.settle(row)
        assert driver.take("a2").id == "a2"

    def test_runs_that_are_named_together_keep_to_their_keys_limit(
        self, driver: StoreDriver
    ) -> None:
        limit(driver, 1)
        submit_all(driver, "a1", "a2", "b1")
        assert claim_ids(driver, 9, ids=("a1", "a2", "b1")) == ["a1", "b1"]

    def test_children_have_no_key_and_do_not_wait_for_that_of_their_parent(
        self, driver: StoreDriver
    ) -> None:
        limit(driver, 1)
        submit_all(driver, "a1")
        driver.claim()
        driver.submit("child", parent="a1")
        assert claim_ids(driver, 5) == ["child"]

    def test_a_compensation_waits_for_no_limit_and_counts(self, driver: StoreDriver) -> None:
        limit(driver, 1, (1, 1000.0))
        submit_all(driver, "a1", "a2")
        (row,) = driver.claim()
        assert driver.one(Undo(row.pk, row.fence, verdict("cancelled"))) is None
        limit(driver, 1)
        (second,) = driver.claim(ids=("a2",))
        (undoing,) = driver.claim(limit=5)
        assert (undoing.id, undoing.undoing is not None) == ("a1", True)
        driver.settle(second)
        submit_all(driver, "a3")
        assert claim_ids(driver, 5) == []
        driver.settle(undoing, "cancelled")
        assert claim_ids(driver, 5) == ["a3"]

    def test_the_time_that_a_key_holds_a_run_back_is_not_counted_for_abandoning_it(
        self, driver: StoreDriver
    ) -> None:
        register_worker(driver, "busy")
        limit(driver, 1)
        driver.submit("a1", key="a", abandon_after=100.0)
        driver.submit("a2", key="a")
        first = driver.take("a1", "busy")
        driver.wait(first, due=driver.clock.now + 1)
        second = driver.take("a2", "busy")
        time_goes_by(driver, 300, "busy")
        assert claim_ids(driver, 5, worker="busy") == []
        driver.settle(second)
        (row,) = driver.claim("busy")
        assert (row.id, row.undoing) == ("a1", None)

    # -- rates

    def test_no_more_runs_of_a_key_start_in_a_period_than_may(self, driver: StoreDriver) -> None:
        limit(driver, None, (2, 60.0))
        submit_all(driver, "a1", "a2", "a3", "a4", "b1")
        start = driver.clock.now
        assert claim_ids(driver, 1) == ["a1"]
        driver.clock.forward(10)
        assert claim_ids(driver, 9) == ["b1", "a2"]
        found = driver.store.peek(("default",), ("flow",))
        assert (found.ready, found.next_due) == (False, start + 60)
        driver.clock.forward(49)
        assert claim_ids(driver, 9) == []
        driver.clock.forward(1)
        assert driver.store.peek(("default",), ("flow",)).ready
        assert claim_ids(driver, 9) == ["a3"]
        assert next_due(driver) == start + 70
        driver.clock.forward(10)
        assert claim_ids(driver, 9) == ["a4"]
        assert next_due(driver) is None

    def test_a_start_counts_after_its_run_has_ended(self, driver: StoreDriver) -> None:
        limit(driver, 1, (1, 60.0))
        submit_all(driver, "a1", "a2")
        (row,) = driver.claim()
        driver.settle(row)
        assert claim_ids(driver, 9) == []
        assert next_due(driver) == driver.clock.now + 60
        driver.clock.forward(60)
        assert claim_ids(driver, 9) == ["a2"]

    def test_a_start_counts_after_its_run_was_pruned(self, driver: StoreDriver) -> None:
        limit(driver, None, (1, 60.0))
        limit(driver, None, (1, 60.0), "items")
        submit_all(driver, "a1", "a2")
        driver.put("i1", key="a")
        (row,) = driver.claim(queues=("default",))
        driver.settle(row)
        (item,) = driver.claim(queues=("items",), workflows=("",))
        driver.settle(item)
        driver.clock.forward(30)
        assert driver.one(Prune(driver.clock.now)) == 0
        assert driver.one(Prune(driver.clock.now, items=True)) == 0
        assert claim_ids(driver, 9) == []
        driver.clock.forward(30)
        prunes = (Prune(driver.clock.now), Prune(driver.clock.now, items=True))
        assert sum(driver.commit(*prunes)) == 2
        assert claim_ids(driver, 9) == ["a2"]

    def test_a_run_counts_once_and_goes_on_whatever_the_rate(self, driver: StoreDriver) -> None:
        limit(driver, None, (2, 60.0))
        submit_all(driver, "a1", "a2", "a3")
        first, second = driver.claim(limit=9)
        driver.release(first)
        driver.wait(second, due=driver.clock.now)
        assert sorted(claim_ids(driver, 9)) == ["a1", "a2"]
        driver.clock.forward(60)
        assert claim_ids(driver, 9) == ["a3"]

    def test_both_limits_hold_together(self, driver: StoreDriver) -> None:
        limit(driver, 1, (2, 60.0))
        submit_all(driver, "a1", "a2", "a3")
        (first,) = driver.claim(limit=9)
        driver.settle(first)
        (second,) = driver.claim(limit=9)
        driver.clock.forward(60)
        assert claim_ids(driver, 9) == []
        driver.settle(second)
        assert claim_ids(driver, 9) == ["a3"]

    # -- changes

    def test_limits_may_be_raised_lowered_and_removed(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "a3", "a4", "b1", "b2")
        limit(driver, 1)
        held = driver.claim(limit=9)
        assert [row.id for row in held] == ["a1", "b1"]
        limit(driver, 2)
        assert driver.store.peek(("default",), ("flow",)).ready
        held += driver.claim(limit=9)
        assert [row.id for row in held[2:]] == ["a2", "b2"]
        limit(driver, 1)
        driver.settle(held[0])
        assert claim_ids(driver, 9) == []
        driver.settle(held[2])
        assert claim_ids(driver, 9) == ["a3"]
        limit(driver)
        assert claim_ids(driver, 9) == ["a4"]

    def test_a_limit_that_is_set_late_counts_what_has_started(self, driver: StoreDriver) -> None:
        submit_all(driver, "a1", "a2", "a3")
        assert claims(driver, 1) == ["a1"]
        driver.claim(workflows=("other",))
        limit(driver, None, (1, 60.0))
        assert claim_ids(driver, 9) == []
        assert next_due(driver) == driver.clock.now + 60
        limit(driver, 2)
        assert claim_ids(driver, 9) == ["a2"]

    def test_each_limit_is_kept_unless_it_is_named(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", 100, 50))
        limit(driver, 3, (10, 60.0))
        driver.one(
            SetQueueLimits("default", 7, None, keep_concurrency=True, paused=True),
        )
        (queue,) = driver.store.queues()
        assert (queue.depth_max, queue.concurrency_max, queue.paused) == (7, 50, True)
        assert (queue.key_concurrency_max, queue.key_starts_max, queue.key_period) == (3, 10, 60.0)
        driver.one(
            SetQueueLimits(
                "default",
                None,
                None,
                key_concurrency_max=None,
                keep_key_concurrency=False,
            )
        )
        (queue,) = driver.store.queues()
        assert (queue.depth_max, queue.concurrency_max, queue.paused) == (None, None, True)
        assert (queue.key_concurrency_max, queue.key_starts_max, queue.key_period) == (
            None,
            10,
            60.0,
        )

    # -- pauses

    def test_no_run_of_a_paused_queue_is_claimed_until_it_is_resumed(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, 2))
        pause = SetQueueLimits(
            "default", None, None, keep_depth=True, keep_concurrency=True, paused=True
        )
        driver.submit("a")
        driver.submit("b", key="b")
        driver.submit("c")
        assert not isinstance(driver.one(pause), Refused)
        assert claim_ids(driver, 9) == []
        driver.submit("other", queue="other")
        assert claim_ids(driver, 9) == ["other"]
        driver.one(pause._replace(paused=False))
        assert len(claim_ids(driver, 9)) == 2
        (queue, _) = driver.store.queues()
        assert (queue.paused, queue.concurrency_max) == (False, 2)

    def test_a_run_of_a_paused_queue_may_still_be_claimed_by_its_id(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, None, paused=True))
        driver.submit("a")
        assert driver.take("a").id == "a"
