"""Check opening, closing and reopening a store, and its notifications."""

from __future__ import annotations

import threading

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.commands import Cancel, Prune, Send, Submit, UpdateSession
from outlast.store.rows import RunQuery
from outlast.store.topics import Topic
from outlast.testing.conformance.harness import (
    WAIT_SECONDS,
    Contract,
    MakeStore,
    ManualClock,
    Opened,
    StoreDriver,
)
from outlast.testing.conformance.stream_driver import publish, text


class DurabilityContract(Contract):
    def test_to_open_or_close_again_is_harmless(
        self, make_store: MakeStore, clock: ManualClock
    ) -> None:
        store = make_store(clock)
        store.close()
        store.open()
        store.open()
        assert store.runs(RunQuery()) == []
        store.close()
        store.close()

    def test_a_closed_store_says_so(self, make_store: MakeStore, clock: ManualClock) -> None:
        store = make_store(clock)
        store.open()
        store.close()
        with pytest.raises(StoreUnavailable):
            store.commit([Submit("r", "flow", "[]", "t", "s")])
        with pytest.raises(StoreUnavailable):
            store.run("r")

    def test_the_stores_clock_is_the_one_it_was_given(self, driver: StoreDriver) -> None:
        assert driver.store.now() == driver.clock.now
        driver.clock.forward(5)
        assert driver.store.now() == driver.clock.now

    def test_recover_is_harmless_when_nothing_is_wrong(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.record(row, 1)
        driver.store.recover()
        assert driver.row() == row
        assert driver.record(row, 2) is None
        assert len(driver.store.journal(row.pk)) == 2

    def test_a_commit_of_something_others_wait_for_notifies(self, driver: StoreDriver) -> None:
        driver.held()
        notified = threading.Event()
        driver.store.listen(notified.set)
        assert self._notifies(notified, driver)

    def _notifies(self, notified: threading.Event, driver: StoreDriver) -> bool:
        """Return whether a commit notifies. A notification may be lost, so try several times."""
        for turn in range(int(WAIT_SECONDS)):
            driver.commit(Send("r", "m", str(turn), "1"), Cancel("r", "why"))
            if notified.wait(1.0):
                return True
        return False


class ReopeningContract(DurabilityContract):
    """Check a store that outlives its objects and may be open several times at once."""

    shared = True

    def test_what_was_committed_is_there_when_it_is_opened_again(
        self, opened: Opened, clock: ManualClock
    ) -> None:
        driver = StoreDriver(opened(), clock)
        row = driver.held()
        driver.record(row, 1, value='"kept"')
        driver.commit(Send("r", "m", "1", "1"), UpdateSession("s", "t", {"a": "1"}))
        before = (
            driver.row(),
            driver.store.journal(row.pk),
            driver.store.messages(row.pk),
            driver.store.session("s"),
        )
        driver.store.close()
        again = StoreDriver(opened(), clock)
        after = (
            again.row(),
            again.store.journal(row.pk),
            again.store.messages(row.pk),
            again.store.session("s"),
        )
        assert after == before
        assert [worker.id for worker in again.store.workers()] == ["w1"]

    def test_fences_and_numbers_of_runs_go_on_growing_when_it_is_opened_again(
        self, opened: Opened, clock: ManualClock
    ) -> None:
        driver = StoreDriver(opened(), clock)
        first = driver.ended()
        driver.one(Prune(clock.now + 1))
        driver.store.close()
        second = StoreDriver(opened(), clock).held(worker="w2")
        assert second.fence > abs(first.fence)
        assert second.pk > first.pk

    def test_a_commit_elsewhere_notifies_here(self, driver: StoreDriver, opened: Opened) -> None:
        driver.held()
        notified = threading.Event()
        opened().listen(notified.set)
        assert self._notifies(notified, driver)

    def test_a_publication_elsewhere_notifies_here(
        self, driver: StoreDriver, opened: Opened
    ) -> None:
        row, published = driver.held(), threading.Event()
        opened().listen(published.set, Topic.STREAMS)
        for count in range(int(WAIT_SECONDS)):
            driver.commit(publish(row, "a", count))
            if published.wait(1.0):
                break
        assert published.is_set()

    def test_a_stream_is_there_when_the_store_is_opened_again(
        self, opened: Opened, clock: ManualClock
    ) -> None:
        driver = StoreDriver(opened(), clock)
        row = driver.held()
        driver.commit(publish(row, "ab"), publish(row, "c", 2, last=True))
        driver.commit(publish(row, "x", attempt=2, writer="step#2"))
        driver.store.close()
        again = StoreDriver(opened(), clock)
        assert text(again, row) == "abcx"
        assert again.one(publish(row, "c", 2)) is None, "a repeat"
        assert again.one(publish(row, "yz", attempt=2)) is None
        assert text(again, row) == "xyz"
