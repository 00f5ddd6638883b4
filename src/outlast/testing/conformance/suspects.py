"""Check Sweep: which run is to blame for the death of its worker.

A run that dies twice without progress is a suspect. Only a death in isolation can make it a dead
letter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import (
    DeregisterWorker,
    Release,
    Retry,
    Swept,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver


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


class SuspectContract(Contract):
    """Check which runs become suspects, and which suspects become dead letters."""

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

    def test_all_runs_of_a_dead_worker_can_be_claimed_at_once_after_a_first_death(
        self, driver: StoreDriver
    ) -> None:
        driver.submit("new")
        ids = [f"r{number}" for number in range(10)]
        for id in ids:
            driver.held(id)
        driver.lease_over(backoff=3.0)
        assert [row.id for row in driver.claim("w2", limit=20)] == [*ids, "new"]

    def test_progress_clears_the_first_death(self, driver: StoreDriver) -> None:
        driver.die(driver.held())
        row = driver.take(worker="w2")
        driver.record(row, 2)
        driver.die(row)
        now = driver.die(driver.take(worker="w3"))
        assert (now.deaths_in_a_row, now.ready) == (1, 1)

    def test_entries_of_an_earlier_execution_are_no_progress(self, driver: StoreDriver) -> None:
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

    def test_progress_resets_the_count_of_consecutive_deaths(self, driver: StoreDriver) -> None:
        driver.die(driver.held())
        row = driver.take(worker="w2")
        driver.record(row, 2)
        assert driver.die(row).deaths_in_a_row == 0
        assert driver.die(driver.take(worker="w3")).deaths_in_a_row == 1

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained, died])
    def test_progress_clears_a_suspect_however_its_execution_ends(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.suspect()
        row = driver.take(worker="w2")
        driver.record(row, 3)
        end(driver, row)
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (0, 1)
        assert [r.id for r in driver.claim("w3")] == ["r"]

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained])
    def test_a_suspect_without_progress_stays_one(
        self, driver: StoreDriver, end: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        driver.suspect()
        end(driver, driver.take(worker="w2"))
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (2, 2)

    @pytest.mark.parametrize("end", [released, put_aside, waiting, left, drained])
    def test_a_run_without_progress_since_a_first_death_becomes_a_suspect_at_the_next(
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

    def test_only_a_death_alone_uses_up_the_last_attempt(self, driver: StoreDriver) -> None:
        row, _ = driver.held(attempts_max=2), driver.held("other")
        assert driver.die(row).status == "queued"
        assert driver.die(driver.take(worker="w2")).status == "dead"

    def test_deaths_among_other_runs_never_make_a_dead_letter(self, driver: StoreDriver) -> None:
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

    def test_one_poison_run_among_many_is_found_and_only_it_is_dead(
        self, driver: StoreDriver
    ) -> None:
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

    def test_a_run_beside_its_ancestors_is_alone_and_they_are_not_suspects(
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

    def test_a_run_beside_its_siblings_is_not_alone(self, driver: StoreDriver) -> None:
        driver.submit("top", attempts_max=2)
        for id in ("one", "two"):
            driver.submit(id, parent="top", attempts_max=2)
        for turn in range(4):
            for id in ("top", "one", "two"):
                driver.take(id, f"w{turn}")
            assert driver.lease_over(backoff=0.0).dead == ()
        assert [driver.row(id).deaths_in_a_row for id in ("top", "one", "two")] == [0, 2, 2]

    def test_runs_whose_parents_form_a_circle_can_be_swept(self, driver: StoreDriver) -> None:
        driver.held("own father", parent="own father")
        driver.held("egg", parent="hen")
        driver.held("hen", parent="egg")
        assert len(driver.lease_over().runs) == 3
