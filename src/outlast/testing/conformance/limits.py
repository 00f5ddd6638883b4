"""Check SetQueueLimits: a queue's depth, and how many of its runs all workers execute at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.commands import (
    DEPTH,
    ITEM,
    Ack,
    Cancel,
    Claim,
    DeregisterWorker,
    Refused,
    SetQueueLimits,
    Submit,
    SubmitMany,
    Submitted,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import WAIT_SECONDS, Contract, StoreDriver


def new(id: str, depth_max: int | None = None, **fields: Any) -> Submit:
    return Submit(id, "flow", "[]", f"token-{id}", "seed", depth_max=depth_max, **fields)


def settled(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row)


def parked(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row, "parked")


def waiting(driver: StoreDriver, row: RunRow) -> None:
    driver.wait(row)


def released(driver: StoreDriver, row: RunRow) -> None:
    driver.release(row, delay=1000.0)


def failed(driver: StoreDriver, row: RunRow) -> None:
    driver.release(row, failed=True, delay=1000.0)


def died(driver: StoreDriver, row: RunRow) -> None:
    driver.record(row, 1)
    driver.die(row)


def left(driver: StoreDriver, row: RunRow) -> None:
    assert row.worker is not None
    driver.one(DeregisterWorker(row.worker))


def acked(driver: StoreDriver, row: RunRow) -> None:
    assert driver.one(Ack(row.pk, row.fence, row.queue)) is None


class LimitContract(Contract):
    # -- depth

    def test_a_great_depth_binds_who_puts_in_alone_and_nobody_once_there_is_room(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", 1_150, None))
        outcomes = [
            driver.one(SubmitMany(tuple(new(f"{turn}-{n}") for n in range(100))))
            for turn in range(12)
        ]
        assert [isinstance(outcome, Refused) for outcome in outcomes] == [False] * 11 + [True]
        singles = driver.commit(*(new(f"s{n}") for n in range(60)))
        assert [isinstance(outcome, Refused) for outcome in singles] == [False] * 50 + [True] * 10
        assert driver.store.depth("default") == 1_150
        driver.register_worker()
        assert len(driver.claim(queues=("default",), workflows=("flow",), limit=5)) == 5
        # A count may be slightly stale, by the store's own clock.
        deadline = time.monotonic() + WAIT_SECONDS
        while isinstance(driver.one(new("late")), Refused):
            assert time.monotonic() < deadline

    def test_a_submission_that_the_queue_has_no_room_for_is_refused(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("a", depth_max=2)
        driver.submit("b", depth_max=2)
        assert driver.one(new("c", 2)) == Refused(DEPTH, "2/2/1")
        assert driver.store.run("c") is None
        assert driver.one(new("c", 3)).new

    def test_a_queue_that_may_hold_nothing_holds_nothing(self, driver: StoreDriver) -> None:
        assert driver.one(new("a", 0)) == Refused(DEPTH, "0/0/1")
        driver.one(SetQueueLimits("default", 0, None))
        assert driver.one(new("a")) == Refused(DEPTH, "0/0/1")

    def test_each_of_a_batch_counts_for_the_next(self, driver: StoreDriver) -> None:
        outcomes = driver.commit(*(new(id, 2) for id in ("a", "b", "c", "a")))
        assert [isinstance(outcome, Submitted) and outcome.new for outcome in outcomes] == [
            True,
            True,
            False,
            True,
        ]
        assert outcomes[2] == Refused(DEPTH, "2/2/1")

    def test_a_run_that_is_there_is_joined_however_full_the_queue_is(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("a")
        outcome = driver.one(new("a", 0))
        assert (outcome.new, outcome.row) == (False, driver.row("a"))

    def test_a_run_that_its_submitter_executes_itself_needs_no_room(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.one(SetQueueLimits("default", 0, None))
        assert driver.one(new("a", 0, worker="w1")).new

    def test_a_queues_own_limit_goes_before_the_submitters(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", 1, None))
        assert driver.one(new("a", 0)).new
        assert driver.one(new("b", 100)) == Refused(DEPTH, "1/1/1")
        assert driver.one(new("b", 100, queue="other")).new
        driver.one(SetQueueLimits("default", None, None))
        assert driver.one(new("c", 100)).new

    @pytest.mark.parametrize(
        ("asked", "full"),
        [
            ((None, 1), {1: "1/1/1"}),
            ((None, None, 2), {2: "2/2/1"}),
            ((None, 2, 2), {2: "2/2/1"}),
            ((3, 1), {1: "1/1/1"}),
            ((1, 5, 2), {2: "2/2/1"}),
            ((1, None, 2, 3), {2: "2/2/1"}),
            ((None, 1, None, 2), {1: "1/1/1", 3: "2/2/1"}),
        ],
    )
    def test_whatever_stands_before_one_in_its_batch_is_counted_for_its_bound(
        self, driver: StoreDriver, asked: tuple[int | None, ...], full: dict[int, str]
    ) -> None:
        """Submissions without a bound of their own count too, such as children."""
        batch = [
            new(f"{queue}{n}", bound, queue=queue)
            for n, bound in enumerate(asked)
            for queue in ("one", "two")
        ]
        outcomes = driver.commit(*batch)
        for queue, some in (("one", outcomes[::2]), ("two", outcomes[1::2])):
            refused = {
                n: outcome.detail for n, outcome in enumerate(some) if isinstance(outcome, Refused)
            }
            assert refused == full
            assert driver.store.depth(queue) == len(asked) - len(full)

    def test_what_joins_another_of_its_batch_is_counted_once(self, driver: StoreDriver) -> None:
        outcomes = driver.commit(new("a"), new("a"), new("b", 2), new("c", 2))
        assert [outcome.new for outcome in outcomes[:3]] == [True, True, True]
        assert outcomes[3] == Refused(DEPTH, "2/2/1")

    def test_only_what_is_queued_is_counted(self, driver: StoreDriver) -> None:
        driver.submit("delayed", delay=100.0)
        driver.wait(driver.held("waiting"))
        driver.held("running")
        driver.ended("parked", status="parked")
        driver.ended("done")
        assert driver.store.queues()[0].queued == 1
        assert driver.one(new("a", 2)).new
        assert driver.one(new("b", 2)) == Refused(DEPTH, "2/2/1")

    def test_a_claim_a_cancellation_and_a_change_of_limits_make_room(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("a")
        driver.submit("b")
        driver.one(SetQueueLimits("default", 2, None))
        assert driver.one(new("c")) == Refused(DEPTH, "2/2/1")
        driver.take("a")
        assert driver.one(new("c")).new
        assert driver.one(new("d")) == Refused(DEPTH, "2/2/1")
        driver.one(Cancel("b", "no"))
        assert driver.one(new("d")).new
        driver.one(SetQueueLimits("default", 3, None))
        assert driver.one(new("e")).new
        assert driver.one(new("f")) == Refused(DEPTH, "3/3/1")

    def test_a_run_comes_back_however_full_its_queue_is(self, driver: StoreDriver) -> None:
        row = driver.held("back")
        driver.submit("a")
        driver.one(SetQueueLimits("default", 1, None))
        assert driver.release(row) == "queued"
        assert driver.store.depth("default") == 2
        assert driver.one(new("b")) == Refused(DEPTH, "2/1/1")

    # -- concurrency

    def test_no_more_of_a_queue_are_claimed_than_may_execute_over_all_workers(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, 3))
        for number in range(6):
            driver.submit(f"r{number}")
        driver.submit("other", queue="other")
        first = driver.claim("w1", queues=("default",), limit=2)
        assert [row.id for row in first] == ["r0", "r1"]
        assert [row.id for row in driver.claim("w2", limit=5)] == ["r2", "other"]
        assert driver.claim("w3", limit=5) == []
        driver.settle(first[0])
        assert [row.id for row in driver.claim("w3", limit=5)] == ["r3"]

    @pytest.mark.parametrize("end", [settled, parked, waiting, released, failed, died, left, acked])
    def test_however_a_life_ends_its_place_is_free(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        driver.submit("first", workflow=ITEM if end is acked else "flow", priority=1)
        driver.submit("second")
        (row,) = driver.claim("w1", limit=5)
        assert row.id == "first"
        assert driver.claim("w2", limit=5) == []
        end(driver, row)
        assert len(driver.claim("w2", limit=5)) == 1
        assert driver.claim("w3", limit=5) == []

    def test_limits_hold_within_one_batch(self, driver: StoreDriver) -> None:
        driver.register_worker()
        for number in range(4):
            driver.submit(f"r{number}")
        outcomes = driver.commit(
            SetQueueLimits("default", None, 2),
            Claim("w1", "t1"),
            Claim("w1", "t2"),
            Claim("w1", "t3"),
            SetQueueLimits("default", None, 3),
            Claim("w1", "t4", limit=4),
        )
        assert [None if rows is None else len(rows) for rows in outcomes] == [
            None,
            1,
            1,
            0,
            None,
            1,
        ]

    def test_children_take_no_place(self, driver: StoreDriver) -> None:
        """Children execute with their parents.

        If they counted, the two could wait for each other for ever.
        """
        driver.one(SetQueueLimits("default", None, 2))
        for number in range(3):
            driver.held(f"child{number}", parent="another")
        for number in range(4):
            driver.submit(f"r{number}")
        assert [row.id for row in driver.claim("w2", limit=10)] == ["r0", "r1"]
        (queue,) = driver.store.queues()
        assert queue.running == 2

    def test_claimed_children_leave_room_for_the_others(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        driver.submit("child", parent="another", priority=1)
        driver.submit("run")
        assert [row.id for row in driver.claim(limit=10)] == ["child", "run"]

    def test_a_run_that_is_named_is_claimed_whatever_its_queue_allows_and_counts(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        for id in ("a", "b", "c"):
            driver.submit(id)
        assert [row.id for row in driver.claim(ids=("a", "b"), limit=2)] == ["a", "b"]
        driver.settle(driver.row("a"))
        assert driver.claim() == []
        driver.settle(driver.row("b"))
        assert [row.id for row in driver.claim()] == ["c"]

    def test_what_its_submitter_executes_itself_counts_too(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        row = driver.held("own")
        driver.submit("a")
        assert driver.claim() == []
        driver.settle(row)
        assert [r.id for r in driver.claim()] == ["a"]

    def test_a_queue_that_may_execute_nothing_is_paused(self, driver: StoreDriver) -> None:
        driver.submit("a")
        driver.one(SetQueueLimits("default", None, 0))
        assert driver.claim() == []
        driver.one(SetQueueLimits("default", None, None))
        assert [row.id for row in driver.claim()] == ["a"]

    def test_a_limit_that_is_lowered_takes_nothing_away(self, driver: StoreDriver) -> None:
        for id in ("a", "b", "c"):
            driver.submit(id)
        rows = driver.claim(limit=2)
        assert driver.commit(
            SetQueueLimits("default", None, 1), SetQueueLimits("default", None, 1)
        ) == [
            None,
            None,
        ]
        assert [driver.row(row.id).status for row in rows] == ["running", "running"]
        driver.settle(rows[0])
        assert driver.claim() == []
        driver.settle(rows[1])
        assert [row.id for row in driver.claim()] == ["c"]

    def test_a_limit_of_zero_pauses_a_queue(self, driver: StoreDriver) -> None:
        held = driver.held("held")
        driver.one(SetQueueLimits("default", None, 0))
        driver.submit("waits")
        assert driver.claim() == []
        driver.settle(held)
        assert driver.claim() == []
        (queue,) = driver.store.queues()
        assert (queue.queued, queue.concurrency_max) == (1, 0)
        driver.one(SetQueueLimits("default", None, None))
        assert [row.id for row in driver.claim()] == ["waits"]

    def test_a_full_queue_does_not_hide_the_others(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("full", None, 1))
        for number in range(5):
            driver.submit(f"f{number}", queue="full", priority=9)
        driver.submit("free", queue="open")
        assert [row.id for row in driver.claim(limit=3)] == ["f0", "free"]

    def test_a_queue_is_listed_with_its_limits_before_anything_was_in_it(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("new", 10, 2))
        (queue,) = driver.store.queues()
        assert (
            queue.name,
            queue.queued,
            queue.running,
            queue.depth_max,
            queue.concurrency_max,
        ) == ("new", 0, 0, 10, 2)
        driver.submit("a", queue="new")
        (queue,) = driver.store.queues()
        assert (queue.queued, queue.depth_max, queue.concurrency_max) == (1, 10, 2)

    def test_of_two_who_set_another_limit_each_neither_undoes_the_others(
        self, driver: StoreDriver
    ) -> None:
        driver.commit(
            SetQueueLimits("default", 10, None, keep_concurrency=True),
            SetQueueLimits("default", None, 2, keep_depth=True),
        )
        driver.one(SetQueueLimits("default", None, 3, keep_depth=True))
        (queue,) = driver.store.queues()
        assert (queue.depth_max, queue.concurrency_max) == (10, 3)
        for id in ("a", "b", "c", "d"):
            driver.submit(id)
        driver.one(SetQueueLimits("default", 4, None, keep_concurrency=True))
        assert len(driver.claim(limit=9)) == 3
        driver.one(SetQueueLimits("default", None, None, keep_depth=True))
        (queue,) = driver.store.queues()
        assert (queue.depth_max, queue.concurrency_max) == (4, None)

    def test_children_come_out_of_a_full_queue_in_their_order(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        driver.held("parent")
        for id, priority in (("late", 0), ("first", 7), ("second", 3)):
            driver.submit(id, parent="parent", priority=priority)
        driver.submit("no child", priority=9)
        claimed = [[row.id for row in driver.claim(limit=1)] for _ in range(4)]
        assert claimed == [["first"], ["second"], ["late"], []]

    def test_an_interrupted_child_in_a_full_queue_stands_before_no_new_one_where_none_is_wanted(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, 1))
        driver.held("parent")
        cut = driver.held("cut", workflow="one", parent="parent", priority=5)
        driver.release(cut)
        driver.submit("new", workflow="one", parent="parent", priority=5)
        driver.submit("less", workflow="two", parent="parent")
        claimed = [[row.id for row in driver.claim(limit=1, returned=0)] for _ in range(3)]
        assert claimed == [["new"], ["less"], []]
        assert [row.id for row in driver.claim(limit=1)] == ["cut"]
