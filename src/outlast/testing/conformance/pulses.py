"""Sweep: when a lease that ran out counts. An outage, a suspended machine and a clock that jumps charge nobody."""

from __future__ import annotations

import pytest

from outlast.store.verbs import Claim, Enlist, Renew, Swept
from outlast.testing.conformance.harness import LEASE, NOBODY, Desk, Promises

DAY = 86400.0
JUMPS = [LEASE / 2 + 1, LEASE, 10 * LEASE, DAY, 1000 * DAY, -1.0, -LEASE / 2, -LEASE, -DAY, -1000 * DAY]


class PulsePromises(Promises):
    def test_a_living_worker_is_not_swept(self, desk: Desk) -> None:
        row = desk.held()
        for _ in range(20):
            desk.clock.forward(LEASE / 4)
            assert desk.sweep() == NOBODY
            desk.clock.forward(LEASE / 4)
            assert desk.sweep() == NOBODY
            assert desk.store.dead_workers() == []
            desk.renew()
        assert desk.row() == row

    def test_a_dead_worker_is_found_when_its_lease_has_run_out_and_not_before(self, desk: Desk) -> None:
        desk.held()
        for _ in range(3):
            desk.clock.forward(LEASE / 4)
            assert desk.sweep() == NOBODY
        desk.clock.forward(LEASE / 4 - 0.5)
        assert desk.store.dead_workers() == []
        assert desk.sweep() == NOBODY
        desk.clock.forward(0.5)
        assert desk.store.dead_workers() == ["w1"]
        assert desk.sweep() == Swept(("r",), (), ("w1",))

    def test_the_renewals_and_enlistments_of_others_keep_the_store_awake(self, desk: Desk) -> None:
        desk.held()
        desk.enlist("w2")
        desk.clock.forward(LEASE / 2)
        desk.renew("w2")
        desk.clock.forward(LEASE / 4)
        desk.enlist("w3")
        desk.clock.forward(LEASE / 4)
        assert desk.sweep().workers == ("w1",)

    def test_a_pause_of_half_a_lease_is_none(self, desk: Desk) -> None:
        desk.held()
        desk.clock.forward(LEASE / 2)
        assert desk.sweep() == NOBODY
        desk.clock.forward(LEASE / 2)
        assert desk.sweep().runs == ("r",)

    def test_a_longer_pause_puts_it_off_by_a_whole_lease(self, desk: Desk) -> None:
        """It seems dead all the while: who looks has reason to sweep, the sweep decides."""
        desk.held()
        desk.clock.forward(LEASE / 2 + 1)
        for _ in range(4):
            assert desk.sweep() == NOBODY
            desk.clock.forward(LEASE / 4)
        assert desk.store.dead_workers() == ["w1"]
        assert desk.sweep().runs == ("r",)

    def test_what_is_no_sign_of_life_does_not_keep_the_store_awake(self, desk: Desk) -> None:
        desk.held()
        desk.clock.forward(LEASE / 2 + 1)
        desk.one(Claim("w1", "t"))
        desk.submit("other")
        assert desk.one(Renew("stranger", LEASE)).why == "worker"
        desk.clock.forward(LEASE / 2)
        assert desk.sweep() == NOBODY

    def test_after_an_outage_nobody_is_charged_who_renews_within_a_lease(self, desk: Desk) -> None:
        workers = [f"w{number}" for number in range(20)]
        rows = [desk.held(f"r{number}", worker) for number, worker in enumerate(workers)]
        desk.clock.forward(10 * LEASE)  # the store was away: no sign of life could be written
        assert sorted(desk.store.dead_workers()) == sorted(workers)
        assert desk.sweep() == NOBODY
        for number, worker in enumerate(workers):
            desk.clock.forward(LEASE / 25)
            assert desk.sweep() == NOBODY, number
            desk.renew(worker)
        assert desk.lease_over(*workers) == NOBODY
        assert [desk.row(row.id) for row in rows] == rows
        assert all(desk.kinds(row) == [] for row in rows)

    @pytest.mark.parametrize("jump", JUMPS)
    def test_when_the_clock_jumps_nobody_is_charged_and_the_dead_are_found_within_two_leases(
        self, desk: Desk, jump: float
    ) -> None:
        desk.held("dead", "w1")
        alive = desk.held("alive", "w2")
        for _ in range(3):
            desk.clock.forward(LEASE / 4)
            desk.renew("w2")
            assert desk.sweep() == NOBODY
        desk.clock.forward(jump)  # w1 died; nobody knows
        taken: list[str] = []
        for _ in range(8):
            taken += desk.sweep().runs
            desk.clock.forward(LEASE / 4)
            desk.renew("w2")
        taken += desk.sweep().runs
        assert taken == ["dead"]
        assert desk.row("alive") == alive
        assert [worker.id for worker in desk.store.workers()] == ["w2"]

    def test_a_clock_that_was_set_back_leaves_no_lease_longer_than_a_lease(self, desk: Desk) -> None:
        desk.enlist()
        desk.clock.forward(-DAY)
        desk.enlist("w2")
        assert all(worker.lease_until <= desk.clock.now + LEASE + 1 for worker in desk.store.workers())

    def test_each_worker_has_its_own_lease(self, desk: Desk) -> None:
        desk.one(Enlist("long", "host", 1, 4 * LEASE))
        desk.store.hold("long")
        long, short = desk.held("long run", "long"), desk.held("short run", "short")
        assert desk.lease_over().runs == ("short run",)
        assert desk.row("long run") == long
        assert desk.row("short run").fence == -short.fence
        assert desk.lease_over() == NOBODY
        assert desk.lease_over() == NOBODY
        assert desk.lease_over() == Swept(("long run",), (), ("long",))

    def test_the_shortest_lease_says_what_a_pause_is(self, desk: Desk) -> None:
        """Signs that come as often as the long lease asks for are too rare while somebody has a short one."""
        desk.enlist("short", lease=LEASE / 4)
        desk.held("long run", "long")
        for _ in range(6):
            desk.clock.forward(LEASE / 4)
            desk.renew("short", lease=LEASE / 4)
            assert desk.sweep() == NOBODY
        for _ in range(8):
            desk.clock.forward(LEASE / 8)
            desk.renew("short", lease=LEASE / 4)
        assert desk.sweep().workers == ("long",)

    def test_a_store_that_stood_still_with_nobody_enlisted_charges_nobody_later(self, desk: Desk) -> None:
        desk.clock.forward(DAY)
        row = desk.held()
        desk.clock.forward(LEASE / 2)
        assert desk.sweep() == NOBODY
        assert desk.row() == row
