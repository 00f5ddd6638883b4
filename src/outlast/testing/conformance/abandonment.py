"""Claim of a run that nobody took for too long: it is undone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast.errors import Abandoned
from outlast.store.rows import RunRow
from outlast.store.verbs import Cancel, Claim, Enlist, Submit, SubmitMany, Undo
from outlast.testing.conformance.harness import LEASE, Desk, Promises
from outlast.testing.conformance.undoing import VERDICT, counts, dealt
from outlast.values.exceptions import decode_error


def enlist(desk: Desk, worker: str, queues: tuple[str, ...] = ("default",), *workflows: str) -> None:
    desk.store.hold(worker)
    assert desk.one(Enlist(worker, "host", 1, LEASE, queues, workflows)) is None


def time_goes_by(desk: Desk, seconds: float, *alive: str) -> None:
    """In small steps, with these workers renewing."""
    steps = int(seconds // (LEASE / 4))
    for step in range(steps + 1):
        desk.clock.forward(LEASE / 4 if step < steps else seconds % (LEASE / 4))
        for worker in alive:
            desk.renew(worker)


def left(desk: Desk, id: str = "r", **fields: Any) -> RunRow:
    """A run that had begun and is claimable now."""
    desk.release(dealt(desk, id, worker="starter", **({"abandon_after": 100.0} | fields)))
    return desk.row(id)


class AbandonmentPromises(Promises):
    def test_abandon_after_is_kept_with_a_run(self, desk: Desk) -> None:
        assert desk.submit("a", abandon_after=2.5).abandon_after == 2.5
        assert desk.held("b", abandon_after=3.5).abandon_after == 3.5
        desk.one(SubmitMany((Submit("c", "flow", "[]", "t", "s", abandon_after=4.5),)))
        assert desk.row("c").abandon_after == 4.5
        assert desk.submit("d").abandon_after is None

    def test_a_run_that_nobody_took_for_too_long_is_claimed_to_be_undone(self, desk: Desk) -> None:
        enlist(desk, "busy")
        row = left(desk, timeout=5.0)
        time_goes_by(desk, 101, "busy")
        (claimed,) = desk.claim("w2")
        assert claimed == desk.row()
        assert (claimed.id, claimed.status, claimed.worker, claimed.deadline) == ("r", "running", "w2", None)
        assert claimed.lives == 2
        assert counts(desk) == (0, 1)
        assert desk.kinds(row) == ["intent", "interruption", "undoing"]
        assert desk.store.journal(row.pk)[-1].value == claimed.undoing
        assert [e.fence for e in desk.store.journal(row.pk)] == [
            -row.fence,
            row.fence,
            row.fence,
        ]  # not the claim's
        verdict = json.loads(claimed.undoing or "")
        assert (verdict["status"], verdict["value"], verdict["reason"], verdict["failed_at"]) == (
            "failed", None, None, None
        )  # fmt: skip
        error = decode_error(verdict["error"])
        assert isinstance(error, Abandoned)
        assert (error.id, error.seconds) == ("r", 101.0)
        for word in ("'r'", "101", "undone", "outlast retry r"):
            assert word in str(error)

    def test_the_life_that_undoes_it_goes_on_after_the_stores_entry(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk)
        time_goes_by(desk, 101, "busy")
        (claimed,) = desk.claim("w2")
        assert desk.record(claimed, 3) is not None  # taken: it is the `undoing` entry's
        assert desk.record(claimed, 4) is None
        desk.settle(claimed, "failed")
        assert (desk.row().status, desk.row().undoing) == ("failed", None)

    def test_a_repeated_claim_abandons_once(self, desk: Desk) -> None:
        enlist(desk, "busy")
        row = left(desk)
        time_goes_by(desk, 101, "busy")
        verb = Claim("busy", "again", queues=("default",))
        first, second = desk.commit(verb, verb)
        assert first == second == [desk.row()]
        assert desk.kinds(row).count("undoing") == 1

    def test_what_is_being_undone_already_is_not_abandoned(self, desk: Desk) -> None:
        enlist(desk, "busy")
        row = dealt(desk, worker="starter", abandon_after=100.0)
        desk.one(Undo(row.pk, row.fence, VERDICT))
        time_goes_by(desk, 101, "busy")
        assert [each.undoing for each in desk.claim("w2")] == [VERDICT]
        assert desk.kinds(row) == ["intent", "undoing"]

    def test_a_waiting_run_is_abandoned_from_when_it_was_due(self, desk: Desk) -> None:
        enlist(desk, "busy")
        for id in ("a", "b"):
            row = dealt(desk, id, worker="starter", abandon_after=100.0)
            desk.wait(row, due=desk.clock.now + (50.0 if id == "a" else 60.0))
        time_goes_by(desk, 155, "busy")
        assert {each.id: each.undoing is not None for each in desk.claim("w2", limit=5)} == {
            "a": True,
            "b": False,
        }
        assert counts(desk) == (0, 2)

    def test_a_child_is_abandoned_too(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk, "child", parent="parent")
        time_goes_by(desk, 101, "busy")
        assert [each.undoing is not None for each in desk.claim("w2")] == [True]
        assert counts(desk) == (0, 0)

    def test_a_suspect_is_abandoned_and_is_one_no_longer(self, desk: Desk) -> None:
        desk.suspect(abandon_after=100.0)
        enlist(desk, "busy")
        time_goes_by(desk, 101, "busy")
        assert [each.undoing is not None for each in desk.claim("w2", suspects=True)] == [True]
        assert desk.row().deaths_in_a_row == 0

    # -- what is not abandoned

    def _claimed(self, desk: Desk, **fields: Any) -> str | None:
        (row,) = desk.claim("w2", **fields)
        assert "undoing" not in desk.kinds(row) or row.undoing
        return row.undoing

    def test_a_run_without_a_time_is_never_abandoned(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk, abandon_after=None)
        time_goes_by(desk, 1000, "busy")
        assert self._claimed(desk) is None

    def test_a_run_is_not_abandoned_before_its_time_is_over(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk)
        time_goes_by(desk, 100, "busy")
        assert self._claimed(desk) is None

    def test_a_run_that_never_began_is_not_abandoned(self, desk: Desk) -> None:
        enlist(desk, "busy")
        desk.submit(abandon_after=100.0)
        time_goes_by(desk, 1000, "busy")
        assert self._claimed(desk) is None

    def test_a_run_that_is_named_is_not_abandoned(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk)
        time_goes_by(desk, 1000, "busy")
        assert self._claimed(desk, ids=("r",)) is None

    def test_a_run_that_is_to_be_cancelled_is_not_abandoned(self, desk: Desk) -> None:
        """It ends as its person asked."""
        enlist(desk, "busy")
        left(desk)
        desk.one(Cancel("r", "stop"))
        time_goes_by(desk, 1000, "busy")
        assert self._claimed(desk) is None
        assert desk.row().cancel == "stop"

    @pytest.mark.parametrize(
        ("queues", "workflows"), [((), ()), (("other",), ()), (("default",), ("another",))]
    )
    def test_a_worker_that_could_not_have_taken_it_does_not_count(
        self, desk: Desk, queues: tuple[str, ...], workflows: tuple[str, ...]
    ) -> None:
        enlist(desk, "other", queues, *workflows)
        left(desk)
        time_goes_by(desk, 1000, "other")
        assert self._claimed(desk) is None

    def test_a_worker_that_knows_its_workflow_by_name_counts(self, desk: Desk) -> None:
        enlist(desk, "busy", ("other", "default"), "another", "flow")
        left(desk)
        time_goes_by(desk, 101, "busy")
        assert self._claimed(desk) is not None

    def test_a_worker_that_came_later_does_not_count(self, desk: Desk) -> None:
        """Everybody was away, over a weekend: who comes back takes the run as it is."""
        left(desk)
        desk.clock.forward(1)
        enlist(desk, "late")
        time_goes_by(desk, 1000, "late")
        assert self._claimed(desk) is None

    def test_a_worker_that_drains_does_not_count(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk)
        time_goes_by(desk, 1000, "busy")
        desk.renew("busy", draining=True)
        assert self._claimed(desk) is None

    def test_a_worker_whose_lease_ran_out_does_not_count(self, desk: Desk) -> None:
        enlist(desk, "busy")
        enlist(desk, "other", ())
        left(desk)
        time_goes_by(desk, 1000, "other")
        assert self._claimed(desk) is None

    def test_a_time_in_which_nobody_was_awake_does_not_count(self, desk: Desk) -> None:
        """A machine slept, or a clock jumped: its worker is the same, but nobody could have taken anything."""
        enlist(desk, "busy")
        left(desk)
        time_goes_by(desk, 90, "busy")
        desk.clock.forward(100_000)
        desk.renew("busy")
        time_goes_by(desk, 90, "busy")
        assert self._claimed(desk) is None

    def test_the_time_goes_on_after_everybody_woke_up(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk)
        desk.clock.forward(100_000)
        time_goes_by(desk, 120, "busy")
        assert self._claimed(desk) is not None

    def test_a_gap_that_nobody_has_noticed_yet_does_not_count(self, desk: Desk) -> None:
        enlist(desk, "busy")
        left(desk, abandon_after=10.0)
        desk.clock.forward(LEASE - 1)  # its lease still holds
        (found,) = desk.one(Claim("busy", "t", queues=("default",)))
        assert found.undoing is None
