"""Check Sweep: what becomes of a run whose worker died, and which run is to blame."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from outlast.store.commands import (
    WORKER,
    Cancel,
    Claim,
    DeregisterWorker,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    Retry,
    Sweep,
    Swept,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import LEASE, NOBODY, Contract, StoreDriver, entry, seen_of


def released(driver: StoreDriver, row: RunRow) -> None:
    driver.one(Release(row.pk, row.fence, "drain"))


def put_aside(driver: StoreDriver, row: RunRow) -> None:
    driver.one(Release(row.pk, row.fence, "not here", interrupted=False))


def waiting(driver: StoreDriver, row: RunRow) -> None:
    driver.wait(row, due=driver.clock.now)


def left(driver: StoreDriver, row: RunRow) -> None:
    assert row.worker is not None
    driver.one(DeregisterWorker(row.worker))


def drained(driver: StoreDriver, row: RunRow) -> None:
    assert row.worker is not None
    driver.renew(row.worker, draining=True)
    driver.lease_over()


def died(driver: StoreDriver, row: RunRow) -> None:
    driver.die(row)


class DeathContract(Contract):
    @pytest.mark.parametrize("draining", [False, True])
    def test_the_entry_of_a_death_tells_when_its_worker_was_last_seen(
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

    def test_who_leaves_was_seen_then_and_who_gives_a_run_back_says_so_itself(
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

    def test_the_runs_of_a_dead_worker_are_queued_with_a_death_on_record(
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

    def test_of_two_sweeps_in_a_batch_the_first_has_everything(self, driver: StoreDriver) -> None:
        driver.held()
        driver.register_worker("w2", lease=3600.0)
        for _ in range(3):
            driver.clock.forward(15)
            driver.renew("w2", lease=3600.0)
        driver.clock.forward(15)
        assert driver.commit(Sweep(), Sweep()) == [Swept(("r",), (), ("w1",)), NOBODY]

    def test_a_worker_without_runs_is_struck_off_at_its_death(self, driver: StoreDriver) -> None:
        driver.register_worker()
        assert driver.lease_over() == Swept((), (), ("w1",))
        assert driver.store.workers() == []

    def test_a_swept_worker_must_enlist_anew(self, driver: StoreDriver) -> None:
        driver.held()
        driver.lease_over()
        for command in (Renew("w1", 60.0), Claim("w1", "t", ids=("r",))):
            outcome = driver.one(command)
            assert isinstance(outcome, Refused)
            assert outcome.why == WORKER
        driver.one(RegisterWorker("w1", "host", 1, 60.0))
        assert driver.take("r", "w1").deaths == 1

    def test_deaths_are_counted_over_lives(self, driver: StoreDriver) -> None:
        driver.submit()
        for deaths in range(3):
            row = driver.take("r", f"w{deaths}")
            assert row.deaths == deaths
            driver.record(row, 2 * deaths + 1)
            driver.die(row)
        assert driver.row().deaths == 3

    def test_a_dead_workers_run_that_was_asked_to_end_still_is(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        driver.die(row)
        assert driver.take("r", "w2").cancel == "stop"

    # -- progress and suspects

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child"])
    def test_a_run_that_recorded_something_of_its_own_goes_ahead_of_new_work(
        self, driver: StoreDriver, kind: str
    ) -> None:
        driver.submit("new")
        row = driver.held()
        driver.record(row, 1, kind=kind)
        now = driver.die(row)
        assert (now.deaths_in_a_row, now.interrupted, now.due) == (
            0,
            driver.clock.now,
            driver.clock.now,
        )
        assert [r.id for r in driver.claim("w2", limit=5)] == ["r", "new"]

    @pytest.mark.parametrize(
        "kinds", [(), ("fired",), ("message",), ("cancel",), ("fired", "message")]
    )
    def test_a_run_that_recorded_nothing_of_its_own_is_a_suspect_the_second_time(
        self, driver: StoreDriver, kinds: tuple[str, ...]
    ) -> None:
        """Queue it ahead of new work after its first death: the run is rarely the cause."""
        driver.submit("new")
        row = driver.held()
        for seq, kind in enumerate(kinds, 1):
            driver.record(row, seq, kind=kind)
        now = died_at = driver.die(row)
        assert (now.deaths_in_a_row, now.ready, now.due) == (1, 1, driver.clock.now)
        assert now.interrupted == driver.clock.now
        assert driver.claim("w2", limit=5, suspects=True) == []
        again, _ = driver.claim("w2", limit=5)
        assert (again.id, again.is_suspect) == ("r", False)
        for seq, kind in enumerate(kinds, 2 + len(kinds)):
            driver.record(again, seq, kind=kind)
        driver.lease_over(backoff=0.0)
        now = driver.row()
        assert (now.deaths_in_a_row, now.ready, now.due) == (2, 2, driver.clock.now)
        assert now.interrupted == died_at.interrupted
        assert [r.id for r in driver.claim("w3", limit=5)] == ["new"]
        assert [(r.id, r.is_suspect) for r in driver.claim("w3", limit=5, suspects=True)] == [
            ("r", True)
        ]

    def test_all_that_a_dead_worker_held_can_be_had_at_once_the_first_time(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        ids = [f"r{number}" for number in range(10)]
        for id in ids:
            driver.held(id)
        driver.lease_over(backoff=3.0)
        assert [row.id for row in driver.claim("w2", limit=20)] == [*ids, "new"]

    def test_the_first_death_is_forgotten_by_progress(self, driver: StoreDriver) -> None:
        driver.die(driver.held())
        row = driver.take(worker="w2")
        driver.record(row, 2)
        driver.die(row)
        now = driver.die(driver.take(worker="w3"))
        assert (now.deaths_in_a_row, now.ready) == (1, 1)

    def test_what_an_earlier_life_recorded_is_no_excuse(self, driver: StoreDriver) -> None:
        first = driver.held()
        driver.record(first, 1)
        driver.release(first)
        assert driver.die(driver.take(worker="w2")).deaths_in_a_row == 1

    def test_a_retry_is_no_progress(self, driver: StoreDriver) -> None:
        driver.ended(status="failed")
        driver.one(Retry("r", "t"))
        assert driver.die(driver.take()).deaths_in_a_row == 1

    def test_a_suspect_is_due_later_with_each_death_alone(self, driver: StoreDriver) -> None:
        """Start without a delay, then use the back-off, doubled up to its maximum."""
        driver.submit(attempts_max=100)
        waits = []
        for turn in range(7):
            row = driver.die(driver.take(worker=f"w{turn}"), backoff=3.0, backoff_max=20.0)
            waits.append(row.due - driver.clock.now)
            assert row.deaths_in_a_row == turn + 1
            if waits[-1]:
                assert driver.claim("other", suspects=True) == driver.claim("other") == []
                driver.one(DeregisterWorker("other"))
            driver.clock.forward(waits[-1])
        assert waits == [0.0, 3.0, 6.0, 12.0, 20.0, 20.0, 20.0]
        assert [r.id for r in driver.claim("other", suspects=True)] == ["r"]

    def test_a_back_off_stays_finite_over_any_number_of_deaths(self, driver: StoreDriver) -> None:
        driver.submit(attempts_max=10_000)
        for turn in range(70):
            driver.die(driver.take(worker=f"w{turn}"), backoff=1e300, backoff_max=1.0)
            driver.clock.forward(1)
        assert driver.row().deaths_in_a_row == 70
        assert driver.row().due == driver.clock.now

    def test_progress_in_between_ends_the_row(self, driver: StoreDriver) -> None:
        driver.die(driver.held())
        row = driver.take(worker="w2")
        driver.record(row, 2)
        assert driver.die(row).deaths_in_a_row == 0
        assert driver.die(driver.take(worker="w3")).deaths_in_a_row == 1

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained, died])
    def test_a_suspect_that_recorded_something_is_none_any_more_however_its_life_ended(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.suspect()
        row = driver.take(worker="w2")
        driver.record(row, 3)
        end(driver, row)
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (0, 1)
        assert [r.id for r in driver.claim("w3")] == ["r"]

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained])
    def test_a_suspect_that_recorded_nothing_stays_one(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.suspect()
        end(driver, driver.take(worker="w2"))
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (2, 2)

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained])
    def test_a_run_that_died_once_and_recorded_nothing_since_is_nearly_one(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.die(driver.held())
        end(driver, driver.take(worker="w2"))
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (1, 1)
        now = driver.die(driver.take(worker="w3"), backoff=0.0)
        assert (now.deaths_in_a_row, now.ready) == (2, 2)

    # -- isolation

    def test_a_run_that_dies_alone_too_often_is_a_dead_letter(self, driver: StoreDriver) -> None:
        driver.submit(attempts_max=3)
        for turn in range(2):
            driver.take(worker=f"w{turn}")
            assert driver.lease_over(backoff=0.0) == Swept(("r",), (), (f"w{turn}",))
        driver.take(worker="w2")
        assert driver.lease_over(backoff=0.0) == Swept(("r",), ("r",), ("w2",))
        row = driver.row()
        assert (row.status, row.ended, row.deaths, row.ready) == ("dead", driver.clock.now, 3, 0)
        assert "3 times" in (row.reason or "")
        assert driver.kinds(row) == ["death"] * 3
        assert (
            driver.claim("w3", suspects=True)
            == driver.claim("w3")
            == driver.claim("w3", ids=("r",))
            == []
        )

    def test_a_run_of_one_attempt_that_dies_alone_is_a_dead_letter_at_once(
        self, driver: StoreDriver
    ) -> None:
        driver.held(attempts_max=1)
        assert driver.lease_over().dead == ("r",)
        assert "died once" in (driver.row().reason or "")

    def test_of_two_attempts_a_death_in_company_is_none_but_the_next_alone_is_the_last(
        self, driver: StoreDriver
    ) -> None:
        row, _ = driver.held(attempts_max=2), driver.held("other")
        assert driver.die(row).status == "queued"
        assert driver.die(driver.take(worker="w2")).status == "dead"

    def test_who_dies_among_others_is_not_charged_again(self, driver: StoreDriver) -> None:
        for id in ("one", "two"):
            driver.submit(id, attempts_max=2)
        for turn in range(5):
            driver.take("one", f"w{turn}")
            driver.take("two", f"w{turn}")
            swept = driver.lease_over(backoff=0.0)
            assert (sorted(swept.runs), swept.dead) == (["one", "two"], ())
        assert [driver.row(id).deaths_in_a_row for id in ("one", "two")] == [2, 2]
        assert [driver.row(id).deaths for id in ("one", "two")] == [5, 5]
        driver.take("one", "lonely")
        assert driver.lease_over().dead == ("one",)

    def test_one_poison_among_many_is_found_and_only_it_dies(self, driver: StoreDriver) -> None:
        """Let every other run record something as soon as it is alone."""
        for number in range(10):
            driver.submit(f"r{number}", attempts_max=4)
        for crowd in ("first", "second"):
            assert len(driver.claim(crowd, limit=10)) == 10
            driver.lease_over(backoff=0.0)
        assert driver.claim("third", limit=10) == []
        driver.one(DeregisterWorker("third"))
        turn = 0
        while rows := driver.claim(f"w{turn}", suspects=True):
            (row,) = rows
            if row.id == "r7":
                driver.lease_over(backoff=0.0)
            else:
                driver.record(row, 2)
                driver.settle(row)
                driver.one(DeregisterWorker(f"w{turn}"))
            turn += 1
        assert {driver.row(f"r{n}").status for n in range(10) if n != 7} == {"done"}
        assert (driver.row("r7").status, driver.row("r7").deaths) == ("dead", 4)

    def test_the_ancestors_of_a_run_do_not_spoil_its_loneliness_and_are_not_suspects(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("top", attempts_max=2)
        driver.submit("middle", parent="top", attempts_max=2)
        driver.submit("leaf", parent="middle", attempts_max=2)
        for turn in range(2):
            for id in ("top", "middle", "leaf"):
                driver.take(id, f"w{turn}")
            swept = driver.lease_over(backoff=0.0)
        assert swept.dead == ("leaf",)
        assert [driver.row(id).deaths_in_a_row for id in ("top", "middle", "leaf")] == [0, 0, 2]
        assert [driver.row(id).ready for id in ("top", "middle", "leaf")] == [1, 1, 0]
        assert driver.row("top").interrupted is not None

    def test_brothers_do_spoil_it(self, driver: StoreDriver) -> None:
        driver.submit("top", attempts_max=2)
        for id in ("one", "two"):
            driver.submit(id, parent="top", attempts_max=2)
        for turn in range(4):
            for id in ("top", "one", "two"):
                driver.take(id, f"w{turn}")
            assert driver.lease_over(backoff=0.0).dead == ()
        assert [driver.row(id).deaths_in_a_row for id in ("top", "one", "two")] == [0, 2, 2]

    def test_a_family_whose_lines_go_in_a_circle_can_be_swept(self, driver: StoreDriver) -> None:
        driver.held("own father", parent="own father")
        driver.held("egg", parent="hen")
        driver.held("hen", parent="egg")
        assert len(driver.lease_over().runs) == 3

    # -- draining

    def test_the_runs_of_a_worker_that_was_draining_are_interrupted_not_charged(
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

    def test_draining_is_not_taken_back_by_a_renewal(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.renew("w1", draining=True)
        driver.renew("w1")
        assert [bool(worker.draining) for worker in driver.store.workers()] == [True]
        driver.lease_over()
        assert driver.kinds(row) == ["interruption"]

    def test_a_draining_worker_can_bring_a_run_over_its_last_interruption(
        self, driver: StoreDriver
    ) -> None:
        driver.held(interruptions_max=1)
        driver.renew("w1", draining=True)
        assert driver.lease_over() == Swept(("r",), ("r",), ("w1",))
        assert driver.row().status == "dead"

    def test_a_death_with_progress_ends_a_row_of_interruptions(self, driver: StoreDriver) -> None:
        row = driver.held(interruptions_max=2)
        assert driver.release(row) == "queued"
        row = driver.take()
        driver.record(row, 2)
        driver.die(row)
        assert driver.release(driver.take()) == "queued"
        assert driver.release(driver.take()) == "dead"

    def test_a_run_of_the_dead_keeps_the_place_of_its_first_interruption(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.release(row)
        first = driver.row().interrupted
        row = driver.take()
        driver.record(row, 2)
        assert driver.die(row).interrupted == first

    def test_only_what_a_worker_holds_is_taken_from_it(self, driver: StoreDriver) -> None:
        driver.settle(driver.held("done"))
        driver.wait(driver.held("waiting"))
        driver.submit("queued")
        before = [driver.row(id) for id in ("done", "waiting", "queued")]
        assert driver.lease_over() == Swept((), (), ("w1",))
        assert [driver.row(id) for id in ("done", "waiting", "queued")] == before

    def test_entries_of_the_dead_life_are_refused_and_the_next_goes_on(
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
