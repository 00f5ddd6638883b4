"""Save: the progress of steps that have not ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.rows import RunRow
from outlast.store.verbs import FENCE, Leave, Prune, Refused, Resume, Retry, Save
from outlast.testing.conformance.harness import Desk, Promises


def save(row: RunRow, value: str = '"text"', *, key: str = "step#1", attempt: int = 1) -> Save:
    return Save(row.pk, row.fence, key, attempt, value)


def by_release(desk: Desk, row: RunRow) -> None:
    desk.release(row)


def by_waiting(desk: Desk, row: RunRow) -> None:
    desk.wait(row, due=desk.clock.now)


def by_leave(desk: Desk, _: RunRow) -> None:
    assert desk.one(Leave("w1")) is None


def by_sweep(desk: Desk, row: RunRow) -> None:
    assert desk.lease_over().runs == (row.id,)


def by_parking(desk: Desk, row: RunRow) -> None:
    desk.settle(row, "parked", reason="why")
    assert desk.one(Resume(row.id, "t")) is None


LOSSES: list[Callable[[Desk, RunRow], None]] = [by_release, by_waiting, by_leave, by_sweep, by_parking]


class SavePromises(Promises):
    def test_what_was_saved_last_is_read_by_key(self, desk: Desk) -> None:
        row, other = desk.held(), desk.held("other")
        assert desk.store.progress(row.pk) == {}
        assert desk.one(save(row, '"a"')) is None
        assert desk.commit(save(row, '"ab"'), save(row, "1", key="step#1/in(x)#1")) == [None, None]
        assert desk.store.progress(row.pk) == {"step#1": '"ab"', "step#1/in(x)#1": "1"}
        assert desk.store.progress(other.pk) == desk.store.progress(row.pk + 1000) == {}

    def test_it_is_no_entry_of_the_journal_and_changes_nothing_else(self, desk: Desk) -> None:
        row = desk.held()
        before = desk.row()
        desk.one(save(row))
        assert (desk.row(), desk.store.journal(row.pk)) == (before, [])

    def test_a_repeat_is_harmless(self, desk: Desk) -> None:
        row = desk.held()
        verb = save(row)
        assert desk.commit(verb, verb) == [None, None]
        assert desk.one(verb) is None
        assert desk.store.progress(row.pk) == {"step#1": '"text"'}

    def test_one_of_an_older_attempt_changes_nothing_and_is_accepted(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(save(row, '"second"', attempt=2))
        assert desk.one(save(row, '"first"', attempt=1)) is None
        assert desk.store.progress(row.pk) == {"step#1": '"second"'}
        assert desk.one(save(row, '"second again"', attempt=2)) is None
        assert desk.one(save(row, '"third"', attempt=3)) is None
        assert desk.store.progress(row.pk) == {"step#1": '"third"'}

    @pytest.mark.parametrize("lose", LOSSES)
    def test_it_is_kept_for_the_next_life(self, desk: Desk, lose: Callable[[Desk, RunRow], None]) -> None:
        row = desk.held()
        desk.one(save(row, '"kept"', attempt=2))
        lose(desk, row)
        assert desk.store.progress(row.pk) == {"step#1": '"kept"'}
        again = desk.take(worker="w2")
        assert desk.store.progress(row.pk) == {"step#1": '"kept"'}
        assert desk.one(save(again, '"more"', attempt=2)) is None
        assert desk.store.progress(row.pk) == {"step#1": '"more"'}

    def test_a_new_life_saves_whatever_attempt_the_last_one_had_come_to(self, desk: Desk) -> None:
        """Attempts of a step within a step begin anew in every life."""
        row = desk.held()
        desk.one(save(row, '"third"', attempt=3))
        desk.release(row)
        again = desk.take(worker="w2")
        assert desk.one(save(again, '"first of the new life"', attempt=1)) is None
        assert desk.store.progress(row.pk) == {"step#1": '"first of the new life"'}

    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_lost_fence_saves_nothing(self, desk: Desk, lose: Callable[[Desk, RunRow], None]) -> None:
        stale = desk.held()
        desk.one(save(stale, '"mine"'))
        lose(desk, stale)
        assert desk.one(save(stale, '"stale"', attempt=9)) == Refused(FENCE)
        desk.take(worker="w2")
        assert desk.one(save(stale, '"stale"', attempt=9)) == Refused(FENCE)
        assert desk.one(save(stale, '"new key"', key="other#1")) == Refused(FENCE)
        assert desk.store.progress(stale.pk) == {"step#1": '"mine"'}

    def test_only_the_life_that_has_the_run_saves(self, desk: Desk) -> None:
        row, other = desk.held(), desk.held("other")
        queued = desk.submit("queued")
        impostors: list[dict[str, Any]] = [
            {"fence": 0},
            {"fence": -row.fence},
            {"fence": row.fence + 1000},
            {"pk": other.pk},
            {"pk": queued.pk},
            {"pk": row.pk + 1000},
        ]
        for impostor in impostors:
            assert desk.one(save(row._replace(**impostor))) == Refused(FENCE), impostor
        assert desk.one(save(queued)) == Refused(FENCE)
        for run in (row, other, queued):
            assert desk.store.progress(run.pk) == {}

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_it_is_forgotten_when_the_run_ends(self, desk: Desk, status: str) -> None:
        row, other = desk.held(), desk.held("other")
        desk.commit(save(row), save(other))
        desk.settle(row, status, value="1" if status == "done" else None, reason="why")
        assert desk.store.progress(row.pk) == {}
        assert desk.one(save(row)) == Refused(FENCE)
        assert desk.store.progress(row.pk) == {}
        assert desk.store.progress(other.pk) == {"step#1": '"text"'}

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_a_retried_run_starts_without_what_was_saved_before(self, desk: Desk, status: str) -> None:
        row = desk.held()
        desk.one(save(row, attempt=5))
        desk.settle(row, status, reason="why")
        assert desk.one(Retry("r", "t")) is None
        again = desk.take()
        assert desk.store.progress(row.pk) == {}
        assert desk.one(save(again, '"anew"', attempt=1)) is None
        assert desk.store.progress(row.pk) == {"step#1": '"anew"'}

    def test_a_pruned_run_leaves_none_behind(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(save(row))
        desk.settle(row)
        desk.clock.forward(10)
        assert desk.one(Prune(desk.clock.now, 10)) == 1
        assert desk.store.progress(row.pk) == {}
        later = desk.held("later")
        assert desk.store.progress(later.pk) == {}

    def test_a_dead_letter_that_is_pruned_leaves_none_behind(self, desk: Desk) -> None:
        row = desk.held(interruptions_max=1)
        desk.one(save(row))
        for _ in range(5):
            if desk.release(row) == "dead":
                break
            row = desk.take()
        assert desk.row().status == "dead"
        desk.clock.forward(10)
        assert desk.one(Prune(desk.clock.now, 10, dead=True)) == 1
        assert desk.store.progress(row.pk) == {}

    def test_a_refused_one_fails_alone_in_a_mixed_batch(self, desk: Desk) -> None:
        good, stale = desk.held("good"), desk.held("stale")
        desk.release(stale)
        assert desk.commit(save(good), save(stale), save(good, '"more"')) == [None, Refused(FENCE), None]
        assert desk.store.progress(good.pk) == {"step#1": '"more"'}

    def test_values_and_keys_are_what_they_are(self, desk: Desk) -> None:
        row = desk.held()
        saved = {"": "", 'a"b': "[0]", "ünï\n": '"\U0001f600"', "long": '"' + "x" * 1_000_000 + '"'}
        desk.commit(*[save(row, value, key=key) for key, value in saved.items()])
        assert desk.store.progress(row.pk) == saved
