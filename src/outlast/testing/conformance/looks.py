"""look, queues, depth, workers and held: what there is, without taking it."""

from __future__ import annotations

import json

from outlast.store.rows import Outlook
from outlast.store.verbs import (
    ITEM,
    Ack,
    Cancel,
    Enlist,
    Leave,
    Limit,
    Resume,
    Submit,
    Undo,
    verdict,
)
from outlast.testing.conformance.harness import Desk, Promises

NOTHING = Outlook(ready=False, suspect=False, next_due=None, overdue=False, unknown=())


def returned(desk: Desk) -> tuple[int, float | None]:
    (queue,) = desk.store.queues()
    return queue.returned, queue.returned_since


class LookPromises(Promises):
    def test_an_empty_store_has_nothing_to_claim(self, desk: Desk) -> None:
        assert desk.store.look(("default",), ("flow",)) == NOTHING
        assert desk.store.queues() == []
        assert desk.store.depth("default") == 0

    def test_a_ready_run_is_seen_by_who_knows_its_queue_and_workflow(self, desk: Desk) -> None:
        desk.submit(queue="q", workflow="w")
        assert desk.store.look(("q",), ("w",)) == NOTHING._replace(ready=True)
        assert desk.store.look(("p", "q"), ("v", "w")) == NOTHING._replace(ready=True)
        assert desk.store.look(("p",), ("w",)) == NOTHING

    def test_a_look_takes_nothing(self, desk: Desk) -> None:
        before = desk.submit()
        desk.store.look(("default",), ("flow",))
        assert desk.row() == before

    def test_what_is_claimed_waits_or_has_ended_is_not_there_to_claim(self, desk: Desk) -> None:
        desk.held("running")
        desk.wait(desk.held("waiting"))
        desk.ended("parked", status="parked")
        desk.ended("done")
        assert desk.store.look(("default",), ("flow",)) == NOTHING

    def test_workflows_that_it_does_not_know_are_named_and_items_are_not(self, desk: Desk) -> None:
        desk.submit("a", workflow="newer")
        desk.submit("b", workflow="even newer")
        desk.submit("c", workflow="newer")
        desk.submit("elsewhere", workflow="other", queue="other")
        desk.put("item", queue="default")
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(unknown=("even newer", "newer"))
        assert desk.store.look(("default",), ("newer", "even newer")) == NOTHING._replace(ready=True)
        assert desk.store.look(("default",), (ITEM,)).ready

    def test_a_suspect_is_seen_apart(self, desk: Desk) -> None:
        desk.suspect()
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(suspect=True)
        assert desk.store.look(("default",), ("other",)) == NOTHING._replace(unknown=("flow",))
        desk.submit("new")
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(ready=True, suspect=True)

    def test_the_next_due_time_is_told(self, desk: Desk) -> None:
        desk.submit("later", delay=20.0)
        desk.submit("soon", delay=10.0)
        desk.wait(desk.held("sleeps"), due=desk.clock.now + 15.0)
        desk.wait(desk.held("waits"))
        first = desk.clock.now + 10.0
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(next_due=first)
        desk.clock.forward(10)
        assert desk.store.look(("default",), ("flow",)).ready
        assert [row.id for row in desk.claim(limit=5)] == ["soon"]
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(next_due=first + 5.0)

    def test_who_looks_and_claims_what_it_sees_finds_everything_in_time(self, desk: Desk) -> None:
        """The way of a claimer: it sleeps until the next due time, and never sleeps over a run."""
        for number in range(5):
            desk.submit(f"r{number}", delay=number * 10.0, queue=f"q{number % 2}")
        started: dict[str, float] = {}
        queues = ("q0", "q1")
        begin = desk.clock.now
        while len(started) < 5:
            outlook = desk.store.look(queues, ("flow",))
            if outlook.ready:
                for row in desk.claim(queues=queues, workflows=("flow",), limit=9):
                    started[row.id] = desk.clock.now - begin
                continue
            assert outlook.next_due is not None
            assert outlook.next_due > desk.clock.now
            desk.clock.now = outlook.next_due
        assert started == {f"r{number}": number * 10.0 for number in range(5)}

    def test_a_suspect_that_comes_due_is_seen_after_a_claim_at_the_latest(self, desk: Desk) -> None:
        desk.submit(attempts_max=9)
        for turn in range(2):
            row = desk.die(desk.take(worker=f"w{turn}"), backoff=5.0)
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(next_due=row.due)
        desk.clock.forward(5)
        outlook = desk.store.look(("default",), ("flow",))
        assert outlook.ready or outlook.suspect
        assert desk.claim("w3") == []
        assert desk.store.look(("default",), ("flow",)) == NOTHING._replace(suspect=True)

    # -- queues

    def test_a_queue_is_listed_with_what_is_in_it(self, desk: Desk) -> None:
        start = desk.clock.now
        desk.submit("delayed", delay=1000.0)
        desk.clock.forward(1)
        desk.submit("oldest")
        desk.clock.forward(1)
        desk.submit("younger")
        desk.held("running")
        desk.held("child", parent="running")
        desk.wait(desk.held("waiting"))
        desk.ended("parked", status="parked")
        desk.ended("done")
        desk.submit("cancelled")
        desk.one(Cancel("cancelled", "no"))
        row = desk.held("dead", interruptions_max=1)
        assert desk.release(row) == "dead"
        (queue,) = desk.store.queues()
        assert (queue.name, queue.queued, queue.running, queue.waiting, queue.parked, queue.dead) == (
            "default", 3, 1, 1, 1, 1
        )  # fmt: skip
        assert queue.oldest == start + 1
        assert (queue.submitted, queue.ended) == (10, 3)
        assert (queue.depth_max, queue.concurrency_max) == (None, None)
        desk.clock.forward(59)
        assert [(q.submitted, q.ended) for q in desk.store.queues()] == [(8, 3)]
        desk.clock.forward(1)
        assert [(q.submitted, q.ended) for q in desk.store.queues()] == [(0, 0)]

    def test_what_came_back_is_counted_with_how_long_the_first_of_it_has_waited(self, desk: Desk) -> None:
        desk.submit("new")
        assert returned(desk) == (0, None)
        desk.release(desk.held("first"))
        assert returned(desk) == (1, desk.clock.now)
        desk.suspect("suspect")
        since = desk.row("first").due
        assert returned(desk) == (2, since)
        held = desk.take("first", "w3")
        assert returned(desk) == (1, desk.row("suspect").due)
        assert [row.id for row in desk.claim("w3", suspects=True)] == ["suspect"]
        assert returned(desk) == (0, None)
        desk.clock.forward(3600)
        desk.renew("w3")
        desk.release(held)
        assert desk.row("first").interrupted == since
        assert returned(desk) == (1, desk.clock.now), "from when it came back the last time, not the first"
        desk.settle(desk.claim("w3")[0])
        assert returned(desk) == (0, None)

    def test_what_came_back_and_is_due_later_is_counted_and_has_not_waited(self, desk: Desk) -> None:
        desk.release(desk.held(), delay=10.0)
        desk.wait(desk.held("waits"))
        assert returned(desk) == (1, None)
        due = desk.clock.now + 10
        desk.clock.forward(15)
        assert returned(desk) == (1, due)
        assert [row.id for row in desk.claim("w2")] == ["r"]
        assert returned(desk) == (0, None)

    def test_what_is_queued_and_not_due_yet_is_counted_as_delayed_and_not_as_ready(self, desk: Desk) -> None:
        def counts() -> tuple[int, int, int, int]:
            (queue,) = desk.store.queues()
            return queue.queued, queue.ready, queue.delayed, desk.store.depth("default")

        desk.submit("new")
        desk.submit("submitted", delay=10.0)
        desk.release(desk.held("given back"), delay=20.0)
        desk.release(desk.held("failed item", workflow=ITEM), failed=True, delay=30.0)
        desk.wait(desk.held("asleep"), due=desk.clock.now + 40.0)
        assert counts() == (4, 1, 3, 1), "what sleeps waits, and is not queued"
        desk.clock.forward(10)
        assert counts() == (4, 2, 2, 2), "it is due, though no claim has seen it yet"
        desk.one(Cancel("given back", "no"))
        assert counts() == (4, 3, 1, 3), "it must be claimed to end"
        assert len(desk.claim("w2", limit=10)) == 3
        assert counts() == (1, 0, 1, 0)
        desk.clock.forward(20)
        assert counts() == (1, 1, 0, 1)

    def test_a_suspect_that_is_due_later_is_delayed(self, desk: Desk) -> None:
        desk.die(desk.held(worker="first"))
        desk.die(desk.take(worker="second"), backoff=50.0)
        (queue,) = desk.store.queues()
        assert (queue.ready, queue.delayed, queue.returned) == (0, 1, 1)

    def test_what_is_being_undone_is_counted_and_apart_from_what_is_stuck_in_that(self, desk: Desk) -> None:
        def counts() -> tuple[int, int]:
            (queue,) = desk.store.queues()
            return queue.undoing, queue.stuck

        row = desk.held()
        desk.ended("parked", status="parked")
        assert counts() == (0, 0)
        desk.one(Undo(row.pk, row.fence, verdict("failed")))
        assert counts() == (1, 0)
        for end, after in (("parked", (0, 1)), ("failed", (0, 0))):
            held = desk.take()
            assert counts() == (1, 0)
            desk.settle(held, end, reason="why")
            assert counts() == after
            if end == "parked":
                desk.one(Resume("r", "t"))
                assert counts() == (1, 0)

    def test_an_item_that_is_acked_is_not_counted_as_being_undone(self, desk: Desk) -> None:
        row = desk.held(workflow=ITEM)
        desk.one(Undo(row.pk, row.fence, verdict("failed")))
        held = desk.take()
        assert desk.one(Ack(held.pk, held.fence, held.queue)) is None
        assert [queue.undoing for queue in desk.store.queues()] == [0]

    def test_queues_are_listed_by_name_also_when_they_are_empty_again(self, desk: Desk) -> None:
        for queue in ("b", "a", "c"):
            desk.submit(queue, queue=queue)
        desk.settle(desk.take("b"))
        desk.one(Limit("0", None, 1))
        listed = [(q.name, q.queued, q.oldest) for q in desk.store.queues()]
        now = desk.clock.now
        assert listed == [("0", 0, None), ("a", 1, now), ("b", 0, None), ("c", 1, now)]

    def test_a_queue_that_only_children_were_in_is_listed(self, desk: Desk) -> None:
        desk.settle(desk.held(queue="q", parent="somebody"), "parked")
        assert [(q.name, q.running, q.parked) for q in desk.store.queues()] == [("q", 0, 1)]

    def test_a_queue_whose_only_run_came_and_went_in_one_batch_is_listed(self, desk: Desk) -> None:
        desk.commit(Submit("r", "flow", "[]", "t", "s", queue="q"), Cancel("r", "no"))
        assert [(q.name, q.queued, q.ended) for q in desk.store.queues()] == [("q", 0, 1)]

    def test_to_look_and_to_claim_make_no_queue(self, desk: Desk) -> None:
        desk.claim(queues=("nothing here",))
        desk.store.look(("nor here",), ("flow",))
        assert desk.store.depth("nor here") == 0
        assert desk.store.queues() == []

    # -- workers

    def test_workers_are_listed_with_what_they_claim_and_hold(self, desk: Desk) -> None:
        desk.store.hold("w1")
        desk.one(Enlist("w1", "host", 7, 30.0, ("q", "p"), ("flow", "other"), 20))
        desk.enlist("w2")
        rows = [desk.held("a"), desk.held("b"), desk.held("c", parent="a")]
        desk.put("i")
        rows.append(desk.take("i"))
        first, second = sorted(desk.store.workers(), key=lambda worker: worker.id)
        assert (first.host, first.pid, first.lease, first.renewed) == ("host", 7, 30.0, desk.clock.now)
        assert (json.loads(first.queues), json.loads(first.workflows)) == (["q", "p"], ["flow", "other"])
        assert (first.concurrency, first.held) == (20, 4)
        assert (json.loads(second.queues), second.concurrency, second.held) == ([], 0, 0)
        assert sorted(desk.store.held("w1")) == sorted((row.pk, row.fence, row.id) for row in rows)
        assert desk.store.held("w2") == desk.store.held("nobody") == []
        desk.settle(rows[0])
        assert {worker.id: worker.held for worker in desk.store.workers()} == {"w1": 3, "w2": 0}

    def test_to_enlist_again_says_anew_what_it_claims(self, desk: Desk) -> None:
        desk.one(Enlist("w1", "host", 7, 30.0, ("q",), ("flow",), 20))
        desk.clock.forward(5)
        desk.one(Enlist("w1", "host", 7, 40.0, ("p",), (), 5))
        (worker,) = desk.store.workers()
        assert (json.loads(worker.queues), json.loads(worker.workflows), worker.concurrency) == (["p"], [], 5)
        assert (worker.lease, worker.renewed, worker.lease_until) == (
            40.0,
            desk.clock.now,
            desk.clock.now + 40,
        )

    def test_a_worker_that_left_is_not_listed(self, desk: Desk) -> None:
        desk.held()
        desk.one(Leave("w1"))
        assert desk.store.workers() == []
        assert desk.store.held("w1") == []
