"""Check fences: no stale writer gets in, and the number only grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import (
    FENCE,
    STATUS,
    UNKNOWN,
    Cancel,
    Command,
    Decide,
    DeregisterWorker,
    Prune,
    Publish,
    Record,
    Refused,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
    SetWaiting,
    Undo,
    UpdateSession,
)
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver, entry

FENCED: dict[str, Callable[[RunRow], Command]] = {
    "record": lambda row: Record(row.pk, 77, row.fence, "step", "k", 1.0),
    "publish": lambda row: Publish(row.pk, row.fence, "s", "k", 1, 0, ("1",)),
    "wait": lambda row: SetWaiting(row.pk, row.fence, ("name",)),
    "settle": lambda row: Settle(row.pk, row.fence, "done"),
    "release": lambda row: Release(row.pk, row.fence, "why"),
    "undo": lambda row: Undo(row.pk, row.fence, "{}"),
}


def lose_by_release(driver: StoreDriver, row: RunRow) -> None:
    driver.one(Release(row.pk, row.fence, "drain"))


def lose_by_leave(driver: StoreDriver, _: RunRow) -> None:
    driver.one(DeregisterWorker("w1"))


def lose_by_sweep(driver: StoreDriver, _: RunRow) -> None:
    assert driver.lease_over().runs == ("r",)


def lose_by_retry(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row, "failed")
    assert driver.one(Retry("r", "t")) is None


def lose_by_resume(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row, "parked")
    assert driver.one(Resume("r", "t")) is None


def lose_by_undo(driver: StoreDriver, row: RunRow) -> None:
    assert driver.one(Undo(row.pk, row.fence, '{"status":"failed"}')) is None


def lose_by_decision(driver: StoreDriver, row: RunRow) -> None:
    driver.settle(row, "parked")
    seen = driver.store.last_seq(row.pk)
    assert driver.one(Decide("r", "k", "{}", seen, "t")) is None


LOSSES = [
    lose_by_release,
    lose_by_leave,
    lose_by_sweep,
    lose_by_retry,
    lose_by_resume,
    lose_by_undo,
    lose_by_decision,
]


class FenceContract(Contract):
    @pytest.mark.parametrize("command", FENCED)
    @pytest.mark.parametrize("lose", LOSSES)
    def test_an_old_fence_is_refused_once_somebody_else_has_the_run(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None], command: str
    ) -> None:
        stale = driver.held()
        lose(driver, stale)
        current = driver.take(worker="w2")
        assert current.fence > stale.fence
        before = (driver.row(), driver.store.journal(stale.pk))
        assert driver.one(FENCED[command](stale)) == Refused(FENCE)
        assert (driver.row(), driver.store.journal(stale.pk)) == before

    @pytest.mark.parametrize("command", ["record", "publish", "wait", "settle", "undo"])
    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_fence_that_was_given_up_writes_nothing_while_nobody_has_the_run(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None], command: str
    ) -> None:
        stale = driver.held()
        lose(driver, stale)
        before = (driver.row(), driver.store.journal(stale.pk))
        assert driver.one(FENCED[command](stale)) == Refused(FENCE)
        assert (driver.row(), driver.store.journal(stale.pk)) == before

    @pytest.mark.parametrize("lose", LOSSES)
    def test_the_stores_own_entry_does_not_pass_for_the_one_a_stale_life_wanted_to_record(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        """Refuse it: the store has used that number, and a false success would lose the result."""
        stale = driver.held()
        driver.record(stale, 1)
        lose(driver, stale)
        taken = driver.store.journal(stale.pk)[-1].seq
        assert taken == 2
        assert driver.record(stale, taken, value='"lost"') == Refused(FENCE)

    @pytest.mark.parametrize("lose", LOSSES)
    def test_an_entry_tells_under_which_fence_it_was_written(
        self, driver: StoreDriver, lose: Callable[[StoreDriver, RunRow], None]
    ) -> None:
        """Entries of a life, including `done`, carry its fence.

        The store's own entries carry the negated void fence.
        """
        first = driver.held()
        driver.commit(entry(first, 1), entry(first, 2, kind="done", key="item"))
        lose(driver, first)
        second = driver.take(worker="w2")
        driver.commit(
            UpdateSession("s", "t", {"a": "1"}, record=entry(second, 4)), entry(second, 5)
        )
        own, other = first.fence, second.fence
        fences = {e.seq: e.fence for e in driver.store.journal(first.pk)}
        assert fences == {1: own, 2: own, 3: -own, 4: other, 5: other}
        del fences[2]
        assert {e.seq: e.fence for e in driver.store.history(first.pk)} == fences

    def test_an_entry_of_a_run_that_never_had_a_fence_has_none(self, driver: StoreDriver) -> None:
        row = driver.submit()
        driver.commit(Cancel("r", "no"), Retry("r", "t"))
        assert [(e.kind, e.fence) for e in driver.store.journal(row.pk)] == [("retry", 0)]
        driver.record(held := driver.take(), 2)
        assert [e.fence for e in driver.store.journal(row.pk)] == [0, held.fence]

    @pytest.mark.parametrize("command", FENCED)
    @pytest.mark.parametrize("status", ["done", "failed", "cancelled", "parked"])
    def test_a_fence_is_void_after_the_end(
        self, driver: StoreDriver, status: str, command: str
    ) -> None:
        row = driver.held()
        driver.settle(row, status, value="1", reason="why")
        before = (driver.row(), driver.store.journal(row.pk))
        outcome = driver.one(FENCED[command](row))
        # For a settle this is a repeat.
        assert outcome == (None if command == "settle" else Refused(FENCE))
        assert (driver.row(), driver.store.journal(row.pk)) == before

    @pytest.mark.parametrize("command", FENCED)
    def test_a_number_that_no_life_was_given_is_no_fence(
        self, driver: StoreDriver, command: str
    ) -> None:
        driver.submit("queued")
        voided = driver.ended("voided")
        current = driver.held("current")
        impostors = [
            # The row as stored, which no worker holds.
            driver.row("queued"),
            driver.row("voided"),
            driver.row("queued")._replace(fence=0),
            current._replace(fence=current.fence + 1),
            current._replace(fence=-current.fence),
            current._replace(fence=0),
            voided._replace(fence=0),
            current._replace(pk=current.pk + 1000),
        ]
        for impostor in impostors:
            assert driver.one(FENCED[command](impostor)) == Refused(FENCE), impostor
        assert [driver.row(id).status for id in ("queued", "voided", "current")] == [
            "queued",
            "done",
            "running",
        ]

    def test_another_runs_fence_is_refused(self, driver: StoreDriver) -> None:
        mine, other = driver.held("mine"), driver.held("other")
        assert driver.one(Record(other.pk, 1, mine.fence, "step", "k", 1.0)) == Refused(FENCE)
        assert driver.store.journal(other.pk) == []

    def test_a_refused_command_fails_alone_in_a_mixed_batch(self, driver: StoreDriver) -> None:
        good, stale = driver.held("good"), driver.held("stale")
        driver.one(Release(stale.pk, stale.fence, "drain"))
        taken = driver.take("stale", "w2")
        outcomes = driver.commit(
            entry(good, 1),
            entry(stale, 2),
            entry(taken, 2),
            Send("good", "m", "1", "1"),
            Send("nobody", "m", "1", "1"),
            Settle(stale.pk, stale.fence, "done", value='"stale"'),
            entry(good, 2),
            Release(stale.pk, stale.fence, "mine"),
            Retry("good", "t"),
            Settle(good.pk, good.fence, "done", value='"good"'),
        )
        assert [outcome and outcome.why for outcome in outcomes] == [
            None, FENCE, None, None, UNKNOWN, FENCE, None, FENCE, STATUS, None
        ]  # fmt: skip
        assert (driver.row("good").status, driver.row("good").value) == ("done", '"good"')
        assert (driver.row("stale").worker, driver.row("stale").value) == ("w2", None)
        assert driver.kinds(taken) == ["interruption", "step"]
        assert driver.kinds(good) == ["step", "step"]

    def test_commands_of_a_batch_see_those_before_them(self, driver: StoreDriver) -> None:
        row = driver.held()
        outcomes = driver.commit(
            entry(row, 1), Release(row.pk, row.fence, "drain"), entry(row, 3), Cancel("r", "why")
        )
        assert outcomes == [None, "queued", Refused(FENCE), "queued"]
        assert driver.kinds(row) == ["step", "interruption"]

    def test_fences_only_grow_over_all_runs_claims_and_pruning(self, driver: StoreDriver) -> None:
        fences = []
        for number in range(3):
            row = driver.held("same")
            fences.append(row.fence)
            driver.one(Release(row.pk, row.fence, "drain"))
            fences.append((row := driver.take("same")).fence)
            fences.append(driver.held(f"other{number}").fence)
            driver.settle(row)
            driver.clock.forward(1)
            assert driver.one(Prune(driver.clock.now)) == 1
        assert fences == sorted(set(fences))

    def test_the_fence_of_another_run_is_none(self, driver: StoreDriver) -> None:
        """Refuse swapped fences too, where every fence of a batch is valid for another run."""
        one, other = driver.held("one"), driver.held("other")
        swapped = [
            entry(one, 1)._replace(fence=other.fence),
            entry(other, 1)._replace(fence=one.fence),
        ]
        assert [refused.why for refused in driver.commit(*swapped)] == [FENCE, FENCE]
        taken, stolen = driver.commit(entry(one, 1), entry(other, 1)._replace(fence=one.fence))
        assert (taken, stolen.why) == (None, FENCE)
        assert [len(driver.store.journal(row.pk)) for row in (one, other)] == [1, 0]

    def test_a_writer_of_a_pruned_run_cannot_touch_the_next_run_of_that_id(
        self, driver: StoreDriver
    ) -> None:
        old = driver.ended()
        driver.clock.forward(1)
        driver.one(Prune(driver.clock.now))
        held = old._replace(fence=abs(old.fence))
        new = driver.held()
        for make in FENCED.values():
            assert driver.one(make(held)) == Refused(FENCE)
            assert driver.one(make(held._replace(pk=new.pk))) == Refused(FENCE)
        assert driver.row() == new
        assert driver.store.journal(new.pk) == []
