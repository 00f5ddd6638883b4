"""Check peek, queues, depth, workers and held: they show what exists without taking it."""

from __future__ import annotations

import json

from outlast.store.commands import (
    ITEM,
    Ack,
    Cancel,
    DeregisterWorker,
    RegisterWorker,
    Resume,
    SetQueueLimits,
    Submit,
    Undo,
    verdict,
)
from outlast.store.rows import Claimable
from outlast.testing.conformance.harness import Contract, StoreDriver

NOTHING = Claimable(ready=False, suspect=False, next_due=None, overdue=False, unknown=())


def returned(driver: StoreDriver) -> tuple[int, float | None]:
    (queue,) = driver.store.queues()
    return queue.returned, queue.returned_since


class LookContract(Contract):
    def test_an_empty_store_has_nothing_to_claim(self, driver: StoreDriver) -> None:
        assert driver.store.peek(("default",), ("flow",)) == NOTHING
        assert driver.store.queues() == []
        assert driver.store.depth("default") == 0

    def test_a_ready_run_is_seen_by_who_knows_its_queue_and_workflow(
        self, driver: StoreDriver
    ) -> None:
        driver.submit(queue="q", workflow="w")
        assert driver.store.peek(("q",), ("w",)) == NOTHING._replace(ready=True)
        assert driver.store.peek(("p", "q"), ("v", "w")) == NOTHING._replace(ready=True)
        assert driver.store.peek(("p",), ("w",)) == NOTHING

    def test_a_peek_takes_nothing(self, driver: StoreDriver) -> None:
        before = driver.submit()
        driver.store.peek(("default",), ("flow",))
        assert driver.row() == before

    def test_what_is_claimed_waits_or_has_ended_is_not_there_to_claim(
        self, driver: StoreDriver
    ) -> None:
        driver.held("running")
        driver.wait(driver.held("waiting"))
        driver.ended("parked", status="parked")
        driver.ended("done")
        assert driver.store.peek(("default",), ("flow",)) == NOTHING

    def test_workflows_that_it_does_not_know_are_named_and_items_are_not(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("a", workflow="newer")
        driver.submit("b", workflow="even newer")
        driver.submit("c", workflow="newer")
        driver.submit("elsewhere", workflow="other", queue="other")
        driver.put("item", queue="default")
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(
            unknown=("even newer", "newer")
        )
        assert driver.store.peek(("default",), ("newer", "even newer")) == NOTHING._replace(
            ready=True
        )
        assert driver.store.peek(("default",), (ITEM,)).ready

    def test_a_suspect_is_seen_apart(self, driver: StoreDriver) -> None:
        driver.suspect()
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(suspect=True)
        assert driver.store.peek(("default",), ("other",)) == NOTHING._replace(unknown=("flow",))
        driver.submit("new")
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(
            ready=True, suspect=True
        )

    def test_the_next_due_time_is_told(self, driver: StoreDriver) -> None:
        driver.submit("later", delay=20.0)
        driver.submit("soon", delay=10.0)
        driver.wait(driver.held("sleeps"), due=driver.clock.now + 15.0)
        driver.wait(driver.held("waits"))
        first = driver.clock.now + 10.0
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(next_due=first)
        driver.clock.forward(10)
        assert driver.store.peek(("default",), ("flow",)).ready
        assert [row.id for row in driver.claim(limit=5)] == ["soon"]
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(next_due=first + 5.0)

    def test_who_peeks_and_claims_what_it_sees_finds_everything_in_time(
        self, driver: StoreDriver
    ) -> None:
        """Act like a claimer: sleep until the next due time, and never oversleep a run."""
        for number in range(5):
            driver.submit(f"r{number}", delay=number * 10.0, queue=f"q{number % 2}")
        started: dict[str, float] = {}
        queues = ("q0", "q1")
        begin = driver.clock.now
        while len(started) < 5:
            claimable = driver.store.peek(queues, ("flow",))
            if claimable.ready:
                for row in driver.claim(queues=queues, workflows=("flow",), limit=9):
                    started[row.id] = driver.clock.now - begin
                continue
            assert claimable.next_due is not None
            assert claimable.next_due > driver.clock.now
            driver.clock.now = claimable.next_due
        assert started == {f"r{number}": number * 10.0 for number in range(5)}

    def test_a_suspect_that_comes_due_is_seen_after_a_claim_at_the_latest(
        self, driver: StoreDriver
    ) -> None:
        driver.submit(attempts_max=9)
        for turn in range(2):
            row = driver.die(driver.take(worker=f"w{turn}"), backoff=5.0)
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(next_due=row.due)
        driver.clock.forward(5)
        claimable = driver.store.peek(("default",), ("flow",))
        assert claimable.ready or claimable.suspect
        assert driver.claim("w3") == []
        assert driver.store.peek(("default",), ("flow",)) == NOTHING._replace(suspect=True)

    # -- queues

    def test_a_queue_is_listed_with_what_is_in_it(self, driver: StoreDriver) -> None:
        start = driver.clock.now
        driver.submit("delayed", delay=1000.0)
        driver.clock.forward(1)
        driver.submit("oldest")
        driver.clock.forward(1)
        driver.submit("younger")
        driver.held("running")
        driver.held("child", parent="running")
        driver.wait(driver.held("waiting"))
        driver.ended("parked", status="parked")
        driver.ended("done")
        driver.submit("cancelled")
        driver.one(Cancel("cancelled", "no"))
        row = driver.held("dead", interruptions_max=1)
        assert driver.release(row) == "dead"
        (queue,) = driver.store.queues()
        assert (
            queue.name,
            queue.queued,
            queue.running,
            queue.waiting,
            queue.parked,
            queue.dead,
        ) == ("default", 3, 1, 1, 1, 1)
        assert queue.oldest == start + 1
        assert (queue.submitted, queue.ended) == (10, 3)
        assert (queue.depth_max, queue.concurrency_max) == (None, None)
        driver.clock.forward(59)
        assert [(q.submitted, q.ended) for q in driver.store.queues()] == [(8, 3)]
        driver.clock.forward(1)
        assert [(q.submitted, q.ended) for q in driver.store.queues()] == [(0, 0)]

    def test_what_came_back_is_counted_with_how_long_the_first_of_it_has_waited(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        assert returned(driver) == (0, None)
        driver.release(driver.held("first"))
        assert returned(driver) == (1, driver.clock.now)
        driver.suspect("suspect")
        since = driver.row("first").due
        assert returned(driver) == (2, since)
        held = driver.take("first", "w3")
        assert returned(driver) == (1, driver.row("suspect").due)
        assert [row.id for row in driver.claim("w3", suspects=True)] == ["suspect"]
        assert returned(driver) == (0, None)
        driver.clock.forward(3600)
        driver.renew("w3")
        driver.release(held)
        assert driver.row("first").interrupted == since
        assert returned(driver) == (1, driver.clock.now), (
            "from when it came back the last time, not the first"
        )
        driver.settle(driver.claim("w3")[0])
        assert returned(driver) == (0, None)

    def test_what_came_back_and_is_due_later_is_counted_and_has_not_waited(
        self, driver: StoreDriver
    ) -> None:
        driver.release(driver.held(), delay=10.0)
        driver.wait(driver.held("waits"))
        assert returned(driver) == (1, None)
        due = driver.clock.now + 10
        driver.clock.forward(15)
        assert returned(driver) == (1, due)
        assert [row.id for row in driver.claim("w2")] == ["r"]
        assert returned(driver) == (0, None)

    def test_what_is_queued_and_not_due_yet_is_counted_as_delayed_and_not_as_ready(
        self, driver: StoreDriver
    ) -> None:
        def counts() -> tuple[int, int, int, int]:
            (queue,) = driver.store.queues()
            return queue.queued, queue.ready, queue.delayed, driver.store.depth("default")

        driver.submit("new")
        driver.submit("submitted", delay=10.0)
        driver.release(driver.held("released"), delay=20.0)
        driver.release(driver.held("failed item", workflow=ITEM), failed=True, delay=30.0)
        driver.wait(driver.held("asleep"), due=driver.clock.now + 40.0)
        assert counts() == (4, 1, 3, 1), "what sleeps waits, and is not queued"
        driver.clock.forward(10)
        assert counts() == (4, 2, 2, 2), "it is due, though no claim has seen it yet"
        driver.one(Cancel("released", "no"))
        assert counts() == (4, 3, 1, 3), "it must be claimed to end"
        assert len(driver.claim("w2", limit=10)) == 3
        assert counts() == (1, 0, 1, 0)
        driver.clock.forward(20)
        assert counts() == (1, 1, 0, 1)

    def test_a_suspect_that_is_due_later_is_delayed(self, driver: StoreDriver) -> None:
        driver.die(driver.held(worker="first"))
        driver.die(driver.take(worker="second"), backoff=50.0)
        (queue,) = driver.store.queues()
        assert (queue.ready, queue.delayed, queue.returned) == (0, 1, 1)

    def test_what_is_being_undone_is_counted_and_apart_from_what_is_stuck_in_that(
        self, driver: StoreDriver
    ) -> None:
        def counts() -> tuple[int, int]:
            (queue,) = driver.store.queues()
            return queue.undoing, queue.stuck

        row = driver.held()
        driver.ended("parked", status="parked")
        assert counts() == (0, 0)
        driver.one(Undo(row.pk, row.fence, verdict("failed")))
        assert counts() == (1, 0)
        for end, after in (("parked", (0, 1)), ("failed", (0, 0))):
            held = driver.take()
            assert counts() == (1, 0)
            driver.settle(held, end, reason="why")
            assert counts() == after
            if end == "parked":
                driver.one(Resume("r", "t"))
                assert counts() == (1, 0)

    def test_an_item_that_is_acked_is_not_counted_as_being_undone(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(workflow=ITEM)
        driver.one(Undo(row.pk, row.fence, verdict("failed")))
        held = driver.take()
        assert driver.one(Ack(held.pk, held.fence, held.queue)) is None
        assert [queue.undoing for queue in driver.store.queues()] == [0]

    def test_queues_are_listed_by_name_also_when_they_are_empty_again(
        self, driver: StoreDriver
    ) -> None:
        for queue in ("b", "a", "c"):
            driver.submit(queue, queue=queue)
        driver.settle(driver.take("b"))
        driver.one(SetQueueLimits("0", None, 1))
        listed = [(q.name, q.queued, q.oldest) for q in driver.store.queues()]
        now = driver.clock.now
        assert listed == [("0", 0, None), ("a", 1, now), ("b", 0, None), ("c", 1, now)]

    def test_a_queue_that_only_children_were_in_is_listed(self, driver: StoreDriver) -> None:
        driver.settle(driver.held(queue="q", parent="another"), "parked")
        assert [(q.name, q.running, q.parked) for q in driver.store.queues()] == [("q", 0, 1)]

    def test_a_queue_whose_only_run_came_and_went_in_one_batch_is_listed(
        self, driver: StoreDriver
    ) -> None:
        driver.commit(Submit("r", "flow", "[]", "t", "s", queue="q"), Cancel("r", "no"))
        assert [(q.name, q.queued, q.ended) for q in driver.store.queues()] == [("q", 0, 1)]

    def test_to_peek_and_to_claim_make_no_queue(self, driver: StoreDriver) -> None:
        driver.claim(queues=("nothing here",))
        driver.store.peek(("nor here",), ("flow",))
        assert driver.store.depth("nor here") == 0
        assert driver.store.queues() == []

    # -- workers

    def test_workers_are_listed_with_what_they_claim_and_hold(self, driver: StoreDriver) -> None:
        driver.store.acquire_liveness("w1")
        driver.one(RegisterWorker("w1", "host", 7, 30.0, ("q", "p"), ("flow", "other"), 20))
        driver.register_worker("w2")
        rows = [driver.held("a"), driver.held("b"), driver.held("c", parent="a")]
        driver.put("i")
        rows.append(driver.take("i"))
        first, second = sorted(driver.store.workers(), key=lambda worker: worker.id)
        assert (first.host, first.pid, first.lease, first.renewed) == (
            "host",
            7,
            30.0,
            driver.clock.now,
        )
        assert (json.loads(first.queues), json.loads(first.workflows)) == (
            ["q", "p"],
            ["flow", "other"],
        )
        assert (first.concurrency, first.held) == (20, 4)
        assert (json.loads(second.queues), second.concurrency, second.held) == ([], 0, 0)
        assert sorted(driver.store.held("w1")) == sorted(
            (row.pk, row.fence, row.id) for row in rows
        )
        assert driver.store.held("w2") == driver.store.held("nobody") == []
        driver.settle(rows[0])
        assert {worker.id: worker.held for worker in driver.store.workers()} == {"w1": 3, "w2": 0}

    def test_registering_again_updates_what_a_worker_claims(self, driver: StoreDriver) -> None:
        driver.one(RegisterWorker("w1", "host", 7, 30.0, ("q",), ("flow",), 20))
        driver.clock.forward(5)
        driver.one(RegisterWorker("w1", "host", 7, 40.0, ("p",), (), 5))
        (worker,) = driver.store.workers()
        assert (json.loads(worker.queues), json.loads(worker.workflows), worker.concurrency) == (
            ["p"],
            [],
            5,
        )
        assert (worker.lease, worker.renewed, worker.lease_until) == (
            40.0,
            driver.clock.now,
            driver.clock.now + 40,
        )

    def test_a_worker_that_left_is_not_listed(self, driver: StoreDriver) -> None:
        driver.held()
        driver.one(DeregisterWorker("w1"))
        assert driver.store.workers() == []
        assert driver.store.held("w1") == []
