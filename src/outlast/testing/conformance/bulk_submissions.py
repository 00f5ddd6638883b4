"""Check SubmitMany: it submits several runs at once, all or none."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    CONFLICT,
    DEPTH,
    Cancel,
    Refused,
    SetQueueLimits,
    Submit,
    SubmitMany,
)
from outlast.store.protocol import BadValue
from outlast.testing.conformance.harness import EVERYTHING, Contract, StoreDriver


def many(
    *ids: str, by: str = "submitter", queue: str = "default", depth_max: int | None = None
) -> SubmitMany:
    return SubmitMany(
        tuple(
            Submit(id, "flow", f'["{id}"]', by, id, queue=queue, depth_max=depth_max) for id in ids
        )
    )


class ManyContract(Contract):
    def test_several_runs_are_queued_in_their_order(self, driver: StoreDriver) -> None:
        outcomes = driver.one(many("c", "a", "b"))
        assert [outcome.new for outcome in outcomes] == [True] * 3
        assert [row.id for row in reversed(driver.store.runs(EVERYTHING))] == ["c", "a", "b"]
        assert (driver.row("a").args, driver.row("a").seed, driver.row("a").status) == (
            '["a"]',
            "a",
            "queued",
        )
        assert driver.store.depth("default") == 3
        assert [row.id for row in driver.claim(limit=5)] == ["c", "a", "b"]

    def test_none_is_no_work(self, driver: StoreDriver) -> None:
        assert driver.one(SubmitMany(())) == []

    def test_each_keeps_what_it_was_given(self, driver: StoreDriver) -> None:
        command = SubmitMany(
            (
                Submit(
                    "a", "one", "1", "t", "s", queue="x", priority=3, timeout=9.0, attempts_max=7
                ),
                Submit(
                    "b", "two", "2", "t", "s", queue="y", delay=5.0, parent="a", interruptions_max=8
                ),
            )
        )
        driver.one(command)
        a, b = driver.row("a"), driver.row("b")
        assert (a.workflow, a.queue, a.priority, a.timeout, a.attempts_max) == (
            "one",
            "x",
            3,
            9.0,
            7,
        )
        assert (b.workflow, b.queue, b.due, b.parent, b.interruptions_max) == (
            "two",
            "y",
            driver.clock.now + 5.0,
            "a",
            8,
        )
        assert [row.id for row in driver.claim(limit=5)] == ["a"]

    def test_a_repeat_finds_its_runs_there(self, driver: StoreDriver) -> None:
        command = many("a", "b", "c")
        driver.one(command)
        before = driver.store.runs(EVERYTHING)
        driver.clock.forward(1)
        assert [outcome.new for outcome in driver.one(command)] == [True] * 3
        assert [outcome.new for batch in driver.commit(command, command) for outcome in batch] == [
            True
        ] * 6
        assert driver.store.runs(EVERYTHING) == before
        driver.take("b")
        assert [outcome.new for outcome in driver.one(command)] == [True, False, True]

    def test_those_that_are_there_are_joined_and_the_others_are_new(
        self, driver: StoreDriver
    ) -> None:
        driver.one(many("b"))
        outcomes = driver.one(many("a", "b", "c", by="another"))
        assert [outcome.new for outcome in outcomes] == [True, False, True]
        assert outcomes[1].row == driver.row("b")

    def test_the_same_run_twice_in_it_is_one_run(self, driver: StoreDriver) -> None:
        assert [outcome.new for outcome in driver.one(many("a", "b", "a"))] == [True] * 3
        assert driver.store.depth("default") == 2

    @pytest.mark.parametrize(
        "other", [{"workflow": "other"}, {"args": "[]"}, {"workflow": "other", "args": "[]"}]
    )
    def test_an_id_that_other_work_has_refuses_the_whole(
        self, driver: StoreDriver, other: dict[str, str]
    ) -> None:
        driver.submit("b", **({"args": '["b"]'} | other))
        before = driver.store.runs(EVERYTHING)
        assert driver.one(many("a", "b", "c")) == Refused(CONFLICT, "b")
        assert driver.store.runs(EVERYTHING) == before

    def test_an_id_that_ended_work_has_refuses_it_too(self, driver: StoreDriver) -> None:
        driver.ended("b", args="[]")
        assert driver.one(many("a", "b")) == Refused(CONFLICT, "b")
        assert driver.store.run("a") is None

    def test_one_id_for_two_works_refuses_the_whole(self, driver: StoreDriver) -> None:
        runs = (*many("a", "b").runs, Submit("a", "flow", "[]", "t", "s"))
        assert driver.one(SubmitMany(runs)) == Refused(CONFLICT, "a")
        assert driver.store.runs(EVERYTHING) == []

    def test_a_refused_one_does_not_disturb_its_neighbours(self, driver: StoreDriver) -> None:
        driver.submit("b", args="[]")
        first, refused, last = driver.commit(many("a"), many("c", "b"), many("d"))
        assert [outcome.new for outcome in (*first, *last)] == [True, True]
        assert refused == Refused(CONFLICT, "b")
        assert {row.id for row in driver.store.runs(EVERYTHING)} == {"a", "b", "d"}

    def test_what_does_not_all_fit_is_refused_as_a_whole(self, driver: StoreDriver) -> None:
        driver.one(many("a", "b"))
        assert driver.one(many("c", "d", depth_max=3)) == Refused(DEPTH, "2/3/2")
        assert driver.store.depth("default") == 2
        assert len(driver.one(many("c", depth_max=3))) == 1
        assert driver.one(many("d", depth_max=3)) == Refused(DEPTH, "3/3/1")

    def test_only_the_new_ones_take_room(self, driver: StoreDriver) -> None:
        driver.one(many("a", "b"))
        outcomes = driver.one(many("a", "c", "b", "c", depth_max=3))
        assert [outcome.new for outcome in outcomes] == [True] * 4
        assert driver.store.depth("default") == 3

    def test_the_queues_own_limit_overrides_that_of_the_command(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", 2, None))
        assert driver.one(many("a", "b", "c", depth_max=100)) == Refused(DEPTH, "0/2/3")
        assert len(driver.one(many("a", "b", depth_max=1))) == 2

    def test_one_full_queue_of_several_refuses_the_whole(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("small", 1, None))
        runs = (*many("a", "b").runs, *many("c", "d", queue="small").runs)
        assert driver.one(SubmitMany(runs)) == Refused(DEPTH, "0/1/2")
        assert driver.store.runs(EVERYTHING) == []

    def test_what_was_queued_earlier_in_the_batch_takes_room(self, driver: StoreDriver) -> None:
        outcomes = driver.commit(
            many("a", "b"),
            many("c", "d", depth_max=3),
            Cancel("a", "no"),
            many("c", "d", depth_max=3),
        )
        assert outcomes[1] == Refused(DEPTH, "2/3/2")
        assert [outcome.new for outcome in outcomes[3]] == [True, True]

    def test_one_bad_value_and_nothing_is_written(self, driver: StoreDriver) -> None:
        runs = (*many("a", "b").runs, Submit("c", "flow", "\ud800", "t", "s"))
        with pytest.raises(BadValue):
            driver.one(SubmitMany(runs))
        assert driver.store.runs(EVERYTHING) == []
        assert driver.store.depth("default") == 0

    def test_a_thousand_runs_are_one_command(self, driver: StoreDriver) -> None:
        ids = [f"r{number}" for number in range(1000)]
        assert len(driver.one(many(*ids))) == 1000
        assert driver.store.depth("default") == 1000
        assert [row.id for row in driver.claim(limit=1000)] == ids
