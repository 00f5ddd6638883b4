"""Check StoreDrainReport: what is known about a drain, and how soon its runs recovered."""

from __future__ import annotations

import json

from outlast.store.commands import (
    DRAINS_MAX,
    ITEM,
    Cancel,
    DeregisterWorker,
    Drain,
    RegisterWorker,
    Release,
    Renew,
    Retry,
    StoreDrainReport,
    Swept,
)
from outlast.testing.conformance.harness import LEASE, Contract, StoreDriver, seen_of


class ReportContract(Contract):
    # -- the report

    def test_a_drain_opens_a_report_that_says_who_and_why(self, driver: StoreDriver) -> None:
        driver.store.acquire_liveness("w1")
        driver.one(RegisterWorker("w1", "host-7", 4711, 30.0))
        begun, _ = driver.held("begun"), driver.held("not begun")
        driver.one(Drain("w1", "SIGTERM", (begun.fence,)))
        (drain,) = driver.store.drains()
        assert drain == ("w1", "host-7", 4711, "SIGTERM", driver.clock.now, None, 1, None, ())

    def test_a_report_closes_it_and_a_repeat_overwrites(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.one(Drain("w1", "SIGTERM"))
        (opened,) = driver.store.drains()
        driver.clock.forward(2)
        assert driver.one(StoreDrainReport("w1", '{"completed": 1}')) is None
        assert driver.store.drains() == [
            opened._replace(ended=driver.clock.now, report='{"completed": 1}')
        ]
        driver.clock.forward(1)
        assert driver.one(StoreDrainReport("w1", '{"completed": 2}')) is None
        assert driver.store.drains() == [
            opened._replace(ended=driver.clock.now, report='{"completed": 2}')
        ]

    def test_a_repeat_of_the_drain_does_not_open_a_closed_report(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.commit(Drain("w1", "SIGTERM"), StoreDrainReport("w1", "{}"))
        (closed,) = driver.store.drains()
        driver.one(Drain("w1", "again"))
        assert driver.store.drains() == [closed]

    def test_a_report_is_taken_of_a_worker_that_has_left_and_of_one_that_nobody_knows(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.commit(Drain("w1", "SIGTERM"), DeregisterWorker("w1"))
        assert [(drain.worker, drain.ended) for drain in driver.store.drains()] == [("w1", None)]
        assert driver.commit(
            StoreDrainReport("w1", '"late"'), StoreDrainReport("stranger", '"hello"')
        ) == [
            None,
            None,
        ]
        stranger, known = driver.store.drains()
        assert stranger == (
            "stranger", "", 0, "", driver.clock.now, driver.clock.now, 0, '"hello"', ()
        )  # fmt: skip
        assert (known.worker, known.reason, known.report) == ("w1", "SIGTERM", '"late"')

    def test_a_sweep_closes_the_report_of_a_worker_that_died_while_it_drained(
        self, driver: StoreDriver
    ) -> None:
        rows = [driver.held(id) for id in ("one", "two")]
        driver.one(Drain("w1", "SIGTERM", tuple(row.fence for row in rows)))
        assert driver.lease_over().workers == ("w1",)
        (drain,) = driver.store.drains()
        assert (drain.reason, drain.ended, drain.held) == ("SIGTERM", driver.clock.now, 2)
        report = json.loads(drain.report or "")
        assert (report["cut_short"], report["left"]) == (True, ["one", "two"])
        assert "lease" in report["why"]
        assert report["seen"] == seen_of(driver, rows[0])[0]
        assert report["seen"] < driver.clock.now

    def test_it_makes_one_where_a_mere_renewal_had_said_that_it_drains(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        driver.renew(draining=True)
        driver.lease_over()
        (drain,) = driver.store.drains()
        assert (drain.worker, drain.host, drain.pid, drain.reason, drain.held) == (
            "w1",
            "host",
            1,
            "",
            1,
        )
        assert (drain.began, drain.ended) == (driver.clock.now, driver.clock.now)
        assert json.loads(drain.report or "")["left"] == ["r"]

    def test_a_report_that_a_sweep_closed_is_not_overwritten_by_one_that_comes_late(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        driver.one(Drain("w1", "SIGTERM", (driver.row().fence,)))
        driver.lease_over()
        (closed,) = driver.store.drains()
        driver.clock.forward(1)
        assert driver.one(StoreDrainReport("w1", '"I only slept"')) is None
        assert driver.store.drains() == [closed]

    def test_a_sweep_leaves_a_closed_report_as_it_is(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.commit(Drain("w1", "SIGTERM"), StoreDrainReport("w1", '"done"'))
        (closed,) = driver.store.drains()
        driver.lease_over()
        assert driver.store.drains() == [closed]

    def test_the_death_of_a_worker_that_did_not_drain_makes_no_report(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        assert driver.lease_over() == Swept(("r",), (), ("w1",))
        assert driver.store.drains() == []

    def test_newest_first_and_no_more_than_asked_for(self, driver: StoreDriver) -> None:
        for number in range(25):
            driver.register_worker(f"w{number}")
            driver.one(Drain(f"w{number}", "x"))
            # Clocks do go back.
            driver.clock.forward(-1 if number % 2 else 1)
        assert [drain.worker for drain in driver.store.drains()] == [
            f"w{n}" for n in range(24, 4, -1)
        ]
        assert [drain.worker for drain in driver.store.drains(limit=2)] == ["w24", "w23"]
        assert len(driver.store.drains(limit=100)) == 25

    def test_old_ones_are_forgotten_with_their_recoveries(self, driver: StoreDriver) -> None:
        row = driver.held("r", "oldest")
        driver.one(Drain("oldest", "x", (row.fence,)))
        driver.release(row)
        driver.take("r", "w2")
        driver.commit(*(StoreDrainReport(f"w{number}", "{}") for number in range(DRAINS_MAX - 1)))
        assert [drain.recoveries for drain in driver.store.drains(limit=5000)[-1:]] == [(0.0,)]
        driver.register_worker("newest")
        driver.one(Drain("newest", "x"))
        drains = driver.store.drains(limit=5000)
        assert (len(drains), drains[0].worker, drains[-1].worker) == (DRAINS_MAX, "newest", "w0")
        driver.one(StoreDrainReport("oldest", "{}"))
        assert driver.store.drains(1)[0].recoveries == ()

    # -- recoveries

    def test_the_claim_of_a_run_that_a_drain_left_is_a_recovery(self, driver: StoreDriver) -> None:
        rows = [driver.held(id) for id in ("one", "two", "three")]
        driver.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        for row in rows:
            driver.release(row)
        driver.clock.forward(5)
        driver.claim("w2", limit=1)
        driver.clock.forward(-3)
        driver.claim("w2", limit=1)
        (drain,) = driver.store.drains()
        assert drain.recoveries == (2.0, 5.0)
        driver.one(DeregisterWorker("w1"))
        driver.clock.forward(1)
        driver.take("three", "w3")
        (drain,) = driver.store.drains()
        assert drain.recoveries == (2.0, 3.0, 5.0)

    def test_it_is_counted_once(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Drain("w1", "x", (row.fence,)))
        driver.release(row)
        driver.release(driver.take("r", "w2"))
        driver.clock.forward(7)
        driver.take("r", "w3")
        (drain,) = driver.store.drains()
        assert drain.recoveries == (0.0,)

    def test_what_it_held_when_it_left_is_recovered_too(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Drain("w1", "x", (row.fence,)))
        driver.clock.forward(30)
        driver.one(DeregisterWorker("w1"))
        driver.clock.forward(2)
        driver.take("r", "w9")
        assert driver.store.drains(1)[0].recoveries == (2.0,)

    def test_what_was_cut_is_recovered_from_when_its_worker_was_last_seen(
        self, driver: StoreDriver
    ) -> None:
        """Counting from the sweep's detection would miss most of the time without execution."""
        row, released = driver.held(), driver.held("released")
        driver.one(Drain("w1", "x", (row.fence, released.fence)))
        driver.clock.forward(10)
        driver.renew(draining=True)
        driver.release(released)
        driver.lease_over()
        driver.clock.forward(2)
        driver.claim("w9", limit=2)
        assert driver.store.drains(1)[0].recoveries == (LEASE + 2, LEASE + 2)
        assert seen_of(driver, row) == (driver.clock.now - LEASE - 2, "lease")

    def test_what_was_released_in_another_way_is_no_recovery(self, driver: StoreDriver) -> None:
        rows = [
            driver.held(id, workflow=ITEM if id == "failed" else "flow")
            for id in ("free", "waiting", "failed")
        ]
        driver.held("not begun")
        driver.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        free, waiting, failed = rows
        driver.release(free, interrupted=False)
        driver.wait(waiting, due=driver.clock.now)
        driver.release(failed, failed=True)
        assert len(driver.claim("w2", limit=9)) == 4
        (drain,) = driver.store.drains()
        assert drain.recoveries == ()

    def test_what_was_released_before_the_drain_is_none_either(self, driver: StoreDriver) -> None:
        driver.release(driver.held())
        driver.one(Drain("w1", "x"))
        driver.take("r", "w2")
        assert driver.store.drains()[0].recoveries == ()

    def test_a_run_that_ended_first_is_never_recovered(self, driver: StoreDriver) -> None:
        """Dead letters and cancelled items wait for a person to retry them, not for a worker."""
        letter, item = (
            driver.held("letter", interruptions_max=1),
            driver.held("item", workflow=ITEM),
        )
        driver.one(Drain("w1", "x", (letter.fence, item.fence)))
        assert (driver.release(letter), driver.release(item)) == ("dead", "queued")
        driver.one(Cancel("item", "not needed"))
        driver.clock.forward(100)
        assert driver.commit(Retry("letter", "t"), Retry("item", "t")) == [None, None]
        assert len(driver.claim("w2", limit=9)) == 2
        assert driver.store.drains()[0].recoveries == ()

    def test_a_drain_without_a_report_has_no_recoveries(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.commit(Renew("w1", 60.0, draining=True), Release(row.pk, row.fence, "x")) == [
            None,
            "queued",
        ]
        driver.take("r", "w2")
        driver.one(StoreDrainReport("w1", "{}"))
        assert driver.store.drains()[0].recoveries == ()
