"""Check RegisterWorker, Renew and DeregisterWorker: which workers may hold runs."""

from __future__ import annotations

from outlast.store.commands import WORKER, DeregisterWorker, Refused, RegisterWorker, Renew
from outlast.testing.conformance.harness import LEASE, NOBODY, Contract, StoreDriver


class WorkerContract(Contract):
    def test_an_registered_worker_is_listed_with_its_lease(self, driver: StoreDriver) -> None:
        driver.store.acquire_liveness("w1")
        assert driver.one(RegisterWorker("w1", "host-7", 4711, 30.0)) is None
        (row,) = driver.store.workers()
        assert (row.id, row.host, row.pid, row.started) == ("w1", "host-7", 4711, driver.clock.now)
        assert (row.lease_until, bool(row.draining)) == (driver.clock.now + 30.0, False)

    def test_registering_again_renews(self, driver: StoreDriver) -> None:
        driver.register_worker(lease=30.0)
        driver.clock.forward(10)
        driver.one(RegisterWorker("w1", "host", 1, 30.0))
        (row,) = driver.store.workers()
        assert (row.started, row.lease_until) == (driver.clock.now - 10, driver.clock.now + 30.0)

    def test_a_renewed_lease_runs_from_now(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.clock.forward(LEASE - 1)
        assert driver.one(Renew("w1", LEASE, draining=True)) is None
        (row,) = driver.store.workers()
        assert (row.lease_until, bool(row.draining)) == (driver.clock.now + LEASE, True)
        driver.clock.forward(LEASE - 1)
        assert driver.sweep() == NOBODY

    def test_a_worker_that_is_not_registered_cannot_renew(self, driver: StoreDriver) -> None:
        outcome = driver.one(Renew("w1", 30.0))
        assert isinstance(outcome, Refused)
        assert outcome.why == WORKER

    def test_a_worker_that_deregisters_releases_its_runs_interrupted(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.register_worker("w2")
        other = driver.held("other", "w2")
        assert driver.one(DeregisterWorker("w1")) is None
        now = driver.row()
        assert (now.status, now.worker, now.deaths, now.interruptions) == ("queued", None, 0, 1)
        assert driver.kinds(row) == ["interruption"]
        assert driver.row("other") == other
        assert [worker.id for worker in driver.store.workers()] == ["w2"]

    def test_deregistering_again_is_harmless(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.commit(
            DeregisterWorker("w1"), DeregisterWorker("w1"), DeregisterWorker("never")
        ) == [
            None,
            None,
            None,
        ]
        assert driver.kinds(row) == ["interruption"]
        assert driver.sweep() == NOBODY
