"""Check that Sweep weighs the deaths of other workers before it condemns a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import DeregisterWorker, Retry
from outlast.store.rows import ATTEMPTS_FACTOR_MAX, FLEET_SECONDS
from outlast.testing.conformance.harness import Contract, StoreDriver

SHORT = 12.0
"""A lease in seconds, short enough for several deaths within the minute that always counts."""


def idle(driver: StoreDriver) -> None:
    driver.register_worker("a")


def with_progress(driver: StoreDriver) -> None:
    driver.record(driver.held("other", "a"), 1)


def in_company(driver: StoreDriver) -> None:
    driver.held("other", "a")
    driver.held("another", "a")


def alone(driver: StoreDriver) -> None:
    driver.held("other", "a")


def draining(driver: StoreDriver) -> None:
    driver.register_worker("a")
    driver.renew("a", draining=True)


def left(driver: StoreDriver) -> None:
    driver.one(DeregisterWorker(driver.register_worker("a")))


class StormContract(Contract):
    def test_a_run_that_dies_while_all_workers_die_gets_more_attempts_but_not_without_end(
        self, driver: StoreDriver
    ) -> None:
        driver.submit(attempts_max=3)
        for turn in range(3 * ATTEMPTS_FACTOR_MAX):
            assert driver.row().status == "queued", turn
            for name in ("a", "b", "c"):
                driver.register_worker(f"{name}{turn}")
            driver.die(driver.take(worker=f"w{turn}"), backoff=0.0)
        row = driver.row()
        assert (row.status, row.deaths) == ("dead", 3 * ATTEMPTS_FACTOR_MAX)
        assert f"{row.deaths} times" in (row.reason or "")

    @pytest.mark.parametrize(
        ("other", "counts"),
        [
            (idle, True),
            (with_progress, True),
            (in_company, True),
            (alone, True),
            (draining, False),
            (left, False),
        ],
    )
    def test_another_worker_that_dies_in_the_same_minute_counts_whatever_it_held(
        self, driver: StoreDriver, other: Callable[[StoreDriver], None], counts: bool
    ) -> None:
        """Workers that drained or deregistered did not die."""
        driver.submit(attempts_max=2)
        driver.die(driver.take(worker="w1"))
        other(driver)
        assert driver.die(driver.take(worker="w2"), backoff=0.0).status == (
            "queued" if counts else "dead"
        )

    def test_a_storm_that_was_over_before_does_not_count(self, driver: StoreDriver) -> None:
        for name in ("a", "b", "c"):
            driver.register_worker(name)
        driver.lease_over()
        driver.submit(attempts_max=2)
        driver.die(driver.take(worker="w1"))
        assert driver.die(driver.take(worker="w2")).status == "dead"

    def test_what_is_longer_ago_than_the_period_does_not_count(self, driver: StoreDriver) -> None:
        """Ignore older deaths even if the run has been dying for longer."""
        driver.submit(attempts_max=4)
        for turn in range(3):
            driver.register_worker(f"a{turn}")
            driver.die(driver.take(worker=f"w{turn}"), backoff=0.0)
        driver.register_worker("alive", lease=10 * FLEET_SECONDS)
        driver.clock.forward(FLEET_SECONDS)
        assert driver.die(driver.take(worker="w3")).status == "dead"

    def test_deaths_later_than_now_do_not_count(self, driver: StoreDriver) -> None:
        """Cover a clock that was set back after a storm."""
        for name in ("a", "b", "c"):
            driver.register_worker(name)
        driver.lease_over()
        driver.clock.forward(-1000)
        driver.submit(attempts_max=2)
        driver.die(driver.take(worker="w1"))
        assert driver.die(driver.take(worker="w2")).status == "dead"

    def test_the_deaths_of_a_run_in_company_do_not_excuse_it(self, driver: StoreDriver) -> None:
        driver.submit(attempts_max=3)
        driver.submit("other", attempts_max=3)
        for turn in range(3):
            worker = driver.register_worker(f"w{turn}", lease=SHORT)
            driver.take("r", worker)
            if turn < 2:
                driver.take("other", worker)
            driver.lease_over(lease=SHORT, backoff=0.0)
        assert (driver.row().status, driver.row().deaths) == ("dead", 3)

    def test_the_deaths_of_few_among_many_workers_do_not_excuse_a_run(
        self, driver: StoreDriver
    ) -> None:
        alive = [driver.register_worker(f"alive{number}") for number in range(4)]
        driver.submit(attempts_max=2)
        for turn in range(2):
            driver.register_worker(f"a{turn}")
            driver.take(worker=f"w{turn}")
            driver.lease_over(*alive, backoff=0.0)
        assert driver.row().status == "dead"

    def test_two_poison_runs_do_not_shield_each_other(self, driver: StoreDriver) -> None:
        """Deaths of one run count once for the other.

        That allows at most twice the attempts, even if no other worker is alive.
        """
        for id in ("one", "two"):
            driver.submit(id, attempts_max=4)
        for turn in range(8):
            for id in ("one", "two"):
                if driver.row(id).status == "queued":
                    driver.register_worker(f"{id}-{turn}", lease=SHORT)
                    driver.take(id, f"{id}-{turn}")
            driver.lease_over(lease=SHORT, backoff=0.0)
        assert [driver.row(id).status for id in ("one", "two")] == ["dead", "dead"]
        assert max(driver.row(id).deaths for id in ("one", "two")) <= 8

    def test_what_a_retried_run_killed_before_does_not_excuse_it(self, driver: StoreDriver) -> None:
        for id in ("r", "other"):
            driver.submit(id, attempts_max=3)
        for turn in range(3):
            worker = driver.register_worker(f"w{turn}", lease=SHORT)
            for id in ("r", "other") if turn < 2 else ("r",):
                driver.take(id, worker)
            driver.lease_over(lease=SHORT, backoff=0.0)
        driver.one(Retry("r", "token"))
        for turn in range(3):
            driver.take("r", driver.register_worker(f"again{turn}", lease=SHORT))
            driver.lease_over(lease=SHORT, backoff=0.0)
        assert (driver.row().status, driver.row().deaths) == ("dead", 3)
