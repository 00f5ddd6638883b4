"""Check what a stream has to do with the rest of a run: its journal, its readers and its end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from outlast.store.commands import FENCE, OFFSET, Prune, Publish, Refused, Retry
from outlast.store.stream_rows import PartRow, StreamInfo, StreamRange
from outlast.store.topics import Topic
from outlast.testing.conformance.fences import LOSSES
from outlast.testing.conformance.harness import WAIT_SECONDS, Contract, StoreDriver, entry
from outlast.testing.conformance.stream_driver import STREAM, Viewer, found, publish, text


class StreamRunContract(Contract):
    # -- with a record

    def test_a_publication_with_a_record_is_one_with_its_entry(self, driver: StoreDriver) -> None:
        row = driver.held()
        record = entry(row, 1, kind="publish", key="p#1", value="7")
        command = publish(row, "ab", writer="p#1", record=record)
        assert driver.commit(command, command) == [None, None]
        driver.commit(publish(row, "c", writer="p#2", record=entry(row, 2)))
        assert text(driver, row) == "abc"
        (first, _) = journal = driver.store.journal(row.pk)
        assert (first.kind, first.key, first.value, first.fence) == (
            "publish",
            "p#1",
            "7",
            row.fence,
        )
        assert driver.one(command) is None
        assert (text(driver, row), driver.store.journal(row.pk)) == ("abc", journal)

    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_repeat_of_a_record_is_known_after_the_fence_is_void(
        self, driver: StoreDriver, lose: Any
    ) -> None:
        row = driver.held()
        driver.commit(command := publish(row, "a", record=entry(row, 1)))
        lose(driver, row)
        assert driver.one(command) is None
        other = publish(row, "b", writer="other", record=entry(row, 2))
        assert driver.one(other) == Refused(FENCE), "the store's own entry has this number"
        assert text(driver, row) == "a"

    def test_neither_is_written_if_one_of_them_cannot_be(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.record(row, 1)
        driver.commit(publish(row, "a"))
        wrong = publish(row, "b", 7, record=entry(row, 2))
        assert driver.one(wrong) == Refused(OFFSET, "1")
        assert driver.store.last_seq(row.pk) == 1
        driver.release(row)
        taken = driver.take()
        seq = driver.store.last_seq(row.pk)
        assert driver.one(publish(taken, "z", record=entry(taken, seq))) == Refused(FENCE)
        assert text(driver, row) == "a"
        assert driver.store.last_seq(row.pk) == seq

    # -- reading

    def test_a_read_begins_with_the_row_that_has_the_position(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(publish(row, "abc"), publish(row, "de", 3), publish(row, "f", 5))
        firsts = {
            after: [chunk.first for chunk in found(driver, row, after).chunks]
            for after in (0, 2, 3, 4, 5, 6, 9)
        }
        assert firsts == {0: [0, 3, 5], 2: [0, 3, 5], 3: [3, 5], 4: [3, 5], 5: [5], 6: [], 9: []}
        assert [chunk.first for chunk in found(driver, row, 1, limit=2).chunks] == [0, 3]
        assert (found(driver, row, 9).start, found(driver, row, 9).stop) == (0, 6)

    def test_reads_of_what_is_not_there_are_empty(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(publish(row, "a"))
        assert driver.store.stream(row.pk, "other") is None
        assert driver.store.part(row.pk, STREAM, "other") is None
        assert driver.store.part(row.pk, "other", "step#1") is None
        assert driver.store.stream(row.pk + 1, STREAM) is None
        assert driver.store.parts(row.pk + 1) == []

    def test_several_streams_are_read_as_each_is_read_alone(self, driver: StoreDriver) -> None:
        row, other = driver.held("r"), driver.held("r2")
        driver.commit(publish(row, "abc"), publish(row, "de", 3), publish(other, "x"))
        driver.commit(publish(other, "", stream="empty"), publish(row, "é", stream="a b:c"))
        driver.commit(publish(row, "z", attempt=2), publish(row, "yz", 1, attempt=2))
        asked = [
            StreamRange(row.pk, STREAM),
            StreamRange(row.pk, "other"),
            StreamRange(other.pk, STREAM, 1),
            StreamRange(row.pk, STREAM, 7, 1),
            StreamRange(other.pk, "empty"),
            StreamRange(row.pk + 100, STREAM),
            StreamRange(row.pk, "a b:c"),
            StreamRange(row.pk, STREAM, 1_000_000),
            StreamRange(row.pk, STREAM),
        ]
        found = driver.store.many_streams(asked)
        assert found == [driver.store.stream(*one) for one in asked]
        assert [one is None for one in found] == [False, True, *[False] * 3, True, *[False] * 3]
        assert driver.store.many_streams([]) == []

    def test_more_streams_are_read_than_one_call_reads(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(*[publish(row, "a", stream=f"s{number}") for number in range(450)])
        asked = [StreamRange(row.pk, f"s{number}") for number in range(450)]
        found = driver.store.many_streams(asked)
        assert [one is not None and one.stop for one in found] == [1] * 450

    def test_unended_runs_are_told_from_those_that_ended_or_are_gone(
        self, driver: StoreDriver
    ) -> None:
        held, parked = driver.held("held"), driver.ended("parked", "parked")
        queued = driver.submit("queued")
        ended = [
            driver.ended(status, status).pk for status in ("done", "failed", "cancelled", "dead")
        ]
        unended = {held.pk, parked.pk, queued.pk}
        asked = [*unended, *ended, held.pk + 1_000, held.pk]
        assert driver.store.unended(asked) == unended
        assert driver.store.unended([]) == set()

    def test_a_viewer_is_never_shown_what_is_later_silently_contradicted(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        viewer = Viewer()
        driver.commit(publish(row, "ab"))
        viewer.read(driver, row)
        driver.commit(publish(row, "c", 2, attempt=2, resumes=True, last=True))
        viewer.read(driver, row)
        assert (viewer.seen, viewer.resets) == ("abc", 0)
        driver.release(row)
        row = driver.take()
        # As long as before, so that only the generation tells them apart.
        driver.commit(publish(row, "xyz"))
        viewer.read(driver, row)
        assert (viewer.seen, viewer.resets) == ("xyz", 1)

    # -- notifications

    def test_a_publication_wakes_those_who_listen_to_streams(self, driver: StoreDriver) -> None:
        row = driver.held()
        published = threading.Event()
        driver.store.listen(published.set, Topic.STREAMS)
        for count in range(int(WAIT_SECONDS)):
            driver.commit(publish(row, "a", count))
            # A notification may be lost.
            if published.wait(1.0):
                break
        assert published.is_set()

    # -- what else happens to a run

    def test_publishing_is_not_progress(self, driver: StoreDriver) -> None:
        """Let a step that shows something and then kills its worker become a dead letter."""
        row = driver.held(attempts_max=1)
        driver.commit(publish(row, "a"))
        assert driver.lease_over().dead == (row.id,)

    def test_a_retry_leaves_what_was_published_until_it_is_replaced(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        driver.settle(row, "failed", error='{"type": "E"}', failed_at=1)
        assert driver.one(Retry("r", "t")) is None
        assert text(driver, row) == "ab"
        driver.commit(publish(driver.take(), "x"))
        assert text(driver, row) == "x"

    def test_pruning_a_run_deletes_its_streams(self, driver: StoreDriver) -> None:
        row, other = driver.held("r"), driver.held("r2")
        for which in (row, other):
            driver.commit(publish(which, "ab", stream="x"), publish(which, "ab", stream="y"))
        driver.settle(row)
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now - 5)) == 1
        assert driver.store.streams(row.pk) == []
        assert driver.store.parts(row.pk) == []
        assert driver.store.stream(row.pk, "x") is None
        assert driver.store.part(row.pk, "x", "step#1") is None
        assert driver.store.streams(other.pk) == [StreamInfo("x", 0, 2), StreamInfo("y", 0, 2)]
        again = driver.held("r")
        assert again.pk != row.pk, "a cursor of the run before must not fit"
        assert driver.store.streams(again.pk) == []

    def test_values_come_back_as_they_were(self, driver: StoreDriver) -> None:
        row = driver.held()
        values = ('"\\u0000,]["', '{"a": [1, 2.50]}', "null", '"é\U0001f600"', "1e300", '""')
        driver.commit(Publish(row.pk, row.fence, STREAM, "w", 1, 0, values))
        driver.commit(Publish(row.pk, row.fence, STREAM, "w", 1, 6, values, last=True))
        (chunk,) = found(driver, row).chunks
        assert chunk.values == f"[{','.join(values * 2)}]"
        part = driver.store.part(row.pk, STREAM, "w")
        assert part == PartRow(12, chunk.values)
