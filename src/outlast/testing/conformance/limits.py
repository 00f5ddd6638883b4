"""Limit: how deep a queue may be, and how many of its runs may execute at once, over all workers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from outlast.store.rows import RunRow
from outlast.store.verbs import (
    DEPTH,
    ITEM,
    Ack,
    Cancel,
    Claim,
    Leave,
    Limit,
    Refused,
    Submit,
    SubmitMany,
    Submitted,
)
from outlast.testing.conformance.harness import WAIT_SECONDS, Desk, Promises


def new(id: str, depth_max: int | None = None, **fields: str) -> Submit:
    return Submit(id, "flow", "[]", f"token-{id}", "seed", depth_max=depth_max, **fields)  # type: ignore[arg-type]


def settled(desk: Desk, row: RunRow) -> None:
    desk.settle(row)


def parked(desk: Desk, row: RunRow) -> None:
    desk.settle(row, "parked")


def waiting(desk: Desk, row: RunRow) -> None:
    desk.wait(row)


def given_back(desk: Desk, row: RunRow) -> None:
    desk.release(row, delay=1000.0)


def failed(desk: Desk, row: RunRow) -> None:
    desk.release(row, failed=True, delay=1000.0)


def died(desk: Desk, row: RunRow) -> None:
    desk.record(row, 1)
    desk.die(row)


def left(desk: Desk, row: RunRow) -> None:
    assert row.worker is not None
    desk.one(Leave(row.worker))


def acked(desk: Desk, row: RunRow) -> None:
    assert desk.one(Ack(row.pk, row.fence, row.queue)) is None


class LimitPromises(Promises):
    # -- depth

    def test_a_great_depth_binds_who_puts_in_alone_and_nobody_once_there_is_room(self, desk: Desk) -> None:
        desk.one(Limit("default", 1_150, None))
        outcomes = [desk.one(SubmitMany(tuple(new(f"{turn}-{n}") for n in range(100)))) for turn in range(12)]
        assert [isinstance(outcome, Refused) for outcome in outcomes] == [False] * 11 + [True]
        singles = desk.commit(*(new(f"s{n}") for n in range(60)))
        assert [isinstance(outcome, Refused) for outcome in singles] == [False] * 50 + [True] * 10
        assert desk.store.depth("default") == 1_150
        desk.enlist()
        assert len(desk.claim(queues=("default",), workflows=("flow",), limit=5)) == 5
        deadline = time.monotonic() + WAIT_SECONDS  # a count may be a moment old, by the store's own clock
        while isinstance(desk.one(new("late")), Refused):
            assert time.monotonic() < deadline

    def test_a_submission_that_the_queue_has_no_room_for_is_refused(self, desk: Desk) -> None:
        desk.submit("a", depth_max=2)
        desk.submit("b", depth_max=2)
        assert desk.one(new("c", 2)) == Refused(DEPTH, "2/2/1")
        assert desk.store.run("c") is None
        assert desk.one(new("c", 3)).new

    def test_a_queue_that_may_hold_nothing_holds_nothing(self, desk: Desk) -> None:
        assert desk.one(new("a", 0)) == Refused(DEPTH, "0/0/1")
        desk.one(Limit("default", 0, None))
        assert desk.one(new("a")) == Refused(DEPTH, "0/0/1")

    def test_each_of_a_batch_counts_for_the_next(self, desk: Desk) -> None:
        outcomes = desk.commit(*(new(id, 2) for id in ("a", "b", "c", "a")))
        assert [isinstance(outcome, Submitted) and outcome.new for outcome in outcomes] == [
            True,
            True,
            False,
            True,
        ]
        assert outcomes[2] == Refused(DEPTH, "2/2/1")

    def test_a_run_that_is_there_is_joined_however_full_the_queue_is(self, desk: Desk) -> None:
        desk.submit("a")
        outcome = desk.one(new("a", 0))
        assert (outcome.new, outcome.row) == (False, desk.row("a"))

    def test_a_run_that_its_submitter_executes_itself_needs_no_room(self, desk: Desk) -> None:
        desk.enlist()
        desk.one(Limit("default", 0, None))
        assert desk.one(new("a", 0, worker="w1")).new

    def test_a_queues_own_limit_goes_before_the_submitters(self, desk: Desk) -> None:
        desk.one(Limit("default", 1, None))
        assert desk.one(new("a", 0)).new
        assert desk.one(new("b", 100)) == Refused(DEPTH, "1/1/1")
        assert desk.one(new("b", 100, queue="other")).new
        desk.one(Limit("default", None, None))
        assert desk.one(new("c", 100)).new

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
        self, desk: Desk, asked: tuple[int | None, ...], full: dict[int, str]
    ) -> None:
        """Also what has no bound of its own, as children have none."""
        batch = [
            new(f"{queue}{n}", bound, queue=queue)
            for n, bound in enumerate(asked)
            for queue in ("one", "two")
        ]
        outcomes = desk.commit(*batch)
        for queue, some in (("one", outcomes[::2]), ("two", outcomes[1::2])):
            refused = {n: outcome.detail for n, outcome in enumerate(some) if isinstance(outcome, Refused)}
            assert refused == full
            assert desk.store.depth(queue) == len(asked) - len(full)

    def test_what_joins_another_of_its_batch_is_counted_once(self, desk: Desk) -> None:
        outcomes = desk.commit(new("a"), new("a"), new("b", 2), new("c", 2))
        assert [outcome.new for outcome in outcomes[:3]] == [True, True, True]
        assert outcomes[3] == Refused(DEPTH, "2/2/1")

    def test_only_what_is_queued_is_counted(self, desk: Desk) -> None:
        desk.submit("delayed", delay=100.0)
        desk.wait(desk.held("waiting"))
        desk.held("running")
        desk.ended("parked", status="parked")
        desk.ended("done")
        assert desk.store.queues()[0].queued == 1
        assert desk.one(new("a", 2)).new
        assert desk.one(new("b", 2)) == Refused(DEPTH, "2/2/1")

    def test_a_claim_a_cancellation_and_a_change_of_limits_make_room(self, desk: Desk) -> None:
        desk.submit("a")
        desk.submit("b")
        desk.one(Limit("default", 2, None))
        assert desk.one(new("c")) == Refused(DEPTH, "2/2/1")
        desk.take("a")
        assert desk.one(new("c")).new
        assert desk.one(new("d")) == Refused(DEPTH, "2/2/1")
        desk.one(Cancel("b", "no"))
        assert desk.one(new("d")).new
        desk.one(Limit("default", 3, None))
        assert desk.one(new("e")).new
        assert desk.one(new("f")) == Refused(DEPTH, "3/3/1")

    def test_a_run_comes_back_however_full_its_queue_is(self, desk: Desk) -> None:
        row = desk.held("back")
        desk.submit("a")
        desk.one(Limit("default", 1, None))
        assert desk.release(row) == "queued"
        assert desk.store.depth("default") == 2
        assert desk.one(new("b")) == Refused(DEPTH, "2/1/1")

    # -- concurrency

    def test_no_more_of_a_queue_are_claimed_than_may_execute_over_all_workers(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 3))
        for number in range(6):
            desk.submit(f"r{number}")
        desk.submit("other", queue="other")
        first = desk.claim("w1", queues=("default",), limit=2)
        assert [row.id for row in first] == ["r0", "r1"]
        assert [row.id for row in desk.claim("w2", limit=5)] == ["r2", "other"]
        assert desk.claim("w3", limit=5) == []
        desk.settle(first[0])
        assert [row.id for row in desk.claim("w3", limit=5)] == ["r3"]

    @pytest.mark.parametrize("end", [settled, parked, waiting, given_back, failed, died, left, acked])
    def test_however_a_life_ends_its_place_is_free(
        self, desk: Desk, end: Callable[[Desk, RunRow], None]
    ) -> None:
        desk.one(Limit("default", None, 1))
        desk.submit("first", workflow=ITEM if end is acked else "flow", priority=1)
        desk.submit("second")
        (row,) = desk.claim("w1", limit=5)
        assert row.id == "first"
        assert desk.claim("w2", limit=5) == []
        end(desk, row)
        assert len(desk.claim("w2", limit=5)) == 1
        assert desk.claim("w3", limit=5) == []

    def test_limits_hold_within_one_batch(self, desk: Desk) -> None:
        desk.enlist()
        for number in range(4):
            desk.submit(f"r{number}")
        outcomes = desk.commit(
            Limit("default", None, 2), Claim("w1", "t1"), Claim("w1", "t2"), Claim("w1", "t3"),
            Limit("default", None, 3), Claim("w1", "t4", limit=4),
        )  # fmt: skip
        assert [None if rows is None else len(rows) for rows in outcomes] == [None, 1, 1, 0, None, 1]

    def test_children_take_no_place(self, desk: Desk) -> None:
        """A child executes with its parent: counted, the two could wait for each other for ever."""
        desk.one(Limit("default", None, 2))
        for number in range(3):
            desk.held(f"child{number}", parent="somebody")
        for number in range(4):
            desk.submit(f"r{number}")
        assert [row.id for row in desk.claim("w2", limit=10)] == ["r0", "r1"]
        (queue,) = desk.store.queues()
        assert queue.running == 2

    def test_claimed_children_leave_room_for_the_others(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 1))
        desk.submit("child", parent="somebody", priority=1)
        desk.submit("run")
        assert [row.id for row in desk.claim(limit=10)] == ["child", "run"]

    def test_a_run_that_is_named_is_claimed_whatever_its_queue_allows_and_counts(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 1))
        for id in ("a", "b", "c"):
            desk.submit(id)
        assert [row.id for row in desk.claim(ids=("a", "b"), limit=2)] == ["a", "b"]
        desk.settle(desk.row("a"))
        assert desk.claim() == []
        desk.settle(desk.row("b"))
        assert [row.id for row in desk.claim()] == ["c"]

    def test_what_its_submitter_executes_itself_counts_too(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 1))
        row = desk.held("own")
        desk.submit("a")
        assert desk.claim() == []
        desk.settle(row)
        assert [r.id for r in desk.claim()] == ["a"]

    def test_a_queue_that_may_execute_nothing_is_paused(self, desk: Desk) -> None:
        desk.submit("a")
        desk.one(Limit("default", None, 0))
        assert desk.claim() == []
        desk.one(Limit("default", None, None))
        assert [row.id for row in desk.claim()] == ["a"]

    def test_a_limit_that_is_lowered_takes_nothing_away(self, desk: Desk) -> None:
        for id in ("a", "b", "c"):
            desk.submit(id)
        rows = desk.claim(limit=2)
        assert desk.commit(Limit("default", None, 1), Limit("default", None, 1)) == [None, None]
        assert [desk.row(row.id).status for row in rows] == ["running", "running"]
        desk.settle(rows[0])
        assert desk.claim() == []
        desk.settle(rows[1])
        assert [row.id for row in desk.claim()] == ["c"]

    def test_a_full_queue_does_not_hide_the_others(self, desk: Desk) -> None:
        desk.one(Limit("full", None, 1))
        for number in range(5):
            desk.submit(f"f{number}", queue="full", priority=9)
        desk.submit("free", queue="open")
        assert [row.id for row in desk.claim(limit=3)] == ["f0", "free"]

    def test_a_queue_is_listed_with_its_limits_before_anything_was_in_it(self, desk: Desk) -> None:
        desk.one(Limit("new", 10, 2))
        (queue,) = desk.store.queues()
        assert (queue.name, queue.queued, queue.running, queue.depth_max, queue.concurrency_max) == (
            "new", 0, 0, 10, 2
        )  # fmt: skip
        desk.submit("a", queue="new")
        (queue,) = desk.store.queues()
        assert (queue.queued, queue.depth_max, queue.concurrency_max) == (1, 10, 2)

    def test_of_two_who_set_another_limit_each_neither_undoes_the_others(self, desk: Desk) -> None:
        desk.commit(
            Limit("default", 10, None, keep_concurrency=True), Limit("default", None, 2, keep_depth=True)
        )
        desk.one(Limit("default", None, 3, keep_depth=True))
        (queue,) = desk.store.queues()
        assert (queue.depth_max, queue.concurrency_max) == (10, 3)
        for id in ("a", "b", "c", "d"):
            desk.submit(id)
        desk.one(Limit("default", 4, None, keep_concurrency=True))
        assert len(desk.claim(limit=9)) == 3
        desk.one(Limit("default", None, None, keep_depth=True))
        (queue,) = desk.store.queues()
        assert (queue.depth_max, queue.concurrency_max) == (4, None)

    def test_children_come_out_of_a_full_queue_in_their_order(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 1))
        desk.held("parent")
        for id, priority in (("late", 0), ("first", 7), ("second", 3)):
            desk.submit(id, parent="parent", priority=priority)
        desk.submit("no child", priority=9)
        claimed = [[row.id for row in desk.claim(limit=1)] for _ in range(4)]
        assert claimed == [["first"], ["second"], ["late"], []]

    def test_an_interrupted_child_in_a_full_queue_stands_before_no_new_one_where_none_is_wanted(
        self, desk: Desk
    ) -> None:
        desk.one(Limit("default", None, 1))
        desk.held("parent")
        cut = desk.held("cut", workflow="one", parent="parent", priority=5)
        desk.release(cut)
        desk.submit("new", workflow="one", parent="parent", priority=5)
        desk.submit("less", workflow="two", parent="parent")
        claimed = [[row.id for row in desk.claim(limit=1, returned=0)] for _ in range(3)]
        assert claimed == [["new"], ["less"], []]
        assert [row.id for row in desk.claim(limit=1)] == ["cut"]
