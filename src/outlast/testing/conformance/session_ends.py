"""How sessions end: they expire, unless they are touched; Forget, and Prune."""

from __future__ import annotations

import json

import pytest

from outlast.store.rows import SessionQuery, SessionRow
from outlast.store.verbs import (
    CHECKPOINT,
    SESSION,
    TOKENS_MAX,
    VERSION,
    Append,
    Forget,
    Keep,
    Prune,
    Refused,
    Touch,
)
from outlast.testing.conformance.harness import Desk, Promises
from outlast.testing.conformance.session_desk import ids, kept, noted


class SessionEndPromises(Promises):
    # -- expiry

    def test_a_session_expires(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        desk.clock.forward(9.9)
        assert kept(desk).expires == desk.clock.now + 10.0 - 9.9
        assert desk.store.items("s", "l") == ["1"]
        desk.clock.forward(0.2)
        assert desk.store.session("s") is None
        assert desk.store.items("s", "l") == []
        assert desk.store.sessions(SessionQuery()) == []

    def test_a_change_moves_the_expiry_or_takes_it_away(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(9)
        desk.one(Keep("s", "t2", {}, ttl=10.0))
        desk.clock.forward(9)
        assert desk.store.session("s") is not None
        desk.one(Keep("s", "t3", {}))
        desk.clock.forward(1e6)
        assert desk.store.session("s") is not None

    @pytest.mark.parametrize(
        ("had", "more", "left"),
        [(None, 10.0, None), (100.0, 10.0, 100.0), (10.0, 100.0, 100.0), (10.0, None, None)],
    )
    def test_a_change_that_extends_shortens_nothing(
        self, desk: Desk, had: float | None, more: float | None, left: float | None
    ) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=had))
        assert desk.one(Keep("s", "t2", {"b": "2"}, ttl=more, extends=True)) == 2
        row = desk.store.session("s")
        assert row is not None
        assert row.expires == (None if left is None else desk.clock.now + left)
        desk.one(Keep("s", "t3", {}, ttl=5.0))
        row = desk.store.session("s")
        assert row is not None
        assert row.expires == desk.clock.now + 5.0

    def test_a_session_that_is_made_anew_by_a_change_that_extends_has_its_expiry_from_that(
        self, desk: Desk
    ) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(11)
        desk.one(Keep("s", "t2", {"a": "1"}, ttl=20.0, extends=True))
        desk.one(Forget("gone", "t0"))
        desk.one(Keep("gone", "t2", {"a": "1"}, ttl=20.0, extends=True))
        for id in ("s", "gone"):
            row = desk.store.session(id)
            assert row is not None
            assert row.expires == desk.clock.now + 20.0

    def test_nothing_of_an_expired_session_comes_back(self, desk: Desk) -> None:
        desk.commit(
            Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",)), "m": Append(("2",))}),
            Keep("s", "t2", {"b": "2"}, ttl=10.0),
        )
        desk.clock.forward(11)
        assert desk.one(Keep("s", "t3", {"c": "3"}, version=2)) == Refused(VERSION, "0")
        assert desk.one(Keep("s", "t4", {"c": "3"}, version=0, appends={"m": Append(("3",))})) == 1
        assert desk.store.session("s") == SessionRow("s", 1, desk.clock.now, None, {"c": "3"}, {"m": 1})
        assert (desk.store.items("s", "l"), desk.store.items("s", "m")) == ([], ["3"])

    def test_a_session_that_is_there_again_outlives_the_expiry_of_the_one_before(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(11)
        desk.one(Keep("s", "t2", {"b": "2"}))
        desk.clock.forward(1e6)
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 0
        assert kept(desk).fields == {"b": "2"}

    def test_a_touch_moves_the_expiry_and_changes_nothing_else(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        before = kept(desk)
        desk.clock.forward(9)
        assert desk.one(Touch("s", 10.0)) is None
        assert kept(desk) == before._replace(expires=desk.clock.now + 10.0)
        desk.clock.forward(9)
        assert desk.store.items("s", "l") == ["1"]
        desk.clock.forward(2)
        assert desk.store.session("s") is None

    def test_a_touch_never_shortens_the_time_and_never_is_the_longest(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        first = kept(desk)
        assert desk.commit(Touch("s", 0.5), Touch("s", 9.9)) == [None, None]
        assert kept(desk) == first
        assert desk.commit(Touch("s", 10.5), Touch("s", 10.2)) == [None, None]
        assert kept(desk).expires == desk.clock.now + 10.5
        assert desk.commit(Touch("s", None), Touch("s", None), Touch("s", 10.0)) == [None, None, None]
        desk.clock.forward(1e6)
        assert kept(desk) == first._replace(expires=None)
        assert desk.store.items("s", "l") == ["1"]
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 0

    def test_a_touch_brings_nothing_back_and_makes_nothing(self, desk: Desk) -> None:
        assert desk.one(Touch("absent", 10.0)) is None
        assert desk.store.session("absent") is None
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(11)
        assert desk.commit(Touch("s", 10.0), Touch("s", None)) == [None, None]
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t2", {"b": "1"}, version=0)) == 1

    def test_a_touch_is_no_change_so_the_token_of_the_last_one_still_counts(self, desk: Desk) -> None:
        verb = Keep("s", "t1", {"a": "1"}, ttl=10.0)
        assert desk.commit(verb, Touch("s", 20.0), verb) == [1, None, 1]
        assert kept(desk).expires == desk.clock.now + 20.0

    # -- the end of a session

    def test_a_forgotten_session_is_gone(self, desk: Desk) -> None:
        lists = {"l": Append(("1",))}
        desk.commit(
            Keep("s", "t1", {"a": "1"}, appends=lists), Keep("other", "t1", {"a": "1"}, appends=lists)
        )
        assert desk.commit(Forget("s", "f1"), Forget("s", "f2")) == [None, None]
        assert desk.store.session("s") is None
        assert desk.store.items("s", "l") == []
        assert ids(desk) == ["other"]
        desk.clock.forward(-25)  # whatever the clock says
        assert desk.store.session("s") is None
        assert ids(desk) == ["other"]
        assert desk.one(Keep("s", "t0", {}, version=1)) == Refused(VERSION, "0")
        assert desk.one(Keep("s", "t2", {"b": "2"})) == 1
        assert kept(desk) == SessionRow("s", 1, desk.clock.now, None, {"b": "2"})
        assert kept(desk, "other").fields == {"a": "1"}
        assert desk.store.items("other", "l") == ["1"]

    def test_a_repeat_of_what_came_before_it_was_forgotten_brings_nothing_back(self, desk: Desk) -> None:
        first, second = Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {}, appends={"l": Append(("1",))})
        assert desk.commit(first, second, Forget("s", "f"), first, second) == [1, 2, None, 1, 2]
        assert desk.store.session("s") is None
        desk.clock.forward(1)
        assert desk.commit(second, first) == [2, 1]
        assert desk.store.session("s") is None

    @pytest.mark.parametrize("was_there", [True, False])
    def test_a_repeat_of_forgetting_takes_nothing_from_who_made_it_anew(
        self, desk: Desk, was_there: bool
    ) -> None:
        before = Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))})
        if was_there:
            desk.one(before)
        forgetting, anew = Forget("s", "f"), Keep("s", "t2", {"b": "2"}, version=0)
        assert desk.commit(forgetting, anew, forgetting) == [None, 1, None]
        desk.clock.forward(1)
        assert desk.one(forgetting) is None
        assert [desk.one(verb) for verb in (before, anew) if was_there] == [1, 1][: 2 * was_there]
        assert (kept(desk).version, kept(desk).fields, kept(desk).lists) == (1, {"b": "2"}, {})
        assert desk.commit(Forget("s", "f2"), forgetting, anew) == [None, None, 1]
        assert desk.store.session("s") is None

    def test_of_the_tokens_that_outlive_a_session_the_newest_stay(self, desk: Desk) -> None:
        half = TOKENS_MAX // 2
        verbs = [Keep("s", f"t{n}", {"n": str(n)}) for n in range(half)]
        desk.commit(*verbs, Forget("s", "f"))
        later = [Keep("s", f"u{n}", {"n": str(n)}) for n in range(half)]
        assert desk.commit(*later) == [*range(1, half + 1)]
        # half, one and half again are one too many: the first is not known any more
        assert desk.commit(*verbs[1:], Forget("s", "f"), *later) == [
            *range(2, half + 1),
            None,
            *range(1, half + 1),
        ]
        assert desk.one(verbs[0]) == half + 1

    def test_the_tokens_of_an_expired_session_are_known_until_it_is_pruned(self, desk: Desk) -> None:
        verb = Keep("s", "t1", {"a": "1"}, ttl=10.0)
        desk.commit(verb, Keep("s", "t2", {"a": "2"}, ttl=10.0))
        desk.clock.forward(11)
        assert desk.one(verb) == 1
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t3", {"b": "3"}, ttl=10.0)) == 1
        assert desk.one(verb) == 1
        assert kept(desk).fields == {"b": "3"}
        desk.clock.forward(11)
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 1
        assert desk.one(verb) == 1
        assert kept(desk).fields == {"a": "1"}

    def test_what_is_left_of_a_forgotten_session_is_pruned_when_its_time_has_come(self, desk: Desk) -> None:
        forgotten, forgetting = desk.clock.now, Forget("s", "f")
        desk.commit(Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}), forgetting)
        desk.clock.forward(5)
        assert desk.one(Prune(forgotten, sessions=True)) == 0  # before, not at
        assert desk.one(Prune(forgotten + 1, sessions=True)) == 1
        assert desk.one(Prune(forgotten + 1, sessions=True)) == 0
        assert desk.one(Keep("s", "t2", {"a": "2"})) == 1
        assert desk.one(forgetting) is None
        assert desk.store.session("s") is None

    def test_a_change_that_only_deletes_makes_no_session(self, desk: Desk) -> None:
        deleting = Keep("s", "d1", {"a": None, "l": None})
        assert desk.commit(deleting, deleting, Keep("s", "d2", {"a": None}, version=0)) == [0, 0, 0]
        assert (desk.store.session("s"), ids(desk)) == (None, [])
        assert desk.one(Keep("s", "d3", {"a": None}, version=1)) == Refused(VERSION, "0")
        desk.commit(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        assert desk.one(deleting) == 0  # a repeat, that takes nothing from who made it since
        assert (kept(desk).fields, kept(desk).lists) == ({"a": "1"}, {"l": 1})
        desk.clock.forward(11)
        assert desk.one(Keep("s", "d4", {"a": None})) == 0
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t2", {"a": None, "b": "2"})) == 1

    def test_a_recorded_change_that_only_deletes_what_is_not_there_says_so(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "d1", {"a": None}, record=noted(row, 1))
        assert desk.one(verb) == 0
        (found,) = desk.store.journal(row.pk)
        assert json.loads(found.value or "") == {"version": 0}
        desk.one(Keep("s", "t1", {"a": "1"}))
        assert desk.one(verb) == 0
        assert kept(desk).fields == {"a": "1"}

    def test_expired_sessions_of_every_space_are_pruned_the_oldest_first(self, desk: Desk) -> None:
        start = desk.clock.now
        for n, space in enumerate((SESSION, CHECKPOINT, SESSION), 1):
            desk.one(Keep(f"s{n}", "t", {"a": "1"}, ttl=10.0 * n, appends={"l": Append(("1",))}, space=space))
        desk.one(Keep("ever", "t", {"a": "1"}))
        desk.clock.forward(25)
        assert desk.one(Prune(start + 10.0, sessions=True)) == 0  # before, not at
        assert desk.one(Prune(start + 20.5, limit=1, sessions=True)) == 1
        assert desk.one(Prune(start + 20.5, sessions=True)) == 1
        assert desk.one(Prune(start + 20.5, sessions=True)) == 0
        assert kept(desk, "s3").fields == {"a": "1"}
        desk.clock.forward(-25)  # nothing is left of them, whatever the clock says
        assert [desk.store.session("s1"), desk.store.session("s2", CHECKPOINT)] == [None, None]
        assert desk.store.items("s1", "l") == []
        assert desk.one(Keep("s1", "t2", {}, version=0)) == 1
        assert kept(desk, "s1").lists == {}

    def test_what_has_not_expired_yet_is_not_pruned_whatever_the_time_given(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        assert desk.one(Prune(desk.clock.now + 1e9, sessions=True)) == 0
        assert kept(desk).fields == {"a": "1"}
        desk.clock.forward(10)  # this very moment it has expired
        assert desk.store.session("s") is None
        assert desk.one(Prune(desk.clock.now + 1e9, sessions=True)) == 1

    def test_a_session_that_was_touched_in_time_is_not_pruned(self, desk: Desk) -> None:
        desk.commit(Keep("s", "t1", {"a": "1"}, ttl=10.0), Keep("t", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(9)
        desk.commit(Touch("s", 10.0), Keep("t", "t2", {}))
        desk.clock.forward(5)
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 0

    def test_pruning_sessions_leaves_runs_and_pruning_runs_leaves_sessions(self, desk: Desk) -> None:
        desk.ended()
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(11)
        assert desk.commit(Prune(desk.clock.now, items=True), Prune(desk.clock.now)) == [0, 1]
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 1
        desk.ended("r2")
        desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, sessions=True)) == 0
        assert desk.row("r2").status == "done"
