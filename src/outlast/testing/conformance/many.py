"""SubmitMany: several runs at once, all of them or none."""

from __future__ import annotations

import pytest

from outlast.store.protocol import BadValue
from outlast.store.verbs import CONFLICT, DEPTH, Cancel, Limit, Refused, Submit, SubmitMany
from outlast.testing.conformance.harness import EVERYTHING, Desk, Promises


def many(*ids: str, by: str = "somebody", queue: str = "default", depth_max: int | None = None) -> SubmitMany:
    return SubmitMany(
        tuple(Submit(id, "flow", f'["{id}"]', by, id, queue=queue, depth_max=depth_max) for id in ids)
    )


class ManyPromises(Promises):
    def test_several_runs_are_queued_in_their_order(self, desk: Desk) -> None:
        outcomes = desk.one(many("c", "a", "b"))
        assert [outcome.new for outcome in outcomes] == [True] * 3
        assert [row.id for row in reversed(desk.store.runs(EVERYTHING))] == ["c", "a", "b"]
        assert (desk.row("a").args, desk.row("a").seed, desk.row("a").status) == ('["a"]', "a", "queued")
        assert desk.store.depth("default") == 3
        assert [row.id for row in desk.claim(limit=5)] == ["c", "a", "b"]

    def test_none_is_no_work(self, desk: Desk) -> None:
        assert desk.one(SubmitMany(())) == []

    def test_each_keeps_what_it_was_given(self, desk: Desk) -> None:
        verb = SubmitMany(
            (
                Submit("a", "one", "1", "t", "s", queue="x", priority=3, timeout=9.0, attempts_max=7),
                Submit("b", "two", "2", "t", "s", queue="y", delay=5.0, parent="a", interruptions_max=8),
            )
        )
        desk.one(verb)
        a, b = desk.row("a"), desk.row("b")
        assert (a.workflow, a.queue, a.priority, a.timeout, a.attempts_max) == ("one", "x", 3, 9.0, 7)
        assert (b.workflow, b.queue, b.due, b.parent, b.interruptions_max) == (
            "two",
            "y",
            desk.clock.now + 5.0,
            "a",
            8,
        )
        assert [row.id for row in desk.claim(limit=5)] == ["a"]

    def test_a_repeat_finds_its_runs_there(self, desk: Desk) -> None:
        verb = many("a", "b", "c")
        desk.one(verb)
        before = desk.store.runs(EVERYTHING)
        desk.clock.forward(1)
        assert [outcome.new for outcome in desk.one(verb)] == [True] * 3
        assert [outcome.new for batch in desk.commit(verb, verb) for outcome in batch] == [True] * 6
        assert desk.store.runs(EVERYTHING) == before
        desk.take("b")
        assert [outcome.new for outcome in desk.one(verb)] == [True, False, True]

    def test_those_that_are_there_are_joined_and_the_others_are_new(self, desk: Desk) -> None:
        desk.one(many("b"))
        outcomes = desk.one(many("a", "b", "c", by="another"))
        assert [outcome.new for outcome in outcomes] == [True, False, True]
        assert outcomes[1].row == desk.row("b")

    def test_the_same_run_twice_in_it_is_one_run(self, desk: Desk) -> None:
        assert [outcome.new for outcome in desk.one(many("a", "b", "a"))] == [True] * 3
        assert desk.store.depth("default") == 2

    @pytest.mark.parametrize(
        "other", [{"workflow": "other"}, {"args": "[]"}, {"workflow": "other", "args": "[]"}]
    )
    def test_an_id_that_other_work_has_refuses_the_whole(self, desk: Desk, other: dict[str, str]) -> None:
        desk.submit("b", **({"args": '["b"]'} | other))
        before = desk.store.runs(EVERYTHING)
        assert desk.one(many("a", "b", "c")) == Refused(CONFLICT, "b")
        assert desk.store.runs(EVERYTHING) == before

    def test_an_id_that_ended_work_has_refuses_it_too(self, desk: Desk) -> None:
        desk.ended("b", args="[]")
        assert desk.one(many("a", "b")) == Refused(CONFLICT, "b")
        assert desk.store.run("a") is None

    def test_one_id_for_two_works_refuses_the_whole(self, desk: Desk) -> None:
        runs = (*many("a", "b").runs, Submit("a", "flow", "[]", "t", "s"))
        assert desk.one(SubmitMany(runs)) == Refused(CONFLICT, "a")
        assert desk.store.runs(EVERYTHING) == []

    def test_a_refused_one_does_not_disturb_its_neighbours(self, desk: Desk) -> None:
        desk.submit("b", args="[]")
        first, refused, last = desk.commit(many("a"), many("c", "b"), many("d"))
        assert [outcome.new for outcome in (*first, *last)] == [True, True]
        assert refused == Refused(CONFLICT, "b")
        assert {row.id for row in desk.store.runs(EVERYTHING)} == {"a", "b", "d"}

    def test_what_does_not_all_fit_is_refused_as_a_whole(self, desk: Desk) -> None:
        desk.one(many("a", "b"))
        assert desk.one(many("c", "d", depth_max=3)) == Refused(DEPTH, "2/3/2")
        assert desk.store.depth("default") == 2
        assert len(desk.one(many("c", depth_max=3))) == 1
        assert desk.one(many("d", depth_max=3)) == Refused(DEPTH, "3/3/1")

    def test_only_the_new_ones_take_room(self, desk: Desk) -> None:
        desk.one(many("a", "b"))
        outcomes = desk.one(many("a", "c", "b", "c", depth_max=3))
        assert [outcome.new for outcome in outcomes] == [True] * 4
        assert desk.store.depth("default") == 3

    def test_the_queues_own_limit_goes_before_the_verbs(self, desk: Desk) -> None:
        desk.one(Limit("default", 2, None))
        assert desk.one(many("a", "b", "c", depth_max=100)) == Refused(DEPTH, "0/2/3")
        assert len(desk.one(many("a", "b", depth_max=1))) == 2

    def test_one_full_queue_of_several_refuses_the_whole(self, desk: Desk) -> None:
        desk.one(Limit("small", 1, None))
        runs = (*many("a", "b").runs, *many("c", "d", queue="small").runs)
        assert desk.one(SubmitMany(runs)) == Refused(DEPTH, "0/1/2")
        assert desk.store.runs(EVERYTHING) == []

    def test_what_was_queued_earlier_in_the_batch_takes_room(self, desk: Desk) -> None:
        outcomes = desk.commit(
            many("a", "b"), many("c", "d", depth_max=3), Cancel("a", "no"), many("c", "d", depth_max=3)
        )
        assert outcomes[1] == Refused(DEPTH, "2/3/2")
        assert [outcome.new for outcome in outcomes[3]] == [True, True]

    def test_one_bad_value_and_nothing_is_written(self, desk: Desk) -> None:
        runs = (*many("a", "b").runs, Submit("c", "flow", "\ud800", "t", "s"))
        with pytest.raises(BadValue):
            desk.one(SubmitMany(runs))
        assert desk.store.runs(EVERYTHING) == []
        assert desk.store.depth("default") == 0

    def test_a_thousand_runs_are_one_verb(self, desk: Desk) -> None:
        ids = [f"r{number}" for number in range(1000)]
        assert len(desk.one(many(*ids))) == 1000
        assert desk.store.depth("default") == 1000
        assert [row.id for row in desk.claim(limit=1000)] == ids
