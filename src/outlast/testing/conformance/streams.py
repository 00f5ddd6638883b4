"""Check Publish: the values that a run shows while it executes. The rules have its numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast.store.commands import (
    FENCE,
    FOLD_MAX,
    OFFSET,
    Refused,
)
from outlast.store.stream_rows import PartInfo, PartRow, StreamInfo
from outlast.testing.conformance.fences import LOSSES
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.stream_driver import (
    STREAM,
    found,
    positions,
    publish,
    text,
)


class StreamContract(Contract):
    def test_a_stream_names_the_server_that_answers(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(publish(row, "a"))
        assert found(driver, row).server == driver.store.server()

    # -- rule 1: the fence

    @pytest.mark.parametrize("lose", LOSSES)
    def test_a_stale_execution_cannot_publish(self, driver: StoreDriver, lose: Any) -> None:
        row = driver.held()
        assert driver.one(publish(row, "ab")) is None
        lose(driver, row)
        assert driver.one(publish(row, "c", 2)) == Refused(FENCE)
        taken = driver.take(worker="w2")
        assert driver.one(publish(row, "c", 2)) == Refused(FENCE)
        assert driver.one(publish(row, "z", writer="new")) == Refused(FENCE)
        assert text(driver, taken) == "ab"
        assert driver.store.parts(row.pk) == [PartInfo(STREAM, "step#1", 2)]

    def test_an_ended_run_accepts_nothing_and_keeps_what_it_published(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab", last=True))
        driver.settle(row)
        assert driver.one(publish(row, "c", 2)) == Refused(FENCE)
        assert text(driver, row) == "ab"

    def test_a_run_that_does_not_exist_is_refused(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.one(publish(row, "a")._replace(run=row.pk + 1)) == Refused(FENCE)
        assert driver.store.streams(row.pk + 1) == []

    def test_a_refused_command_does_not_affect_the_others_in_its_batch(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        stale = publish(row, "x")._replace(fence=row.fence - 1)
        outcomes = driver.commit(
            publish(row, "a"), stale, publish(row, "x", 7), publish(row, "b", 1)
        )
        assert outcomes == [None, Refused(FENCE), Refused(OFFSET, "1"), None]
        assert text(driver, row) == "ab"

    # -- rules 2 and 3: the offset

    def test_a_part_begins_at_0(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.one(publish(row, "b", 1)) == Refused(OFFSET, "0")
        assert driver.one(publish(row, "b", 1, resumes=True)) == Refused(OFFSET, "0")
        assert driver.store.stream(row.pk, STREAM) is None
        assert driver.store.streams(row.pk) == []
        assert driver.store.parts(row.pk) == []

    def test_values_follow_those_before_them(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"), publish(row, "c", 2))
        driver.commit(publish(row, "", 3))
        assert driver.one(publish(row, "d", 3)) is None
        assert positions(found(driver, row)) == dict(enumerate("abcd"))

    def test_a_repeat_of_any_earlier_command_changes_nothing(self, driver: StoreDriver) -> None:
        """Cover a batch that is committed again because its outcome was unknown."""
        row = driver.held()
        batch = [publish(row, "ab"), publish(row, "c", 2), publish(row, "", 3, last=True)]
        driver.commit(*batch)
        before = found(driver, row)
        assert driver.commit(*batch) == [None] * 3
        assert driver.one(batch[1]) is None
        assert found(driver, row) == before
        driver.commit(publish(row, "d", 3))
        assert driver.commit(*batch, publish(row, "d", 3)) == [None] * 4
        assert text(driver, row) == "abcd"

    @pytest.mark.parametrize("after", [1, 3, 4])
    def test_values_that_would_overlap_or_leave_a_hole_are_refused(
        self, driver: StoreDriver, after: int
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        assert driver.one(publish(row, "xy", after)) == Refused(OFFSET, "2")
        assert driver.one(publish(row, "xy", after, resumes=True)) == Refused(OFFSET, "2")
        assert text(driver, row) == "ab"

    # -- rule 4: a stale attempt

    def test_an_attempt_that_another_one_replaced_changes_nothing(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab", attempt=1), publish(row, "xyz", attempt=2))
        before = found(driver, row)
        for after in (0, 2, 3):
            for resumes in (False, True):
                late = publish(row, "c", after, attempt=1, resumes=resumes, last=True)
                assert driver.one(late) is None
        assert found(driver, row) == before
        assert text(driver, row) == "xyz"

    def test_attempts_begin_again_under_another_fence(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab", attempt=5))
        driver.release(row)
        assert driver.one(publish(taken := driver.take(), "x", attempt=1)) is None
        assert text(driver, taken) == "x"

    # -- rule 5: the next attempt

    @pytest.mark.parametrize("other_fence", [False, True])
    def test_a_new_attempt_replaces_what_the_last_one_published(
        self, driver: StoreDriver, other_fence: bool
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        old = found(driver, row)
        if other_fence:
            driver.release(row)
            row = driver.take()
        command = publish(row, "xyz", attempt=2)
        assert driver.commit(command, command) == [None, None]
        new = found(driver, row)
        assert new.start > old.stop
        assert text(driver, row) == "xyz"
        assert driver.one(publish(row, "!", 3, attempt=2)) is None
        assert found(driver, row).start == new.start
        assert text(driver, row) == "xyz!"

    @pytest.mark.parametrize("other_fence", [False, True])
    def test_an_attempt_that_resumes_continues(
        self, driver: StoreDriver, other_fence: bool
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        if other_fence:
            driver.release(row)
            row = driver.take()
        command = publish(row, "cd", 2, attempt=2, resumes=True)
        assert driver.commit(command, command) == [None, None]
        assert positions(found(driver, row)) == dict(enumerate("abcd"))
        assert driver.one(publish(row, "e", 4, attempt=2, resumes=True)) is None
        assert text(driver, row) == "abcde"

    def test_an_attempt_does_not_continue_by_accident(self, driver: StoreDriver) -> None:
        """Cover an attempt whose first flush failed and whose second fits the old length."""
        row = driver.held()
        driver.commit(publish(row, "ab"))
        assert driver.one(publish(row, "z", 2, attempt=2)) == Refused(OFFSET, "2")
        assert text(driver, row) == "ab"
        assert driver.one(publish(row, "c", 2)) is None, "the part is still the first attempt's"

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_an_attempt_that_resumes_from_another_length_is_refused(
        self, driver: StoreDriver, after: int
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        refused = driver.one(publish(row, "z", after, attempt=2, resumes=True))
        assert refused == Refused(OFFSET, "2")
        assert text(driver, row) == "ab"

    def test_an_attempt_that_publishes_nothing_replaces_what_the_last_one_published(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "ab"))
        driver.commit(command := publish(row, attempt=2, last=True), command)
        stream = found(driver, row)
        assert stream.start == stream.stop == 3
        assert driver.store.part(row.pk, STREAM, "step#1") == PartRow(0, "[]")
        driver.commit(publish(row, "c", attempt=3))
        assert positions(found(driver, row)) == {3: "c"}, "nothing was there to replace"

    def test_an_empty_part_is_taken_over_without_a_new_generation(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row))
        assert driver.store.streams(row.pk) == [StreamInfo(STREAM, 0, 0)]
        driver.commit(publish(row, "ab", attempt=2))
        assert positions(found(driver, row)) == dict(enumerate("ab"))

    # -- parts of several writers

    def test_replacing_a_part_keeps_the_others_in_their_order(self, driver: StoreDriver) -> None:
        row = driver.held()
        names = ("one", "two", "three")
        one, two, three = (dict[str, Any](writer=name) for name in names)
        driver.commit(
            publish(row, "a", **one),
            publish(row, "12", **two),
            publish(row, "b", 1, **one),
            publish(row, "X", **three),
            publish(row, "3", 2, **two),
        )
        assert text(driver, row) == "a12bX3"
        driver.commit(publish(row, "!?", attempt=2, **one))
        assert positions(found(driver, row)) == dict(enumerate("12X3!?", 7))
        # The others go on where they were, whatever their positions are.
        driver.commit(publish(row, "4", 3, **two), publish(row, "Y", 1, **three, last=True))
        driver.commit(publish(row, "*", 2, attempt=2, **one, last=True))
        assert text(driver, row) == "12X3!?4Y*"
        assert driver.store.part(row.pk, STREAM, "two") == PartRow(4, '["1","2","3","4"]')
        assert driver.store.part(row.pk, STREAM, "three") == PartRow(2, '["X","Y"]')
        assert driver.store.part(row.pk, STREAM, "one") == PartRow(3, '["!","?","*"]')

    def test_streams_and_runs_are_apart(self, driver: StoreDriver) -> None:
        row, other = driver.held("r"), driver.held("r2")
        driver.commit(
            publish(row, "ab"),
            publish(row, "cd", stream="b"),
            publish(row, "x", stream="answer:step#1", writer=""),
            publish(other, "ef"),
            publish(row, "xy", attempt=2),
        )
        assert text(driver, row) == "xy"
        assert text(driver, other) == "ef"
        assert driver.store.streams(row.pk) == [
            StreamInfo("answer", 3, 5),
            StreamInfo("answer:step#1", 0, 1),
            StreamInfo("b", 0, 2),
        ]
        assert driver.store.parts(row.pk) == [
            PartInfo("answer", "step#1", 2),
            PartInfo("answer:step#1", "", 1),
            PartInfo("b", "step#1", 2),
        ]

    # -- rule 6: folding

    def test_the_last_publication_joins_the_rows_and_moves_nothing(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(*(publish(row, letter, n) for n, letter in enumerate("abcd")))
        before = found(driver, row)
        assert len(before.chunks) == 4
        driver.commit(publish(row, "e", 4, last=True))
        (chunk,) = found(driver, row).chunks
        assert (chunk.first, json.loads(chunk.values)) == (0, list("abcde"))
        driver.commit(publish(row, "f", 5), publish(row, "g", 6, last=True))
        assert positions(found(driver, row)) == dict(enumerate("abcdefg"))
        assert len(found(driver, row).chunks) == 1

    def test_rows_with_another_writers_between_them_are_not_joined(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.commit(publish(row, "0", writer="before"))
        driver.commit(publish(row, "a"), publish(row, "b", 1), publish(row, "1", writer="two"))
        driver.commit(publish(row, "c", 2), publish(row, "d", 3))
        driver.commit(publish(row, "2", 1, writer="two"))
        driver.commit(publish(row, "e", 4, last=True))
        chunks = [(chunk.first, json.loads(chunk.values)) for chunk in found(driver, row).chunks]
        assert chunks == [
            (0, ["0"]),
            (1, ["a", "b"]),
            (3, ["1"]),
            (4, ["c", "d"]),
            (6, ["2"]),
            (7, ["e"]),
        ]

    def test_joined_rows_stay_bounded(self, driver: StoreDriver) -> None:
        row = driver.held()
        value = json.dumps("x" * (FOLD_MAX // 3))
        driver.commit(*(publish(row, "", n)._replace(values=(value,)) for n in range(7)))
        driver.commit(publish(row, "", 7, last=True))
        stream = found(driver, row)
        assert [chunk.first for chunk in stream.chunks] == [0, 2, 4, 6]
        assert stream.stop == 7
