"""Check Sweep: what becomes of the runs of a worker that died."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import (
    WORKER,
    Cancel,
    Claim,
    DeregisterWorker,
    Refused,
    RegisterWorker,
    Renew,
    Sweep,
    Swept,
)
from outlast.testing.conformance.harness import LEASE, NOBODY, Contract, StoreDriver, entry, seen_of


class DeathContract(Contract):
    """Check the sweep of a dead worker and of one that was draining."""

    @pytest.mark.parametrize("draining", [False, True])
    def test_the_entry_of_a_death_has_the_time_its_worker_was_last_seen(
        self, driver: StoreDriver, draining: bool
    ) -> None:
        row = driver.held()
        driver.clock.forward(12.25)
        driver.renew(draining=draining)
        renewed = driver.clock.now
        driver.lease_over()
        assert driver.clock.now == renewed + LEASE
        assert driver.kinds(row) == ["interruption" if draining else "death"]
        assert seen_of(driver, row) == (renewed, "lease")

    def test_a_deregistered_worker_was_seen_then_and_a_release_says_nothing_of_it(
        self, driver: StoreDriver
    ) -> None:
        left, released = driver.held(), driver.held("released")
        driver.clock.forward(12.25)
        driver.release(released)
        driver.one(DeregisterWorker("w1"))
        assert seen_of(driver, left) == (driver.clock.now, "leave")
        assert seen_of(driver, released) == (None, None)

    def test_a_worker_is_never_seen_in_the_future(self, driver: StoreDriver) -> None:
        """Set the clock back by more than a lease."""
        driver.register_worker("w2")
        row = driver.held()
        driver.clock.forward(-1000)
        driver.lease_over("w2")
        seen, by = seen_of(driver, row)
        assert (seen is not None and seen <= driver.clock.now, by) == (True, "lease")

    def test_the_runs_of_a_dead_worker_are_queued_with_a_death_entry(
        self, driver: StoreDriver
    ) -> None:
        row, second = driver.held(), driver.held("second")
        alive = driver.held("alive", "w2")
        driver.record(row, 1)
        swept = driver.lease_over("w2")
        assert (sorted(swept.runs), swept.dead, swept.workers) == (["r", "second"], (), ("w1",))
        now = driver.row()
        assert (now.status, now.worker, now.deaths, now.interruptions, now.due) == (
            "queued", None, 1, 0, driver.clock.now
        )  # fmt: skip
        step, death = driver.store.journal(row.pk)
        assert (step.kind, death.kind, death.seq, death.at) == (
            "step",
            "death",
            2,
            driver.clock.now,
        )
        assert json.loads(death.value or "")["worker"] == "w1"
        assert driver.kinds(second) == ["death"]
        assert driver.row("alive") == alive
        assert [worker.id for worker in driver.store.workers()] == ["w2"]

    def test_a_second_sweep_finds_nothing(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.lease_over()
        assert driver.commit(Sweep(), Sweep()) == [NOBODY, NOBODY]
        assert driver.store.dead_workers() == []
        assert driver.kinds(row) == ["death"]

    def test_the_first_of_two_sweeps_in_a_batch_takes_everything(self, driver: StoreDriver) -> None:
        driver.held()
        driver.register_worker("w2", lease=3600.0)
        for _ in range(3):
            driver.clock.forward(15)
            driver.renew("w2", lease=3600.0)
        driver.clock.forward(15)
        assert driver.commit(Sweep(), Sweep()) == [Swept(("r",), (), ("w1",)), NOBODY]

    def test_a_dead_worker_without_runs_is_removed(self, driver: StoreDriver) -> None:
        driver.register_worker()
        assert driver.lease_over() == Swept((), (), ("w1",))
        assert driver.store.workers() == []

    def test_a_swept_worker_must_register_again(self, driver: StoreDriver) -> None:
        driver.held()
        driver.lease_over()
        for command in (Renew("w1", 60.0), Claim("w1", "t", ids=("r",))):
            outcome = driver.one(command)
            assert isinstance(outcome, Refused)
            assert outcome.why == WORKER
        driver.one(RegisterWorker("w1", "host", 1, 60.0))
        assert driver.take("r", "w1").deaths == 1

    def test_deaths_are_counted_over_all_executions(self, driver: StoreDriver) -> None:
        driver.submit()
        for deaths in range(3):
            row = driver.take("r", f"w{deaths}")
            assert row.deaths == deaths
            driver.record(row, 2 * deaths + 1)
            driver.die(row)
        assert driver.row().deaths == 3

    def test_a_cancel_request_survives_a_death(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        driver.die(row)
        assert driver.take("r", "w2").cancel == "stop"

    # -- draining

    def test_the_runs_of_a_draining_worker_are_interrupted_not_dead(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(attempts_max=1)
        driver.renew("w1", draining=True)
        assert driver.lease_over() == Swept(("r",), (), ("w1",))
        now = driver.row()
        assert (now.status, now.deaths, now.deaths_in_a_row, now.interruptions) == (
            "queued",
            0,
            0,
            1,
        )
        assert now.interrupted == driver.clock.now
        assert driver.kinds(row) == ["interruption"]
        assert [r.id for r in driver.claim("w2")] == ["r"]

    def test_a_renewal_does_not_end_a_drain(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.renew("w1", draining=True)
        driver.renew("w1")
        assert [bool(worker.draining) for worker in driver.store.workers()] == [True]
        driver.lease_over()
        assert driver.kinds(row) == ["interruption"]

    def test_the_death_of_a_draining_worker_can_be_a_runs_last_interruption(
        self, driver: StoreDriver
    ) -> None:
        driver.held(interruptions_max=1)
        driver.renew("w1", draining=True)
        assert driver.lease_over() == Swept(("r",), ("r",), ("w1",))
        assert driver.row().status == "dead"

    def test_a_death_with_progress_resets_the_count_of_consecutive_interruptions(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(interruptions_max=2)
        assert driver.release(row) == "queued"
        row = driver.take()
        driver.record(row, 2)
        driver.die(row)
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "dead"

    def test_a_death_keeps_the_place_of_an_earlier_interruption(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.release(row)
        first = driver.row().interrupted
        row = driver.take()
        driver.record(row, 2)
        assert driver.die(row).interrupted == first

    def test_only_runs_that_a_dead_worker_holds_are_taken_from_it(
        self, driver: StoreDriver
    ) -> None:
        driver.settle(driver.held("done"))
        driver.wait(driver.held("waiting"))
        driver.submit("queued")
        before = [driver.row(id) for id in ("done", "waiting", "queued")]
        assert driver.lease_over() == Swept((), (), ("w1",))
        assert [driver.row(id) for id in ("done", "waiting", "queued")] == before

    def test_entries_of_the_dead_execution_are_refused_and_the_next_one_continues(
        self, driver: StoreDriver
    ) -> None:
        stale = driver.held()
        driver.record(stale, 1)
        driver.die(stale)
        now = driver.take(worker="w2")
        assert driver.commit(entry(stale, 2), entry(stale, 3), entry(now, 3)) == [
            Refused("fence"),
            Refused("fence"),
            None,
        ]
        assert driver.kinds(now) == ["step", "death", "step"]
