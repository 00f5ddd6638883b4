"""Plain work items: runs without a workflow, done by an Ack, given back by a Release(failed)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.rows import RunQuery, RunRow
from outlast.store.verbs import FENCE, ITEM, STATUS, Ack, Cancel, Leave, Prune, Refused, Release, Retry, Send
from outlast.testing.conformance.harness import Desk, Promises


def ack(row: RunRow) -> Ack:
    return Ack(row.pk, row.fence, row.queue)


def nack(desk: Desk, row: RunRow) -> None:
    assert desk.release(row, failed=True) == "cancelled"


def given_back(desk: Desk, row: RunRow) -> None:
    assert desk.release(row) == "cancelled"


def left(desk: Desk, row: RunRow) -> None:
    assert row.worker is not None
    desk.one(Leave(row.worker))


def died(desk: Desk, row: RunRow) -> None:
    swept = desk.lease_over()
    assert (swept.runs, swept.dead) == ((row.id,), ())


class ItemPromises(Promises):
    def test_an_item_cannot_be_sent_to(self, desk: Desk) -> None:
        pk = desk.put().pk
        assert desk.one(Send("i", "a", "1", "1")) == Refused(STATUS, "item")
        assert desk.store.messages(pk) == []

    def test_an_item_is_claimed_from_its_queue_with_its_payload(self, desk: Desk) -> None:
        desk.put(args='{"n": 1}')
        (row,) = desk.claim(queues=("items",), workflows=(ITEM,))
        assert (row.id, row.workflow, row.args, row.status) == ("i", ITEM, '{"n": 1}', "running")

    def test_who_claims_workflows_gets_no_items_and_the_other_way_round(self, desk: Desk) -> None:
        desk.put("item", queue="mixed")
        desk.submit("run", queue="mixed")
        assert [r.id for r in desk.claim(workflows=("flow",), limit=5)] == ["run"]
        assert [r.id for r in desk.claim(workflows=(ITEM,), limit=5)] == ["item"]

    def test_items_are_listed_apart(self, desk: Desk) -> None:
        desk.put("item")
        desk.submit("run")
        assert [r.id for r in desk.store.runs(RunQuery(items=True))] == ["item"]
        assert [r.id for r in desk.store.runs(RunQuery(items=False))] == ["run"]
        assert [r.id for r in desk.store.runs(RunQuery())] == ["run", "item"]

    # -- Ack

    def test_an_acked_item_is_done(self, desk: Desk) -> None:
        desk.put()
        (row,) = desk.claim()
        desk.clock.forward(3)
        assert desk.one(ack(row)) is None
        now = desk.store.run("i")
        assert now is None or (now.status, now.ended, now.worker) == ("done", desk.clock.now, None)
        assert desk.claim() == []
        (queue,) = desk.store.queues()
        assert (queue.queued, queue.running) == (0, 0)

    def test_an_ack_is_accepted_again(self, desk: Desk) -> None:
        desk.put()
        (row,) = desk.claim()
        assert desk.commit(ack(row), ack(row)) == [None, None]
        before = desk.store.run("i")
        desk.clock.forward(1)
        assert desk.one(ack(row)) is None
        assert desk.store.run("i") == before

    @pytest.mark.parametrize(
        "since", ["given back", "nacked", "claimed", "swept", "cancelled", "swept and cancelled"]
    )
    def test_an_ack_of_who_has_lost_the_item_is_refused(self, desk: Desk, since: str) -> None:
        desk.put()
        (row,) = desk.claim()
        if "swept" in since:
            desk.lease_over()
        else:
            desk.release(row, failed=since == "nacked")
        if "cancelled" in since:
            assert desk.one(Cancel("i", "no")) == "cancelled"
        if since == "claimed":
            desk.take("i", "w2")
        before = desk.row("i")
        assert desk.one(ack(row)) == Refused(FENCE)
        assert desk.row("i") == before

    @pytest.mark.parametrize("fence", [0, 1, -1])
    def test_an_ack_needs_the_fence(self, desk: Desk, fence: int) -> None:
        desk.put()
        (row,) = desk.claim()
        for wrong in (row.fence + 1, -row.fence, 0):
            assert desk.one(Ack(row.pk, wrong + fence * 1000, "items")) == Refused(FENCE)
        assert desk.row("i") == row

    def test_acked_items_can_be_pruned_by_themselves_with_their_journals(self, desk: Desk) -> None:
        desk.put()
        (row,) = desk.claim()
        desk.release(row)
        desk.put("dead", attempts_max=1)
        desk.release(desk.take("dead"), failed=True)
        desk.put("cancelled")
        desk.one(Cancel("cancelled", "no"))
        desk.put("queued")
        desk.ended("run")
        row = desk.take("i")
        assert desk.store.journal(row.pk) != []
        desk.one(ack(row))
        assert desk.one(Prune(desk.clock.now, items=True)) == 0  # before, not at
        assert desk.one(Prune(desk.clock.now + 1, items=True)) == 1
        assert desk.store.run("i") is None
        assert desk.store.journal(row.pk) == []
        assert {r.id for r in desk.store.runs(RunQuery())} == {"dead", "cancelled", "queued", "run"}
        assert desk.one(Prune(desk.clock.now + 1)) == 2
        assert desk.one(Prune(desk.clock.now + 1, dead=True)) == 1

    def test_acked_items_are_pruned_oldest_first_up_to_the_limit(self, desk: Desk) -> None:
        for id in ("c", "a", "b"):
            desk.put(id)
            desk.one(ack(desk.take(id)))
            desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, limit=2, items=True)) == 2
        assert desk.store.run("b") is not None
        assert desk.one(Prune(desk.clock.now, limit=2, items=True)) == 1

    # -- nack

    def test_an_item_that_failed_comes_back_after_its_delay(self, desk: Desk) -> None:
        desk.put()
        (row,) = desk.claim()
        assert desk.release(row, "no such host", failed=True, delay=30.0) == "queued"
        now = desk.row("i")
        assert (now.status, now.failures, now.due, now.reason, now.interrupted) == (
            "queued", 1, desk.clock.now + 30.0, "no such host", None
        )  # fmt: skip
        assert (now.interruptions, now.deaths) == (0, 0)
        assert desk.kinds(row) == ["failure"]
        assert "no such host" in (desk.store.journal(row.pk)[0].value or "")
        assert desk.claim() == []
        desk.clock.forward(30)
        assert [r.failures for r in desk.claim()] == [1]

    def test_an_item_that_failed_too_often_is_a_dead_letter(self, desk: Desk) -> None:
        desk.put(attempts_max=3)
        for failures in range(2):
            row = desk.take("i")
            assert row.failures == failures
            assert desk.release(row, failed=True) == "queued"
        row = desk.take("i")
        verb = Release(row.pk, row.fence, "the last straw", failed=True)
        assert desk.commit(verb, verb) == ["dead", "dead"]
        now = desk.row("i")
        assert (now.status, now.failures, now.ended, now.reason) == (
            "dead",
            3,
            desk.clock.now,
            "the last straw",
        )
        assert desk.claim() == []
        desk.one(Retry("i", "t"))
        assert (desk.row("i").status, desk.row("i").failures) == ("queued", 0)

    def test_interruptions_of_an_item_are_no_failures(self, desk: Desk) -> None:
        desk.put(attempts_max=1)
        for _ in range(3):
            assert desk.release(desk.take("i")) == "queued"
        assert (desk.row("i").failures, desk.row("i").interruptions) == (0, 3)

    def test_an_item_that_kills_its_workers_is_a_dead_letter(self, desk: Desk) -> None:
        desk.put(attempts_max=2)
        for turn in range(2):
            desk.take("i", f"w{turn}")
            swept = desk.lease_over(backoff=0.0)
        assert swept.dead == ("i",)
        assert desk.row("i").deaths == 2

    # -- Cancel

    def test_an_item_that_nobody_holds_is_cancelled_at_once_though_it_was_started(self, desk: Desk) -> None:
        desk.put()
        desk.release(desk.take("i"))
        assert desk.one(Cancel("i", "no")) == "cancelled"
        now = desk.row("i")
        assert (now.status, now.reason, now.ended) == ("cancelled", "no", desk.clock.now)
        assert desk.claim() == []

    def test_an_item_that_somebody_has_is_asked_and_can_still_be_acked(self, desk: Desk) -> None:
        desk.put()
        (row,) = desk.claim()
        assert desk.one(Cancel("i", "no")) == "running"
        assert desk.store.cancels("w1") == [("i", "no")]
        assert desk.one(ack(row)) is None
        assert desk.one(Cancel("i", "no")).why in {STATUS, "unknown"}

    @pytest.mark.parametrize("end", [nack, given_back, left, died])
    def test_an_item_that_was_asked_to_end_is_cancelled_when_it_comes_back(
        self, desk: Desk, end: Callable[[Desk, RunRow], None]
    ) -> None:
        desk.put(attempts_max=1)
        (row,) = desk.claim()
        desk.one(Cancel("i", "no"))
        end(desk, row)
        now = desk.row("i")
        assert (now.status, now.reason, now.ended, now.ready) == ("cancelled", "no", desk.clock.now, 0)
        assert desk.claim("w2") == desk.claim("w2", suspects=True) == []
