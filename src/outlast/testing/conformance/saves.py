"""Check SaveProgress: the progress of steps that have not ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.commands import (
    FENCE,
    DeregisterWorker,
    Prune,
    Refused,
    Resume,
    Retry,
    SaveProgress,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver


def save(
    row: RunRow, value: str = '"text"', *, key: str = "step#1", attempt: int = 1
) -> SaveProgress:
    return SaveProgress(row.pk, row.fence, key, attempt, value)


def by_release(driver: StoreDriver, row: RunRow) -> None:
    driver.release(row)


def by_waiting(driver: StoreDriver, row: RunRow) -> None:
    driver.wait(row, due=driver.clock.now)


def by_leave(driver: StoreDriver, _: RunRow) -> None:
    assert driver.one(DeregisterWorker("w1")) is None


def by_sweep(driver: StoreDriver, row: RunRow) -> None:
    assert driver.lease_over().runs == (row.id,)


def by_parking(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row, "parked", reason="why")
    assert driver.one(Resume(row.id, "t")) is None


LOSSES: list[Callable[[StoreDriver, RunRow], None]] = [
    by_release,
    by_waiting,
    by_leave,
    by_sweep,
    by_parking,
]


class SaveContract(Contract):
    def test_what_was_saved_last_is_read_by_key(self, driver: StoreDriver) -> None:
        row, other = driver.held(), driver.held("other")
        assert driver.store.progress(row.pk) == {}
        assert driver.one(save(row, '"a"')) is None
        assert driver.commit(save(row, '"ab"'), save(row, "1", key="step#1/in(x)#1")) == [
            None,
            None,
        ]
        assert driver.store.progress(row.pk) == {"step#1": '"ab"', "step#1/in(x)#1": "1"}
        assert driver.store.progress(other.pk) == driver.store.progress(row.pk + 1000) == {}

    def test_it_is_no_entry_of_the_journal_and_changes_nothing_else(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        before = driver.row()
        driver.one(save(row))
        assert (driver.row(), driver.store.journal(row.pk)) == (before, [])

    def test_a_repeat_is_harmless(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = save(row)
        assert driver.commit(command, command) == [None, None]
        assert driver.one(command) is None
        assert driver.store.progress(row.pk) == {"step#1": '"text"'}

    def test_one_of_an_older_attempt_changes_nothing_and_is_accepted(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(save(row, '"second"', attempt=2))
        assert driver.one(save(row, '"first"', attempt=1)) is None
        assert driver.store.progress(row.pk) == {"step#1": '"second"'}
        assert driver.one(save(row, '"second again"', attempt=2)) is None
        assert driver.one(save(row, '"third"', attempt=3)) is None
        assert driver.store.progress(row.pk) == {"step#1": '"third"'}

    @pytest.mark.parametrize("lose", LOSSES)
    def test_it_is_kept_for_the_next_life(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        row = driver.held()
        driver.one(save(row, '"kept"', attempt=2))
        lose(driver, row)
        assert driver.store.progress(row.pk) == {"step#1": '"kept"'}
        again = driver.take(worker="w2")
        assert driver.store.progress(row.pk) == {"step#1": '"kept"'}
        assert driver.one(save(again, '"more"', attempt=2)) is None
        assert driver.store.progress(row.pk) == {"step#1": '"more"'}

    def test_a_new_life_saves_whatever_attempt_the_last_one_had_come_to(
        self, driver: StoreDriver
    ) -> None:
        """Attempts of a step within a step start over in every life."""
        row = driver.held()
        driver.one(save(row, '"third"', attempt=3))
        driver.release(row)
        again = driver.take(worker="w2")
        assert driver.one(save(again, '"first of the new life"', attempt=1)) is None
        assert driver.store.progress(row.pk) == {"step#1": '"first of the new life"'}

    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_lost_fence_saves_nothing(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        stale = driver.held()
        driver.one(save(stale, '"mine"'))
        lose(driver, stale)
        assert driver.one(save(stale, '"stale"', attempt=9)) == Refused(FENCE)
        driver.take(worker="w2")
        assert driver.one(save(stale, '"stale"', attempt=9)) == Refused(FENCE)
        assert driver.one(save(stale, '"new key"', key="other#1")) == Refused(FENCE)
        assert driver.store.progress(stale.pk) == {"step#1": '"mine"'}

    def test_only_the_life_that_has_the_run_saves(self, driver: StoreDriver) -> None:
        row, other = driver.held(), driver.held("other")
        queued = driver.submit("queued")
        impostors: list[dict[str, Any]] = [
            {"fence": 0},
            {"fence": -row.fence},
            {"fence": row.fence + 1000},
            {"pk": other.pk},
            {"pk": queued.pk},
            {"pk": row.pk + 1000},
        ]
        for impostor in impostors:
            assert driver.one(save(row._replace(**impostor))) == Refused(FENCE), impostor
        assert driver.one(save(queued)) == Refused(FENCE)
        for run in (row, other, queued):
            assert driver.store.progress(run.pk) == {}

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_it_is_forgotten_when_the_run_ends(self, driver: StoreDriver, status: str) -> None:
        row, other = driver.held(), driver.held("other")
        driver.commit(save(row), save(other))
        driver.settle(row, status, value="1" if status == "done" else None, reason="why")
        assert driver.store.progress(row.pk) == {}
        assert driver.one(save(row)) == Refused(FENCE)
        assert driver.store.progress(row.pk) == {}
        assert driver.store.progress(other.pk) == {"step#1": '"text"'}

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_a_retried_run_starts_without_what_was_saved_before(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = driver.held()
        driver.one(save(row, attempt=5))
        driver.settle(row, status, reason="why")
        assert driver.one(Retry("r", "t")) is None
        again = driver.take()
        assert driver.store.progress(row.pk) == {}
        assert driver.one(save(again, '"new"', attempt=1)) is None
        assert driver.store.progress(row.pk) == {"step#1": '"new"'}

    def test_a_pruned_run_leaves_none_behind(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(save(row))
        driver.settle(row)
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now, 10)) == 1
        assert driver.store.progress(row.pk) == {}
        later = driver.held("later")
        assert driver.store.progress(later.pk) == {}

    def test_a_dead_letter_that_is_pruned_leaves_none_behind(self, driver: StoreDriver) -> None:
        row = driver.held(interruptions_max=1)
        driver.one(save(row))
        for _ in range(5):
            if driver.release(row) == "dead":
                break
            row = driver.take()
        assert driver.row().status == "dead"
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now, 10, dead=True)) == 1
        assert driver.store.progress(row.pk) == {}

    def test_a_refused_one_fails_alone_in_a_mixed_batch(self, driver: StoreDriver) -> None:
        good, stale = driver.held("good"), driver.held("stale")
        driver.release(stale)
        assert driver.commit(save(good), save(stale), save(good, '"more"')) == [
            None,
            Refused(FENCE),
            None,
        ]
        assert driver.store.progress(good.pk) == {"step#1": '"more"'}

    def test_values_and_keys_are_what_they_are(self, driver: StoreDriver) -> None:
        row = driver.held()
        saved = {"": "", 'a"b': "[0]", "ünï\n": '"\U0001f600"', "long": '"' + "x" * 1_000_000 + '"'}
        driver.commit(*[save(row, value, key=key) for key, value in saved.items()])
        assert driver.store.progress(row.pk) == saved
