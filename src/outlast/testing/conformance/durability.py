"""Opening, closing, opening again; and the bell."""

from __future__ import annotations

import threading

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.rows import RunQuery
from outlast.store.verbs import Cancel, Keep, Prune, Send, Submit
from outlast.testing.conformance.harness import WAIT_SECONDS, Desk, HandClock, MakeStore, Opened, Promises


class DurabilityPromises(Promises):
    def test_to_open_or_close_again_is_harmless(self, make_store: MakeStore, clock: HandClock) -> None:
        store = make_store(clock)
        store.close()
        store.open()
        store.open()
        assert store.runs(RunQuery()) == []
        store.close()
        store.close()

    def test_a_closed_store_says_so(self, make_store: MakeStore, clock: HandClock) -> None:
        store = make_store(clock)
        store.open()
        store.close()
        with pytest.raises(StoreUnavailable):
            store.commit([Submit("r", "flow", "[]", "t", "s")])
        with pytest.raises(StoreUnavailable):
            store.run("r")

    def test_the_stores_clock_is_the_one_it_was_given(self, desk: Desk) -> None:
        assert desk.store.now() == desk.clock.now
        desk.clock.forward(5)
        assert desk.store.now() == desk.clock.now

    def test_recover_is_harmless_when_nothing_is_wrong(self, desk: Desk) -> None:
        row = desk.held()
        desk.record(row, 1)
        desk.store.recover()
        assert desk.row() == row
        assert desk.record(row, 2) is None
        assert len(desk.store.journal(row.pk)) == 2

    def test_a_commit_of_something_others_wait_for_rings_the_bell(self, desk: Desk) -> None:
        desk.held()
        rung = threading.Event()
        desk.store.listen(rung.set)
        assert self._rings(rung, desk)

    def _rings(self, rung: threading.Event, desk: Desk) -> bool:
        """A ring may be lost, so it is given a few chances."""
        for turn in range(int(WAIT_SECONDS)):
            desk.commit(Send("r", "m", str(turn), "1"), Cancel("r", "why"))
            if rung.wait(1.0):
                return True
        return False


class ReopeningPromises(DurabilityPromises):
    """For a store that outlives its objects and that several may have open at once."""

    shared = True

    def test_what_was_committed_is_there_when_it_is_opened_again(
        self, opened: Opened, clock: HandClock
    ) -> None:
        desk = Desk(opened(), clock)
        row = desk.held()
        desk.record(row, 1, value='"kept"')
        desk.commit(Send("r", "m", "1", "1"), Keep("s", "t", {"a": "1"}))
        before = (
            desk.row(),
            desk.store.journal(row.pk),
            desk.store.messages(row.pk),
            desk.store.session("s"),
        )
        desk.store.close()
        again = Desk(opened(), clock)
        after = (
            again.row(),
            again.store.journal(row.pk),
            again.store.messages(row.pk),
            again.store.session("s"),
        )
        assert after == before
        assert [worker.id for worker in again.store.workers()] == ["w1"]

    def test_fences_and_numbers_of_runs_go_on_growing_when_it_is_opened_again(
        self, opened: Opened, clock: HandClock
    ) -> None:
        desk = Desk(opened(), clock)
        first = desk.ended()
        desk.one(Prune(clock.now + 1))
        desk.store.close()
        second = Desk(opened(), clock).held(worker="w2")
        assert second.fence > abs(first.fence)
        assert second.pk > first.pk

    def test_a_commit_elsewhere_rings_the_bell_here(self, desk: Desk, opened: Opened) -> None:
        desk.held()
        rung = threading.Event()
        opened().listen(rung.set)
        assert self._rings(rung, desk)
