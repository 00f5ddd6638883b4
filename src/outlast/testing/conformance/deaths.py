"""Sweep: what becomes of a run whose worker died, and who is to blame."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from outlast.store.rows import RunRow
from outlast.store.verbs import (
    WORKER,
    Cancel,
    Claim,
    Enlist,
    Leave,
    Refused,
    Release,
    Renew,
    Retry,
    Sweep,
    Swept,
)
from outlast.testing.conformance.harness import LEASE, NOBODY, Desk, Promises, entry, seen_of


def given_back(desk: Desk, row: RunRow) -> None:
    desk.one(Release(row.pk, row.fence, "drain"))


def put_aside(desk: Desk, row: RunRow) -> None:
    desk.one(Release(row.pk, row.fence, "not here", interrupted=False))


def waiting(desk: Desk, row: RunRow) -> None:
    desk.wait(row, due=desk.clock.now)


def left(desk: Desk, row: RunRow) -> None:
    assert row.worker is not None
    desk.one(Leave(row.worker))


def drained(desk: Desk, row: RunRow) -> None:
    assert row.worker is not None
    desk.renew(row.worker, draining=True)
    desk.lease_over()


def died(desk: Desk, row: RunRow) -> None:
    desk.die(row)


class DeathPromises(Promises):
    @pytest.mark.parametrize("draining", [False, True])
    def test_the_entry_of_a_death_tells_when_its_worker_was_last_seen(
        self, desk: Desk, draining: bool
    ) -> None:
        row = desk.held()
        desk.clock.forward(12.25)
        desk.renew(draining=draining)
        renewed = desk.clock.now
        desk.lease_over()
        assert desk.clock.now == renewed + LEASE
        assert desk.kinds(row) == ["interruption" if draining else "death"]
        assert seen_of(desk, row) == (renewed, "lease")

    def test_who_leaves_was_seen_then_and_who_gives_a_run_back_says_so_itself(self, desk: Desk) -> None:
        left, released = desk.held(), desk.held("released")
        desk.clock.forward(12.25)
        desk.release(released)
        desk.one(Leave("w1"))
        assert seen_of(desk, left) == (desk.clock.now, "leave")
        assert seen_of(desk, released) == (None, None)

    def test_a_worker_is_never_seen_in_the_future(self, desk: Desk) -> None:
        """The clock was set back, by more than a lease."""
        desk.enlist("w2")
        row = desk.held()
        desk.clock.forward(-1000)
        desk.lease_over("w2")
        seen, by = seen_of(desk, row)
        assert (seen is not None and seen <= desk.clock.now, by) == (True, "lease")

    def test_the_runs_of_a_dead_worker_are_queued_with_a_death_on_record(self, desk: Desk) -> None:
        row, second = desk.held(), desk.held("second")
        alive = desk.held("alive", "w2")
        desk.record(row, 1)
        swept = desk.lease_over("w2")
        assert (sorted(swept.runs), swept.dead, swept.workers) == (["r", "second"], (), ("w1",))
        now = desk.row()
        assert (now.status, now.worker, now.deaths, now.interruptions, now.due) == (
            "queued", None, 1, 0, desk.clock.now
        )  # fmt: skip
        step, death = desk.store.journal(row.pk)
        assert (step.kind, death.kind, death.seq, death.at) == ("step", "death", 2, desk.clock.now)
        assert json.loads(death.value or "")["worker"] == "w1"
        assert desk.kinds(second) == ["death"]
        assert desk.row("alive") == alive
        assert [worker.id for worker in desk.store.workers()] == ["w2"]

    def test_a_second_sweep_finds_nothing(self, desk: Desk) -> None:
        row = desk.held()
        desk.lease_over()
        assert desk.commit(Sweep(), Sweep()) == [NOBODY, NOBODY]
        assert desk.store.dead_workers() == []
        assert desk.kinds(row) == ["death"]

    def test_of_two_sweeps_in_a_batch_the_first_has_everything(self, desk: Desk) -> None:
        desk.held()
        desk.enlist("w2", lease=3600.0)
        for _ in range(3):
            desk.clock.forward(15)
            desk.renew("w2", lease=3600.0)
        desk.clock.forward(15)
        assert desk.commit(Sweep(), Sweep()) == [Swept(("r",), (), ("w1",)), NOBODY]

    def test_a_worker_without_runs_is_struck_off_at_its_death(self, desk: Desk) -> None:
        desk.enlist()
        assert desk.lease_over() == Swept((), (), ("w1",))
        assert desk.store.workers() == []

    def test_a_swept_worker_must_enlist_anew(self, desk: Desk) -> None:
        desk.held()
        desk.lease_over()
        for verb in (Renew("w1", 60.0), Claim("w1", "t", ids=("r",))):
            outcome = desk.one(verb)
            assert isinstance(outcome, Refused)
            assert outcome.why == WORKER
        desk.one(Enlist("w1", "host", 1, 60.0))
        assert desk.take("r", "w1").deaths == 1

    def test_deaths_are_counted_over_lives(self, desk: Desk) -> None:
        desk.submit()
        for deaths in range(3):
            row = desk.take("r", f"w{deaths}")
            assert row.deaths == deaths
            desk.record(row, 2 * deaths + 1)
            desk.die(row)
        assert desk.row().deaths == 3

    def test_a_dead_workers_run_that_was_asked_to_end_still_is(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Cancel("r", "stop"))
        desk.die(row)
        assert desk.take("r", "w2").cancel == "stop"

    # -- who had got somewhere, and who is a suspect

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child"])
    def test_a_run_that_recorded_something_of_its_own_goes_ahead_of_new_work(
        self, desk: Desk, kind: str
    ) -> None:
        desk.submit("new")
        row = desk.held()
        desk.record(row, 1, kind=kind)
        now = desk.die(row)
        assert (now.deaths_in_a_row, now.interrupted, now.due) == (0, desk.clock.now, desk.clock.now)
        assert [r.id for r in desk.claim("w2", limit=5)] == ["r", "new"]

    @pytest.mark.parametrize("kinds", [(), ("fired",), ("message",), ("cancel",), ("fired", "message")])
    def test_a_run_that_recorded_nothing_of_its_own_is_a_suspect_the_second_time(
        self, desk: Desk, kinds: tuple[str, ...]
    ) -> None:
        """Whoever kills a worker, it is seldom what it executes: the first time it goes ahead of new work like any other."""
        desk.submit("new")
        row = desk.held()
        for seq, kind in enumerate(kinds, 1):
            desk.record(row, seq, kind=kind)
        now = died_at = desk.die(row)
        assert (now.deaths_in_a_row, now.ready, now.due) == (1, 1, desk.clock.now)
        assert now.interrupted == desk.clock.now
        assert desk.claim("w2", limit=5, suspects=True) == []
        again, _ = desk.claim("w2", limit=5)
        assert (again.id, again.is_suspect) == ("r", False)
        for seq, kind in enumerate(kinds, 2 + len(kinds)):
            desk.record(again, seq, kind=kind)
        desk.lease_over(backoff=0.0)
        now = desk.row()
        assert (now.deaths_in_a_row, now.ready, now.due) == (2, 2, desk.clock.now)
        assert now.interrupted == died_at.interrupted
        assert [r.id for r in desk.claim("w3", limit=5)] == ["new"]
        assert [(r.id, r.is_suspect) for r in desk.claim("w3", limit=5, suspects=True)] == [("r", True)]

    def test_all_that_a_dead_worker_held_can_be_had_at_once_the_first_time(self, desk: Desk) -> None:
        desk.submit("new")
        ids = [f"r{number}" for number in range(10)]
        for id in ids:
            desk.held(id)
        desk.lease_over(backoff=3.0)
        assert [row.id for row in desk.claim("w2", limit=20)] == [*ids, "new"]

    def test_the_first_death_is_forgotten_by_progress(self, desk: Desk) -> None:
        desk.die(desk.held())
        row = desk.take(worker="w2")
        desk.record(row, 2)
        desk.die(row)
        now = desk.die(desk.take(worker="w3"))
        assert (now.deaths_in_a_row, now.ready) == (1, 1)

    def test_what_an_earlier_life_recorded_is_no_excuse(self, desk: Desk) -> None:
        first = desk.held()
        desk.record(first, 1)
        desk.release(first)
        assert desk.die(desk.take(worker="w2")).deaths_in_a_row == 1

    def test_a_retry_is_no_progress(self, desk: Desk) -> None:
        desk.ended(status="failed")
        desk.one(Retry("r", "t"))
        assert desk.die(desk.take()).deaths_in_a_row == 1

    def test_a_suspect_is_due_later_with_each_death_alone(self, desk: Desk) -> None:
        """At once after the first, then after the back-off, doubled, and no longer than its maximum."""
        desk.submit(attempts_max=100)
        waits = []
        for turn in range(7):
            row = desk.die(desk.take(worker=f"w{turn}"), backoff=3.0, backoff_max=20.0)
            waits.append(row.due - desk.clock.now)
            assert row.deaths_in_a_row == turn + 1
            if waits[-1]:
                assert desk.claim("other", suspects=True) == desk.claim("other") == []
                desk.one(Leave("other"))
            desk.clock.forward(waits[-1])
        assert waits == [0.0, 3.0, 6.0, 12.0, 20.0, 20.0, 20.0]
        assert [r.id for r in desk.claim("other", suspects=True)] == ["r"]

    def test_a_back_off_stays_finite_over_any_number_of_deaths(self, desk: Desk) -> None:
        desk.submit(attempts_max=10_000)
        for turn in range(70):
            desk.die(desk.take(worker=f"w{turn}"), backoff=1e300, backoff_max=1.0)
            desk.clock.forward(1)
        assert desk.row().deaths_in_a_row == 70
        assert desk.row().due == desk.clock.now

    def test_progress_in_between_ends_the_row(self, desk: Desk) -> None:
        desk.die(desk.held())
        row = desk.take(worker="w2")
        desk.record(row, 2)
        assert desk.die(row).deaths_in_a_row == 0
        assert desk.die(desk.take(worker="w3")).deaths_in_a_row == 1

    @pytest.mark.parametrize("end", [given_back, put_aside, waiting, left, drained, died])
    def test_a_suspect_that_recorded_something_is_none_any_more_however_its_life_ended(
        self, desk: Desk, end: Callable[[Desk, RunRow], None]
    ) -> None:
        desk.suspect()
        row = desk.take(worker="w2")
        desk.record(row, 3)
        end(desk, row)
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (0, 1)
        assert [r.id for r in desk.claim("w3")] == ["r"]

    @pytest.mark.parametrize("end", [given_back, put_aside, waiting, left, drained])
    def test_a_suspect_that_recorded_nothing_stays_one(
        self, desk: Desk, end: Callable[[Desk, RunRow], None]
    ) -> None:
        desk.suspect()
        end(desk, desk.take(worker="w2"))
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (2, 2)

    @pytest.mark.parametrize("end", [given_back, put_aside, waiting, left, drained])
    def test_a_run_that_died_once_and_recorded_nothing_since_is_nearly_one(
        self, desk: Desk, end: Callable[[Desk, RunRow], None]
    ) -> None:
        desk.die(desk.held())
        end(desk, desk.take(worker="w2"))
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (1, 1)
        now = desk.die(desk.take(worker="w3"), backoff=0.0)
        assert (now.deaths_in_a_row, now.ready) == (2, 2)

    # -- alone

    def test_a_run_that_dies_alone_too_often_is_a_dead_letter(self, desk: Desk) -> None:
        desk.submit(attempts_max=3)
        for turn in range(2):
            desk.take(worker=f"w{turn}")
            assert desk.lease_over(backoff=0.0) == Swept(("r",), (), (f"w{turn}",))
        desk.take(worker="w2")
        assert desk.lease_over(backoff=0.0) == Swept(("r",), ("r",), ("w2",))
        row = desk.row()
        assert (row.status, row.ended, row.deaths, row.ready) == ("dead", desk.clock.now, 3, 0)
        assert "3 times" in (row.reason or "")
        assert desk.kinds(row) == ["death"] * 3
        assert desk.claim("w3", suspects=True) == desk.claim("w3") == desk.claim("w3", ids=("r",)) == []

    def test_a_run_of_one_attempt_that_dies_alone_is_a_dead_letter_at_once(self, desk: Desk) -> None:
        desk.held(attempts_max=1)
        assert desk.lease_over().dead == ("r",)
        assert "died once" in (desk.row().reason or "")

    def test_of_two_attempts_a_death_in_company_is_none_but_the_next_alone_is_the_last(
        self, desk: Desk
    ) -> None:
        row, _ = desk.held(attempts_max=2), desk.held("other")
        assert desk.die(row).status == "queued"
        assert desk.die(desk.take(worker="w2")).status == "dead"

    def test_who_dies_among_others_is_not_charged_again(self, desk: Desk) -> None:
        for id in ("one", "two"):
            desk.submit(id, attempts_max=2)
        for turn in range(5):
            desk.take("one", f"w{turn}")
            desk.take("two", f"w{turn}")
            swept = desk.lease_over(backoff=0.0)
            assert (sorted(swept.runs), swept.dead) == (["one", "two"], ())
        assert [desk.row(id).deaths_in_a_row for id in ("one", "two")] == [2, 2]
        assert [desk.row(id).deaths for id in ("one", "two")] == [5, 5]
        desk.take("one", "lonely")
        assert desk.lease_over().dead == ("one",)

    def test_one_poison_among_many_is_found_and_only_it_dies(self, desk: Desk) -> None:
        """The others record something as soon as they are alone."""
        for number in range(10):
            desk.submit(f"r{number}", attempts_max=4)
        for crowd in ("first", "second"):
            assert len(desk.claim(crowd, limit=10)) == 10
            desk.lease_over(backoff=0.0)
        assert desk.claim("third", limit=10) == []
        desk.one(Leave("third"))
        turn = 0
        while rows := desk.claim(f"w{turn}", suspects=True):
            (row,) = rows
            if row.id == "r7":
                desk.lease_over(backoff=0.0)
            else:
                desk.record(row, 2)
                desk.settle(row)
                desk.one(Leave(f"w{turn}"))
            turn += 1
        assert {desk.row(f"r{n}").status for n in range(10) if n != 7} == {"done"}
        assert (desk.row("r7").status, desk.row("r7").deaths) == ("dead", 4)

    def test_the_ancestors_of_a_run_do_not_spoil_its_loneliness_and_are_not_suspects(
        self, desk: Desk
    ) -> None:
        desk.submit("top", attempts_max=2)
        desk.submit("middle", parent="top", attempts_max=2)
        desk.submit("leaf", parent="middle", attempts_max=2)
        for turn in range(2):
            for id in ("top", "middle", "leaf"):
                desk.take(id, f"w{turn}")
            swept = desk.lease_over(backoff=0.0)
        assert swept.dead == ("leaf",)
        assert [desk.row(id).deaths_in_a_row for id in ("top", "middle", "leaf")] == [0, 0, 2]
        assert [desk.row(id).ready for id in ("top", "middle", "leaf")] == [1, 1, 0]
        assert desk.row("top").interrupted is not None

    def test_brothers_do_spoil_it(self, desk: Desk) -> None:
        desk.submit("top", attempts_max=2)
        for id in ("one", "two"):
            desk.submit(id, parent="top", attempts_max=2)
        for turn in range(4):
            for id in ("top", "one", "two"):
                desk.take(id, f"w{turn}")
            assert desk.lease_over(backoff=0.0).dead == ()
        assert [desk.row(id).deaths_in_a_row for id in ("top", "one", "two")] == [0, 2, 2]

    def test_a_family_whose_lines_go_in_a_circle_can_be_swept(self, desk: Desk) -> None:
        desk.held("own father", parent="own father")
        desk.held("egg", parent="hen")
        desk.held("hen", parent="egg")
        assert len(desk.lease_over().runs) == 3

    # -- draining

    def test_the_runs_of_a_worker_that_was_draining_are_interrupted_not_charged(self, desk: Desk) -> None:
        row = desk.held(attempts_max=1)
        desk.renew("w1", draining=True)
        assert desk.lease_over() == Swept(("r",), (), ("w1",))
        now = desk.row()
        assert (now.status, now.deaths, now.deaths_in_a_row, now.interruptions) == ("queued", 0, 0, 1)
        assert now.interrupted == desk.clock.now
        assert desk.kinds(row) == ["interruption"]
        assert [r.id for r in desk.claim("w2")] == ["r"]

    def test_draining_is_not_taken_back_by_a_renewal(self, desk: Desk) -> None:
        row = desk.held()
        desk.renew("w1", draining=True)
        desk.renew("w1")
        assert [bool(worker.draining) for worker in desk.store.workers()] == [True]
        desk.lease_over()
        assert desk.kinds(row) == ["interruption"]

    def test_a_draining_worker_can_bring_a_run_over_its_last_interruption(self, desk: Desk) -> None:
        desk.held(interruptions_max=1)
        desk.renew("w1", draining=True)
        assert desk.lease_over() == Swept(("r",), ("r",), ("w1",))
        assert desk.row().status == "dead"

    def test_a_death_with_progress_ends_a_row_of_interruptions(self, desk: Desk) -> None:
        row = desk.held(interruptions_max=2)
        assert desk.release(row) == "queued"
        row = desk.take()
        desk.record(row, 2)
        desk.die(row)
        assert desk.release(desk.take()) == "queued"
        assert desk.release(desk.take()) == "dead"

    def test_a_run_of_the_dead_keeps_the_place_of_its_first_interruption(self, desk: Desk) -> None:
        row = desk.held()
        desk.release(row)
        first = desk.row().interrupted
        row = desk.take()
        desk.record(row, 2)
        assert desk.die(row).interrupted == first

    def test_only_what_a_worker_holds_is_taken_from_it(self, desk: Desk) -> None:
        desk.settle(desk.held("done"))
        desk.wait(desk.held("waiting"))
        desk.submit("queued")
        before = [desk.row(id) for id in ("done", "waiting", "queued")]
        assert desk.lease_over() == Swept((), (), ("w1",))
        assert [desk.row(id) for id in ("done", "waiting", "queued")] == before

    def test_entries_of_the_dead_life_are_refused_and_the_next_goes_on(self, desk: Desk) -> None:
        stale = desk.held()
        desk.record(stale, 1)
        desk.die(stale)
        now = desk.take(worker="w2")
        assert desk.commit(entry(stale, 2), entry(stale, 3), entry(now, 3)) == [
            Refused("fence"),
            Refused("fence"),
            None,
        ]
        assert desk.kinds(now) == ["step", "death", "step"]
