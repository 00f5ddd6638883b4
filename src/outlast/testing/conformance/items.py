"""Check plain work items: runs without a workflow, ended by Ack, released by Release(failed)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import (
    FENCE,
    ITEM,
    STATUS,
    Ack,
    Cancel,
    DeregisterWorker,
    Prune,
    Refused,
    Release,
    Retry,
    Send,
)
from outlast.store.rows import RunQuery, RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver


def ack(row: RunRow) -> Ack:
    return Ack(row.pk, row.fence, row.queue)


def nack(driver: StoreDriver, row: RunRow) -> None:
    assert driver.release(row, failed=True) == "cancelled"


def released(driver: StoreDriver, row: RunRow) -> None:
    assert driver.release(row) == "cancelled"


def left(driver: StoreDriver, row: RunRow) -> None:
    assert row.worker is not None
    driver.one(DeregisterWorker(row.worker))


def died(driver: StoreDriver, row: RunRow) -> None:
    swept = driver.lease_over()
    assert (swept.runs, swept.dead) == ((row.id,), ())


class ItemContract(Contract):
    def test_an_item_cannot_be_sent_to(self, driver: StoreDriver) -> None:
        pk = driver.put().pk
        assert driver.one(Send("i", "a", "1", "1")) == Refused(STATUS, "item")
        assert driver.store.messages(pk) == []

    def test_an_item_is_claimed_from_its_queue_with_its_payload(self, driver: StoreDriver) -> None:
        driver.put(args='{"n": 1}')
        (row,) = driver.claim(queues=("items",), workflows=(ITEM,))
        assert (row.id, row.workflow, row.args, row.status) == ("i", ITEM, '{"n": 1}', "running")

    def test_who_claims_workflows_gets_no_items_and_the_other_way_round(
        self, driver: StoreDriver
    ) -> None:
        driver.put("item", queue="mixed")
        driver.submit("run", queue="mixed")
        assert [r.id for r in driver.claim(workflows=("flow",), limit=5)] == ["run"]
        assert [r.id for r in driver.claim(workflows=(ITEM,), limit=5)] == ["item"]

    def test_items_are_listed_apart(self, driver: StoreDriver) -> None:
        driver.put("item")
        driver.submit("run")
        assert [r.id for r in driver.store.runs(RunQuery(items=True))] == ["item"]
        assert [r.id for r in driver.store.runs(RunQuery(items=False))] == ["run"]
        assert [r.id for r in driver.store.runs(RunQuery())] == ["run", "item"]

    # -- Ack

    def test_an_acked_item_is_done(self, driver: StoreDriver) -> None:
        driver.put()
        (row,) = driver.claim()
        driver.clock.forward(3)
        assert driver.one(ack(row)) is None
        now = driver.store.run("i")
        assert now is None or (now.status, now.ended, now.worker) == (
            "done",
            driver.clock.now,
            None,
        )
        assert driver.claim() == []
        (queue,) = driver.store.queues()
        assert (queue.queued, queue.running) == (0, 0)

    def test_an_ack_is_accepted_again(self, driver: StoreDriver) -> None:
        driver.put()
        (row,) = driver.claim()
        assert driver.commit(ack(row), ack(row)) == [None, None]
        before = driver.store.run("i")
        driver.clock.forward(1)
        assert driver.one(ack(row)) is None
        assert driver.store.run("i") == before

    @pytest.mark.parametrize(
        "since", ["released", "nacked", "claimed", "swept", "cancelled", "swept and cancelled"]
    )
    def test_an_ack_of_who_has_lost_the_item_is_refused(
        self, driver: StoreDriver, since: str
    ) -> None:
        driver.put()
        (row,) = driver.claim()
        if "swept" in since:
            driver.lease_over()
        else:
            driver.release(row, failed=since == "nacked")
        if "cancelled" in since:
            assert driver.one(Cancel("i", "no")) == "cancelled"
        if since == "claimed":
            driver.take("i", "w2")
        before = driver.row("i")
        assert driver.one(ack(row)) == Refused(FENCE)
        assert driver.row("i") == before

    @pytest.mark.parametrize("fence", [0, 1, -1])
    def test_an_ack_needs_the_fence(self, driver: StoreDriver, fence: int) -> None:
        driver.put()
        (row,) = driver.claim()
        for wrong in (row.fence + 1, -row.fence, 0):
            assert driver.one(Ack(row.pk, wrong + fence * 1000, "items")) == Refused(FENCE)
        assert driver.row("i") == row

    def test_acked_items_can_be_pruned_by_themselves_with_their_journals(
        self, driver: StoreDriver
    ) -> None:
        driver.put()
        (row,) = driver.claim()
        driver.release(row)
        driver.put("dead", attempts_max=1)
        driver.release(driver.take("dead"), failed=True)
        driver.put("cancelled")
        driver.one(Cancel("cancelled", "no"))
        driver.put("queued")
        driver.ended("run")
        row = driver.take("i")
        assert driver.store.journal(row.pk) != []
        driver.one(ack(row))
        # Prune deletes what ended before this time, not at it.
        assert driver.one(Prune(driver.clock.now, items=True)) == 0
        assert driver.one(Prune(driver.clock.now + 1, items=True)) == 1
        assert driver.store.run("i") is None
        assert driver.store.journal(row.pk) == []
        assert {r.id for r in driver.store.runs(RunQuery())} == {
            "dead",
            "cancelled",
            "queued",
            "run",
        }
        assert driver.one(Prune(driver.clock.now + 1)) == 2
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 1

    def test_acked_items_are_pruned_oldest_first_up_to_the_limit(self, driver: StoreDriver) -> None:
        for id in ("c", "a", "b"):
            driver.put(id)
            driver.one(ack(driver.take(id)))
            driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now, limit=2, items=True)) == 2
        assert driver.store.run("b") is not None
        assert driver.one(Prune(driver.clock.now, limit=2, items=True)) == 1

    # -- nack

    def test_an_item_that_failed_comes_back_after_its_delay(self, driver: StoreDriver) -> None:
        driver.put()
        (row,) = driver.claim()
        assert driver.release(row, "no such host", failed=True, delay=30.0) == "queued"
        now = driver.row("i")
        assert (now.status, now.failures, now.due, now.reason, now.interrupted) == (
            "queued", 1, driver.clock.now + 30.0, "no such host", None
        )  # fmt: skip
        assert (now.interruptions, now.deaths) == (0, 0)
        assert driver.kinds(row) == ["failure"]
        assert "no such host" in (driver.store.journal(row.pk)[0].value or "")
        assert driver.claim() == []
        driver.clock.forward(30)
        assert [r.failures for r in driver.claim()] == [1]

    def test_an_item_that_failed_too_often_is_a_dead_letter(self, driver: StoreDriver) -> None:
        driver.put(attempts_max=3)
        for failures in range(2):
            row = driver.take("i")
            assert row.failures == failures
            assert driver.release(row, failed=True) == "queued"
        row = driver.take("i")
        command = Release(row.pk, row.fence, "the last straw", failed=True)
        assert driver.commit(command, command) == ["dead", "dead"]
        now = driver.row("i")
        assert (now.status, now.failures, now.ended, now.reason) == (
            "dead",
            3,
            driver.clock.now,
            "the last straw",
        )
        assert driver.claim() == []
        driver.one(Retry("i", "t"))
        assert (driver.row("i").status, driver.row("i").failures) == ("queued", 0)

    def test_interruptions_of_an_item_are_no_failures(self, driver: StoreDriver) -> None:
        driver.put(attempts_max=1)
        for _ in range(3):
            assert driver.release(driver.take("i")) == "queued"
        assert (driver.row("i").failures, driver.row("i").interruptions) == (0, 3)

    def test_an_item_that_kills_its_workers_is_a_dead_letter(self, driver: StoreDriver) -> None:
        driver.put(attempts_max=2)
        for turn in range(2):
            driver.take("i", f"w{turn}")
            swept = driver.lease_over(backoff=0.0)
        assert swept.dead == ("i",)
        assert driver.row("i").deaths == 2

    # -- Cancel

    def test_an_item_that_nobody_holds_is_cancelled_at_once_though_it_was_started(
        self, driver: StoreDriver
    ) -> None:
        driver.put()
        driver.release(driver.take("i"))
        assert driver.one(Cancel("i", "no")) == "cancelled"
        now = driver.row("i")
        assert (now.status, now.reason, now.ended) == ("cancelled", "no", driver.clock.now)
        assert driver.claim() == []

    def test_an_item_that_somebody_has_is_asked_and_can_still_be_acked(
        self, driver: StoreDriver
    ) -> None:
        driver.put()
        (row,) = driver.claim()
        assert driver.one(Cancel("i", "no")) == "running"
        assert driver.store.cancels("w1") == [("i", "no")]
        assert driver.one(ack(row)) is None
        assert driver.one(Cancel("i", "no")).why in {STATUS, "unknown"}

    @pytest.mark.parametrize("end", [nack, released, left, died])
    def test_an_item_that_was_asked_to_end_is_cancelled_when_it_comes_back(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.put(attempts_max=1)
        (row,) = driver.claim()
        driver.one(Cancel("i", "no"))
        end(driver, row)
        now = driver.row("i")
        assert (now.status, now.reason, now.ended, now.ready) == (
            "cancelled",
            "no",
            driver.clock.now,
            0,
        )
        assert driver.claim("w2") == driver.claim("w2", suspects=True) == []
