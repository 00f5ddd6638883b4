"""Check Sweep: when an expired lease counts.

An outage, a suspended machine or a clock jump charges no worker.
"""

from __future__ import annotations

import pytest

from outlast.store.commands import Claim, RegisterWorker, Renew, Swept
from outlast.testing.conformance.harness import LEASE, NOBODY, Contract, StoreDriver

DAY = 86400.0
JUMPS = [
    LEASE / 2 + 1,
    LEASE,
    10 * LEASE,
    DAY,
    1000 * DAY,
    -1.0,
    -LEASE / 2,
    -LEASE,
    -DAY,
    -1000 * DAY,
]


class PulseContract(Contract):
    def test_a_living_worker_is_not_swept(self, driver: StoreDriver) -> None:
        row = driver.held()
        for _ in range(20):
            driver.clock.forward(LEASE / 4)
            assert driver.sweep() == NOBODY
            driver.clock.forward(LEASE / 4)
            assert driver.sweep() == NOBODY
            assert driver.store.dead_workers() == []
            driver.renew()
        assert driver.row() == row

    def test_a_dead_worker_is_found_when_its_lease_has_run_out_and_not_before(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        for _ in range(3):
            driver.clock.forward(LEASE / 4)
            assert driver.sweep() == NOBODY
        driver.clock.forward(LEASE / 4 - 0.5)
        assert driver.store.dead_workers() == []
        assert driver.sweep() == NOBODY
        driver.clock.forward(0.5)
        assert driver.store.dead_workers() == ["w1"]
        assert driver.sweep() == Swept(("r",), (), ("w1",))

    def test_the_renewals_and_registrations_of_others_keep_the_store_awake(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        driver.register_worker("w2")
        driver.clock.forward(LEASE / 2)
        driver.renew("w2")
        driver.clock.forward(LEASE / 4)
        driver.register_worker("w3")
        driver.clock.forward(LEASE / 4)
        assert driver.sweep().workers == ("w1",)

    def test_a_pause_of_half_a_lease_is_none(self, driver: StoreDriver) -> None:
        driver.held()
        driver.clock.forward(LEASE / 2)
        assert driver.sweep() == NOBODY
        driver.clock.forward(LEASE / 2)
        assert driver.sweep().runs == ("r",)

    def test_a_longer_pause_puts_it_off_by_a_whole_lease(self, driver: StoreDriver) -> None:
        """Show the worker as dead all the while, a reason to sweep. Only the sweep decides."""
        driver.held()
        driver.clock.forward(LEASE / 2 + 1)
        for _ in range(4):
            assert driver.sweep() == NOBODY
            driver.clock.forward(LEASE / 4)
        assert driver.store.dead_workers() == ["w1"]
        assert driver.sweep().runs == ("r",)

    def test_what_is_no_sign_of_life_does_not_keep_the_store_awake(
        self, driver: StoreDriver
    ) -> None:
        driver.held()
        driver.clock.forward(LEASE / 2 + 1)
        driver.one(Claim("w1", "t"))
        driver.submit("other")
        assert driver.one(Renew("stranger", LEASE)).why == "worker"
        driver.clock.forward(LEASE / 2)
        assert driver.sweep() == NOBODY

    def test_after_an_outage_nobody_is_charged_who_renews_within_a_lease(
        self, driver: StoreDriver
    ) -> None:
        workers = [f"w{number}" for number in range(20)]
        rows = [driver.held(f"r{number}", worker) for number, worker in enumerate(workers)]
        # The store was unavailable, so no heartbeat could be written.
        driver.clock.forward(10 * LEASE)
        assert sorted(driver.store.dead_workers()) == sorted(workers)
        assert driver.sweep() == NOBODY
        for number, worker in enumerate(workers):
            driver.clock.forward(LEASE / 25)
            assert driver.sweep() == NOBODY, number
            driver.renew(worker)
        assert driver.lease_over(*workers) == NOBODY
        assert [driver.row(row.id) for row in rows] == rows
        assert all(driver.kinds(row) == [] for row in rows)

    @pytest.mark.parametrize("jump", JUMPS)
    def test_when_the_clock_jumps_nobody_is_charged_and_the_dead_are_found_within_two_leases(
        self, driver: StoreDriver, jump: float
    ) -> None:
        driver.held("dead", "w1")
        alive = driver.held("alive", "w2")
        for _ in range(3):
            driver.clock.forward(LEASE / 4)
            driver.renew("w2")
            assert driver.sweep() == NOBODY
        # w1 died, and no other worker knows it yet.
        driver.clock.forward(jump)
        taken: list[str] = []
        for _ in range(8):
            taken += driver.sweep().runs
            driver.clock.forward(LEASE / 4)
            driver.renew("w2")
        taken += driver.sweep().runs
        assert taken == ["dead"]
        assert driver.row("alive") == alive
        assert [worker.id for worker in driver.store.workers()] == ["w2"]

    def test_a_clock_that_was_set_back_leaves_no_lease_longer_than_a_lease(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.clock.forward(-DAY)
        driver.register_worker("w2")
        assert all(
            worker.lease_until <= driver.clock.now + LEASE + 1 for worker in driver.store.workers()
        )

    def test_each_worker_has_its_own_lease(self, driver: StoreDriver) -> None:
        driver.one(RegisterWorker("long", "host", 1, 4 * LEASE))
        driver.store.acquire_liveness("long")
        long, short = driver.held("long run", "long"), driver.held("short run", "short")
        assert driver.lease_over().runs == ("short run",)
        assert driver.row("long run") == long
        assert driver.row("short run").fence == -short.fence
        assert driver.lease_over() == NOBODY
        assert driver.lease_over() == NOBODY
        assert driver.lease_over() == Swept(("long run",), (), ("long",))

    def test_the_shortest_lease_says_what_a_pause_is(self, driver: StoreDriver) -> None:
        """Heartbeats that suit a long lease are too rare while another worker has a short one."""
        driver.register_worker("short", lease=LEASE / 4)
        driver.held("long run", "long")
        for _ in range(6):
            driver.clock.forward(LEASE / 4)
            driver.renew("short", lease=LEASE / 4)
            assert driver.sweep() == NOBODY
        for _ in range(8):
            driver.clock.forward(LEASE / 8)
            driver.renew("short", lease=LEASE / 4)
        assert driver.sweep().workers == ("long",)

    def test_a_store_that_stood_still_with_nobody_registered_charges_nobody_later(
        self, driver: StoreDriver
    ) -> None:
        driver.clock.forward(DAY)
        row = driver.held()
        driver.clock.forward(LEASE / 2)
        assert driver.sweep() == NOBODY
        assert driver.row() == row
