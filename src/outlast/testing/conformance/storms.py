"""Check that Sweep weighs the deaths of other workers before it condemns a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.rows import ATTEMPTS_FACTOR_MAX, FLEET_SECONDS
from outlast.store.verbs import Leave, Retry
from outlast.testing.conformance.harness import Desk, Promises

SHORT = 12.0
"""Seconds of a lease, short enough for several deaths within the minute that always counts."""


def idle(desk: Desk) -> None:
    desk.enlist("a")


def with_progress(desk: Desk) -> None:
    desk.record(desk.held("other", "a"), 1)


def in_company(desk: Desk) -> None:
    desk.held("other", "a")
    desk.held("another", "a")


def alone(desk: Desk) -> None:
    desk.held("other", "a")


def draining(desk: Desk) -> None:
    desk.enlist("a")
    desk.renew("a", draining=True)


def left(desk: Desk) -> None:
    desk.one(Leave(desk.enlist("a")))


class StormPromises(Promises):
    def test_a_run_that_dies_while_all_workers_die_gets_more_attempts_but_not_without_end(
        self, desk: Desk
    ) -> None:
        desk.submit(attempts_max=3)
        for turn in range(3 * ATTEMPTS_FACTOR_MAX):
            assert desk.row().status == "queued", turn
            for name in ("a", "b", "c"):
                desk.enlist(f"{name}{turn}")
            desk.die(desk.take(worker=f"w{turn}"), backoff=0.0)
        row = desk.row()
        assert (row.status, row.deaths) == ("dead", 3 * ATTEMPTS_FACTOR_MAX)
        assert f"{row.deaths} times" in (row.reason or "")

    @pytest.mark.parametrize(
        ("other", "counts"),
        [(idle, True), (with_progress, True), (in_company, True), (alone, True), (draining, False), (left, False)],
    )  # fmt: skip
    def test_another_worker_that_dies_in_the_same_minute_counts_whatever_it_held(
        self, desk: Desk, other: Callable[[Desk], None], counts: bool
    ) -> None:
        """A worker that drained or left did not die."""
        desk.submit(attempts_max=2)
        desk.die(desk.take(worker="w1"))
        other(desk)
        assert desk.die(desk.take(worker="w2"), backoff=0.0).status == ("queued" if counts else "dead")

    def test_a_storm_that_was_over_before_does_not_count(self, desk: Desk) -> None:
        for name in ("a", "b", "c"):
            desk.enlist(name)
        desk.lease_over()
        desk.submit(attempts_max=2)
        desk.die(desk.take(worker="w1"))
        assert desk.die(desk.take(worker="w2")).status == "dead"

    def test_what_is_longer_ago_than_the_period_does_not_count(self, desk: Desk) -> None:
        """Even where the run has been dying for longer."""
        desk.submit(attempts_max=4)
        for turn in range(3):
            desk.enlist(f"a{turn}")
            desk.die(desk.take(worker=f"w{turn}"), backoff=0.0)
        desk.enlist("alive", lease=10 * FLEET_SECONDS)
        desk.clock.forward(FLEET_SECONDS)
        assert desk.die(desk.take(worker="w3")).status == "dead"

    def test_deaths_later_than_now_do_not_count(self, desk: Desk) -> None:
        """The clock was set back after a storm."""
        for name in ("a", "b", "c"):
            desk.enlist(name)
        desk.lease_over()
        desk.clock.forward(-1000)
        desk.submit(attempts_max=2)
        desk.die(desk.take(worker="w1"))
        assert desk.die(desk.take(worker="w2")).status == "dead"

    def test_the_deaths_of_a_run_in_company_do_not_excuse_it(self, desk: Desk) -> None:
        desk.submit(attempts_max=3)
        desk.submit("other", attempts_max=3)
        for turn in range(3):
            worker = desk.enlist(f"w{turn}", lease=SHORT)
            desk.take("r", worker)
            if turn < 2:
                desk.take("other", worker)
            desk.lease_over(lease=SHORT, backoff=0.0)
        assert (desk.row().status, desk.row().deaths) == ("dead", 3)

    def test_the_deaths_of_few_among_many_workers_do_not_excuse_a_run(self, desk: Desk) -> None:
        alive = [desk.enlist(f"alive{number}") for number in range(4)]
        desk.submit(attempts_max=2)
        for turn in range(2):
            desk.enlist(f"a{turn}")
            desk.take(worker=f"w{turn}")
            desk.lease_over(*alive, backoff=0.0)
        assert desk.row().status == "dead"

    def test_two_poison_runs_do_not_shield_each_other(self, desk: Desk) -> None:
        """The deaths of one count once for the other: twice the attempts, even where no other worker lives."""
        for id in ("one", "two"):
            desk.submit(id, attempts_max=4)
        for turn in range(8):
            for id in ("one", "two"):
                if desk.row(id).status == "queued":
                    desk.enlist(f"{id}-{turn}", lease=SHORT)
                    desk.take(id, f"{id}-{turn}")
            desk.lease_over(lease=SHORT, backoff=0.0)
        assert [desk.row(id).status for id in ("one", "two")] == ["dead", "dead"]
        assert max(desk.row(id).deaths for id in ("one", "two")) <= 8

    def test_what_a_retried_run_killed_before_does_not_excuse_it(self, desk: Desk) -> None:
        for id in ("r", "other"):
            desk.submit(id, attempts_max=3)
        for turn in range(3):
            worker = desk.enlist(f"w{turn}", lease=SHORT)
            for id in ("r", "other") if turn < 2 else ("r",):
                desk.take(id, worker)
            desk.lease_over(lease=SHORT, backoff=0.0)
        desk.one(Retry("r", "token"))
        for turn in range(3):
            desk.take("r", desk.enlist(f"again{turn}", lease=SHORT))
            desk.lease_over(lease=SHORT, backoff=0.0)
        assert (desk.row().status, desk.row().deaths) == ("dead", 3)
