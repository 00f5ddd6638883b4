"""Check what a store keeps of each execution of a run: the worker, its start and its end."""

from __future__ import annotations

from outlast.store.commands import (
    EACH,
    Cancel,
    Decide,
    DeregisterWorker,
    Drain,
    Prune,
    RegisterWorker,
    Resume,
    Retry,
    Undo,
    UndoChild,
    verdict,
)
from outlast.store.rows import ExecutionRow, RunRow
from outlast.testing.conformance.harness import LEASE, Contract, StoreDriver


class ExecutionContract(Contract):
    def test_a_run_that_was_never_claimed_has_no_execution(self, driver: StoreDriver) -> None:
        row = driver.submit()
        assert driver.store.executions(row.pk) == []
        driver.one(Cancel("r", "no longer needed"))
        assert driver.store.executions(row.pk) == []
        assert driver.store.executions(row.pk + 1) == []

    def test_a_held_run_has_an_execution_without_an_end(self, driver: StoreDriver) -> None:
        driver.store.acquire_liveness("w1")
        driver.one(RegisterWorker("w1", "host-ä", 4711, LEASE))
        began = driver.clock.now
        own = driver.held("own")
        driver.submit("queued")
        driver.clock.forward(1.25)
        claimed = driver.take("queued")
        driver.clock.forward(1)
        assert _executions(driver, own) == [
            ExecutionRow(own.fence, "w1", "host-ä", 4711, began, None, "running", None)
        ]
        assert _executions(driver, claimed) == [
            ExecutionRow(claimed.fence, "w1", "host-ä", 4711, began + 1.25, None, "running", None)
        ]

    def test_a_run_that_ended_keeps_its_worker_although_that_left(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        began = driver.clock.now
        driver.clock.forward(3)
        driver.settle(row)
        driver.one(DeregisterWorker("w1"))
        assert _executions(driver, row) == [
            ExecutionRow(row.fence, "w1", "host", 1, began, began + 3, "done", None)
        ]

    def test_a_death_ends_an_execution_and_a_takeover_begins_the_next(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        dead = driver.die(row)
        swept = driver.clock.now
        driver.clock.forward(0.5)
        again = driver.take(worker="w2")
        first, second = _executions(driver, row)
        assert (first.fence, first.worker, first.ended) == (row.fence, "w1", swept)
        assert (first.status, first.reason) == ("queued", dead.reason)
        assert (second.fence, second.worker, second.ended) == (again.fence, "w2", None)
        assert second.began == swept + 0.5
        (death,) = driver.store.journal(row.pk)
        assert (death.kind, death.fence, death.at) == ("death", -first.fence, first.ended)

    def test_an_end_is_known_before_the_next_claim(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.clock.forward(2)
        driver.release(row)
        released = driver.clock.now
        driver.clock.forward(2)
        (only,) = _executions(driver, row)
        assert (only.ended, only.status, only.reason) == (released, "queued", "drain")

    def test_each_release_ends_an_execution_with_its_status(self, driver: StoreDriver) -> None:
        row = driver.held()
        times = [driver.clock.now]

        def pass_time() -> None:
            driver.clock.forward(1)
            times.append(driver.clock.now)

        pass_time()
        driver.wait(row, due=driver.clock.now)
        pass_time()
        row = driver.take(worker="w2")
        pass_time()
        driver.release(row, "too early", interrupted=False)
        pass_time()
        row = driver.take(worker="w3")
        pass_time()
        driver.one(DeregisterWorker("w3"))
        pass_time()
        row = driver.take(worker="w1")
        pass_time()
        driver.settle(row, "failed", reason="because")
        assert [
            (one.worker, one.began, one.ended, one.status, one.reason)
            for one in _executions(driver, row)
        ] == [
            ("w1", times[0], times[1], "waiting", "waits"),
            ("w2", times[2], times[3], "queued", "too early"),
            ("w3", times[4], times[5], "queued", "its worker left"),
            ("w1", times[6], times[7], "failed", "because"),
        ]

    def test_what_a_drain_releases_unstarted_was_an_execution(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.clock.forward(1)
        driver.one(Drain("w1", "SIGTERM"))
        (only,) = _executions(driver, row)
        assert (only.worker, only.ended, only.status) == ("w1", driver.clock.now, "queued")
        assert only.reason == driver.row().reason

    def test_a_cancelled_item_keeps_its_execution(self, driver: StoreDriver) -> None:
        driver.put("released")
        driver.put("drained")
        released, drained = driver.take("released"), driver.take("drained")
        for id in ("released", "drained"):
            driver.one(Cancel(id, "no longer needed"))
        driver.clock.forward(1)
        driver.release(released)
        driver.one(Drain("w1", "SIGTERM"))
        for row in (released, drained):
            (only,) = _executions(driver, row)
            assert (only.ended, only.status) == (driver.clock.now, "cancelled")

    def test_a_nack_and_an_ack_end_executions_of_an_item(self, driver: StoreDriver) -> None:
        driver.put()
        first = driver.take("i")
        driver.release(first, "bad", failed=True, interrupted=False)
        second = driver.take("i", "w2")
        driver.clock.forward(1)
        driver.settle(second)
        assert [(one.worker, one.status, one.reason) for one in _executions(driver, first)] == [
            ("w1", "queued", "bad"),
            ("w2", "done", None),
        ]

    def test_a_parked_execution_ended_when_it_parked(self, driver: StoreDriver) -> None:
        row = driver.ended(status="parked")
        parked = driver.clock.now
        driver.clock.forward(5)
        assert [(one.ended, one.status) for one in _executions(driver, row)] == [(parked, "parked")]
        driver.one(Resume("r", driver.token()))
        driver.clock.forward(5)
        driver.settle(driver.take(worker="w2"), "parked")
        driver.clock.forward(5)
        driver.one(Decide("r", "key", "{}", driver.store.last_seq(row.pk), driver.token()))
        driver.clock.forward(5)
        driver.take(worker="w3")
        assert [(one.worker, one.ended, one.status) for one in _executions(driver, row)] == [
            ("w1", parked, "parked"),
            ("w2", parked + 10, "parked"),
            ("w3", None, "running"),
        ]

    def test_a_parked_run_cancelled_later_ended_executing_when_it_parked(
        self, driver: StoreDriver
    ) -> None:
        row = driver.ended(status="parked")
        parked = driver.clock.now
        driver.clock.forward(5)
        assert driver.one(Cancel("r", "no longer needed")) == "cancelled"
        (only,) = _executions(driver, row)
        assert (only.ended, only.status) == (parked, "parked")

    def test_a_retry_keeps_how_the_execution_ended(self, driver: StoreDriver) -> None:
        row = driver.ended(status="failed")
        failed = driver.clock.now
        driver.clock.forward(5)
        driver.one(Retry("r", driver.token()))
        (only,) = _executions(driver, row)
        assert (only.ended, only.status) == (failed, "failed")
        driver.clock.forward(5)
        driver.take(worker="w2")
        assert [(one.worker, one.ended, one.status) for one in _executions(driver, row)] == [
            ("w1", failed, "failed"),
            ("w2", None, "running"),
        ]

    def test_a_retry_of_a_run_that_never_started_begins_its_first_execution(
        self, driver: StoreDriver
    ) -> None:
        row = driver.submit()
        driver.one(Cancel("r", "no longer needed"))
        driver.one(Retry("r", driver.token()))
        assert _executions(driver, row) == []
        driver.take()
        assert [one.worker for one in _executions(driver, row)] == ["w1"]

    def test_an_execution_that_begins_the_compensation_says_so(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.clock.forward(1)
        driver.one(Undo(row.pk, row.fence, verdict("failed")))
        began = driver.clock.now
        driver.clock.forward(1)
        driver.settle(driver.take(worker="w2"), "failed")
        assert [(one.worker, one.ended, one.status) for one in _executions(driver, row)] == [
            ("w1", began, "undoing"),
            ("w2", began + 1, "failed"),
        ]

    def test_a_child_compensated_after_its_end_was_done(self, driver: StoreDriver) -> None:
        driver.held("parent")
        row = driver.held("child", parent="parent")
        driver.record(row, 1, kind="intent")
        driver.clock.forward(1)
        driver.settle(row)
        done = driver.clock.now
        driver.clock.forward(1)
        assert driver.one(UndoChild("child", "parent", "it failed")) == "queued"
        driver.take("child", "w2")
        assert [(one.worker, one.ended, one.status) for one in _executions(driver, row)] == [
            ("w1", done, "done"),
            ("w2", None, "running"),
        ]

    def test_a_resumed_batch_was_done(self, driver: StoreDriver) -> None:
        row = driver.ended(workflow=EACH)
        driver.one(Resume("r", driver.token()))
        driver.take(worker="w2")
        assert [(one.worker, one.status) for one in _executions(driver, row)] == [
            ("w1", "done"),
            ("w2", "running"),
        ]

    def test_a_repeated_claim_is_one_execution(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.release(row)
        again = driver.take(worker="w2")
        (repeat,) = driver.claim_again(again)
        assert repeat == again
        assert [one.fence for one in _executions(driver, row)] == [row.fence, again.fence]

    def test_a_claim_of_many_keeps_every_execution(self, driver: StoreDriver) -> None:
        rows = [driver.held(f"r{number}") for number in range(5)]
        driver.submit("new")
        for row in rows:
            driver.release(row)
        claimed = driver.claim("w2", queues=("default",), limit=10)
        assert len(claimed) == 6
        assert [[one.worker for one in _executions(driver, row)] for row in rows] == [
            ["w1", "w2"]
        ] * 5
        assert [one.worker for one in _executions(driver, driver.row("new"))] == ["w2"]

    def test_pruning_a_run_deletes_its_executions(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.release(row)
        driver.settle(driver.take(worker="w2"))
        assert len(_executions(driver, row)) == 2
        driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now)) == 1
        assert _executions(driver, row) == []
        new = driver.held()
        assert [one.fence for one in _executions(driver, new)] == [new.fence]


def _executions(driver: StoreDriver, row: RunRow) -> list[ExecutionRow]:
    return driver.store.executions(row.pk)
