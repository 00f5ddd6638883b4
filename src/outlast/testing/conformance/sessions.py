"""Keep, Touch, Forget, and what is read of sessions: fields and lists with a version and an expiry."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from outlast.store.protocol import BadValue
from outlast.store.rows import RunRow, SessionQuery, SessionRow
from outlast.store.verbs import (
    CHECKPOINT,
    FENCE,
    SESSION,
    TOKENS_MAX,
    VERSION,
    Append,
    Forget,
    Keep,
    Prune,
    Record,
    Refused,
    Release,
    Touch,
)
from outlast.testing.conformance.harness import Desk, Promises, entry


class SessionPromises(Promises):
    # -- fields

    def test_fields_that_are_kept_come_back_with_a_version(self, desk: Desk) -> None:
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t1", {"b": "1", "a": "2"})) == 1
        assert desk.store.session("s") == SessionRow("s", 1, desk.clock.now, None, {"a": "2", "b": "1"})

    def test_fields_come_in_the_order_of_their_names(self, desk: Desk) -> None:
        names = ["b", "a", "é", "Z", "\uffff", "🌊", "", "a b", "10", "9"]
        desk.one(
            Keep("s", "t1", dict.fromkeys(names, "1"), appends={f"l{name}": Append(("1",)) for name in names})
        )
        session = kept(desk)
        assert list(session.fields) == sorted(names)
        assert list(session.lists) == sorted(f"l{name}" for name in names)

    def test_other_fields_stay_and_none_deletes_one(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1", "b": "2"}))
        desk.clock.forward(1)
        assert desk.one(Keep("s", "t2", {"b": None, "c": "3", "absent": None})) == 2
        assert desk.store.session("s") == SessionRow("s", 2, desk.clock.now, None, {"a": "1", "c": "3"})

    def test_a_session_without_fields_is_there(self, desk: Desk) -> None:
        assert desk.commit(Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {"a": None})) == [1, 2]
        assert desk.store.session("s") == SessionRow("s", 2, desk.clock.now, None, {})
        assert desk.one(Keep("bare", "t1", {})) == 1
        assert desk.store.session("bare") == SessionRow("bare", 1, desk.clock.now, None, {})

    def test_an_empty_value_is_a_value(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": ""}, appends={"l": Append(("",))}))
        assert (kept(desk).fields, kept(desk).lists) == ({"a": ""}, {"l": 1})
        assert desk.store.items("s", "l") == [""]

    # -- versions

    def test_a_version_that_is_not_the_current_one_is_refused(self, desk: Desk) -> None:
        assert desk.one(Keep("s", "t0", {"a": "0"}, version=1)) == Refused(VERSION, "0")
        assert desk.one(Keep("s", "t1", {"a": "1"}, version=0)) == 1
        assert desk.one(Keep("s", "t2", {"a": "2"}, version=0)) == Refused(VERSION, "1")
        assert desk.one(Keep("s", "t3", {"a": "3"}, version=1)) == 2
        assert desk.one(Keep("s", "t4", {"a": "4"}, version=1)) == Refused(VERSION, "2")
        assert kept(desk).fields == {"a": "3"}

    def test_a_refused_change_changes_nothing_neither_a_list_nor_the_expiry(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1", "2"))}))
        before = desk.store.session("s")
        desk.clock.forward(1)
        refused = Keep("s", "t2", {"a": None, "l": "3"}, ttl=99.0, version=7, appends={"m": Append(("1",))})
        assert desk.one(refused) == Refused(VERSION, "1")
        assert desk.one(Keep("other", "t2", {"a": "1"}, version=7)) == Refused(VERSION, "0")
        assert desk.store.session("s") == before
        assert desk.store.items("s", "l") == ["1", "2"]
        assert desk.store.session("other") is None

    def test_of_two_changes_to_one_version_in_a_batch_one_is_refused(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}))
        assert desk.commit(
            Keep("s", "t2", {"a": "2"}, version=1), Keep("s", "t3", {"a": "3"}, version=1)
        ) == [
            2,
            Refused(VERSION, "2"),
        ]

    def test_a_repeat_is_known_after_others_changes_and_gives_the_version_it_made(self, desk: Desk) -> None:
        verbs = [
            Keep("s", f"t{n}", {"n": str(n)}, appends={"l": Append((str(n),))}) for n in range(TOKENS_MAX)
        ]
        assert desk.commit(*verbs) == [*range(1, TOKENS_MAX + 1)]
        before = desk.store.session("s")
        desk.clock.forward(1)
        assert desk.commit(*reversed(verbs)) == [*range(TOKENS_MAX, 0, -1)]
        assert desk.one(verbs[3]._replace(version=99)) == 4
        assert desk.store.session("s") == before
        assert desk.store.items("s", "l") == [str(n) for n in range(TOKENS_MAX)]

    def test_the_token_of_the_last_change_again_does_nothing(self, desk: Desk) -> None:
        verb = Keep("s", "t1", {"a": "1"}, version=0, appends={"l": Append(("1",))})
        assert desk.commit(verb, verb) == [1, 1]
        before = desk.store.session("s")
        desk.clock.forward(1)
        assert desk.one(verb._replace(fields={"a": "2"}, ttl=10.0)) == 1
        assert desk.store.session("s") == before
        assert desk.store.items("s", "l") == ["1"]

    # -- lists

    def test_what_is_appended_comes_back_oldest_first_and_from_the_end(self, desk: Desk) -> None:
        assert desk.one(Keep("s", "t1", {}, appends={"l": Append(("1", "2"))})) == 1
        assert desk.one(Keep("s", "t2", {}, appends={"l": Append(("3",)), "m": Append(("9",))})) == 2
        assert kept(desk) == SessionRow("s", 2, desk.clock.now, None, {}, {"l": 3, "m": 1})
        assert desk.store.items("s", "l") == ["1", "2", "3"]
        assert desk.store.items("s", "l", 2) == ["2", "3"]
        assert desk.store.items("s", "l", 1) == ["3"]
        assert desk.store.items("s", "l", 0) == []
        assert desk.store.items("s", "l", 99) == ["1", "2", "3"]
        assert desk.store.items("s", "m") == ["9"]

    def test_items_of_what_is_no_list_are_none(self, desk: Desk) -> None:
        assert desk.store.items("s", "l") == []
        desk.one(Keep("s", "t1", {"a": "1"}))
        assert desk.store.items("s", "a") == []
        assert desk.store.items("s", "absent", 5) == []

    def test_the_same_value_may_be_there_often(self, desk: Desk) -> None:
        desk.commit(*(Keep("s", f"t{n}", {}, appends={"l": Append(("1", "1"))}) for n in range(3)))
        assert desk.store.items("s", "l") == ["1"] * 6

    def test_only_the_newest_are_kept(self, desk: Desk) -> None:
        for n in range(1, 6):
            desk.one(Keep("s", f"t{n}", {}, appends={"l": Append((str(n),), keep=3)}))
        assert desk.store.items("s", "l") == ["3", "4", "5"]
        desk.one(Keep("s", "more", {}, appends={"l": Append(("6", "7"), keep=9)}))
        assert desk.store.items("s", "l") == ["3", "4", "5", "6", "7"]
        desk.one(Keep("s", "many", {}, appends={"l": Append(tuple("abcd"), keep=2)}))
        assert desk.store.items("s", "l") == ["c", "d"]
        assert kept(desk).lists == {"l": 2}
        desk.one(Keep("s", "all", {}, appends={"l": Append(("e",))}))
        assert desk.store.items("s", "l") == ["c", "d", "e"]
        assert desk.store.items("s", "l", 2) == ["d", "e"]

    def test_a_new_list_too_keeps_only_the_newest(self, desk: Desk) -> None:
        desk.one(
            Keep("s", "t", {}, appends={"l": Append(("1", "2", "3"), keep=1), "m": Append(("1",), keep=5)})
        )
        assert (desk.store.items("s", "l"), desk.store.items("s", "m")) == (["3"], ["1"])
        assert kept(desk).lists == {"l": 1, "m": 1}

    def test_a_field_that_is_set_is_no_list_any_more(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {}, appends={"f": Append(("1", "2")), "l": Append(("3",))}))
        desk.one(Keep("s", "t2", {"f": "value"}))
        assert (kept(desk).fields, kept(desk).lists) == ({"f": "value"}, {"l": 1})
        assert desk.store.items("s", "f") == []
        assert desk.store.items("s", "l") == ["3"]

    def test_a_field_that_is_appended_to_loses_its_value(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"f": "value", "g": "1"}))
        desk.one(Keep("s", "t2", {}, appends={"f": Append(("1",))}))
        assert (kept(desk).fields, kept(desk).lists) == ({"g": "1"}, {"f": 1})
        assert desk.store.items("s", "f") == ["1"]

    def test_a_list_that_was_a_value_and_is_a_list_again_has_only_its_new_items(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {}, appends={"f": Append(("1", "2", "3"), keep=2)}))
        desk.one(Keep("s", "t2", {"f": "value"}))
        desk.one(Keep("s", "t3", {}, appends={"f": Append(("4",))}))
        assert desk.store.items("s", "f") == ["4"]
        assert kept(desk).lists == {"f": 1}

    def test_none_deletes_a_list(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1", "2"))}))
        assert desk.one(Keep("s", "t2", {"l": None})) == 2
        assert (kept(desk).fields, kept(desk).lists) == ({"a": "1"}, {})
        assert desk.store.items("s", "l") == []
        desk.one(Keep("s", "t3", {}, appends={"l": Append(("3",))}))
        assert desk.store.items("s", "l") == ["3"]

    def test_fields_are_set_before_values_are_appended(self, desk: Desk) -> None:
        """So one change can put a new list in the place of an old one."""
        desk.one(Keep("s", "t1", {}, appends={"f": Append(("1", "2")), "g": Append(("1",))}))
        both = {"f": Append(("3",)), "g": Append(("4", "5"))}
        assert desk.one(Keep("s", "t2", {"f": None, "g": "value"}, appends=both)) == 2
        assert kept(desk) == SessionRow("s", 2, desk.clock.now, None, {}, {"f": 1, "g": 2})
        assert (desk.store.items("s", "f"), desk.store.items("s", "g")) == (["3"], ["4", "5"])

    def test_a_long_list_is_read_from_its_end(self, desk: Desk) -> None:
        values = tuple(str(n) for n in range(5_000))
        desk.one(Keep("s", "t1", {}, appends={"l": Append(values)}))
        desk.one(Keep("s", "t2", {}, appends={"l": Append(("last",), keep=4_000)}))
        assert desk.store.items("s", "l") == [*values[1_001:], "last"]
        assert desk.store.items("s", "l", 3) == ["4998", "4999", "last"]
        assert kept(desk).lists == {"l": 4_000}

    def test_an_item_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}))
        before = desk.store.session("s")
        for bad in (
            Keep("s", "t2", {"a": "2"}, appends={"l": Append(("2", "\ud800"))}),
            Keep("s", "t2", {"a": "2", "\ud800": "2"}),
            Keep("s", "t2", {"a": "2"}, appends={"\ud800": Append(("2",))}),
        ):
            with pytest.raises(BadValue):
                desk.commit(Keep("s", "t0", {"b": "2"}), bad)
        assert desk.store.session("s") == before
        assert desk.store.items("s", "l") == ["1"]

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

    # -- spaces

    def test_the_same_id_in_two_spaces_is_two_sessions(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}))
        desk.one(Keep("s", "t1", {"a": "2"}, ttl=10.0, appends={"l": Append(("2",))}, space=CHECKPOINT))
        assert desk.one(Keep("s", "t2", {"b": "3"}, version=1, space=CHECKPOINT)) == 2
        assert kept(desk) == SessionRow("s", 1, desk.clock.now, None, {"a": "1"}, {"l": 1})
        assert desk.store.session("s", CHECKPOINT) == SessionRow(
            "s", 2, desk.clock.now, None, {"a": "2", "b": "3"}, {"l": 1}
        )
        assert desk.store.items("s", "l") == ["1"]
        assert desk.store.items("s", "l", space=CHECKPOINT) == ["2"]
        desk.one(Touch("s", 10.0, space=CHECKPOINT))
        assert kept(desk).expires is None
        desk.one(Forget("s", "f", space=CHECKPOINT))
        assert desk.store.session("s", CHECKPOINT) is None
        assert desk.store.items("s", "l") == ["1"]

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (("a:b", "c"), ("a", "b:c")),
            (("a", "1:b"), ("a:1", "b")),
            (("s", "l"), ("s:l", "")),
            (("", "s"), ("s", "")),
        ],
    )
    def test_names_that_look_alike_when_they_are_joined_are_two(
        self, desk: Desk, left: tuple[str, str], right: tuple[str, str]
    ) -> None:
        for number, (session, field) in enumerate((left, right)):
            desk.one(Keep(session, "t", {f"{field}+": str(number)}, appends={field: Append((str(number),))}))
        for number, (session, field) in enumerate((left, right)):
            assert kept(desk, session).fields == {f"{field}+": str(number)}
            assert desk.store.items(session, field) == [str(number)]
        desk.one(Forget(left[0], "f"))
        assert desk.store.items(*right) == ["1"]

    # -- with a record

    def test_a_change_with_a_record_is_one_with_its_entry(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1, args="[1]"))
        assert desk.one(verb) == 1
        (found,) = desk.store.journal(row.pk)
        assert (found.seq, found.kind, found.key, found.at, found.args) == (
            1,
            "session",
            "flow/s#1",
            1.5,
            "[1]",
        )
        assert json.loads(found.value or "") == {"version": 1}
        assert kept(desk).fields == {"a": "1"}
        assert desk.store.last_seq(row.pk) == 1

    def test_a_repeat_of_a_recorded_change_changes_nothing_and_says_what_it_said(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"n": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1))
        assert desk.commit(verb, verb) == [1, 1]
        desk.one(Keep("s", "elsewhere", {"n": "9"}, appends={"l": Append(("2",))}))
        before, journal = kept(desk), desk.store.journal(row.pk)
        desk.clock.forward(1)
        assert desk.one(verb) == 1
        assert desk.one(Keep("s", "another", {"n": "1"}, record=noted(row, 1))) == 1
        assert kept(desk) == before
        assert desk.store.items("s", "l") == ["1", "2"]
        assert desk.store.journal(row.pk) == journal

    def test_a_repeat_is_known_after_the_fence_is_void_and_the_session_gone(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"n": "1"}, record=noted(row, 1))
        forgetting = Forget("s", "f", record=noted(row, 2))
        assert desk.commit(verb, forgetting) == [1, None]
        desk.one(Release(row.pk, row.fence, "drain"))
        assert desk.commit(verb, forgetting) == [1, None]
        assert desk.store.session("s") is None
        desk.one(Keep("s", "new", {"n": "2"}))
        assert desk.commit(verb, forgetting) == [1, None]
        assert kept(desk).fields == {"n": "2"}

    def test_a_version_that_is_refused_is_recorded_too(self, desk: Desk) -> None:
        row = desk.held()
        desk.commit(Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {"a": "2"}))
        verb = Keep("s", "t3", {"a": "3"}, version=1, record=noted(row, 1))
        assert desk.one(verb) == Refused(VERSION, "2")
        (found,) = desk.store.journal(row.pk)
        assert json.loads(found.value or "") == {"conflict": 2}
        assert kept(desk).fields == {"a": "2"}
        desk.one(Forget("s", "f"))
        desk.one(Keep("s", "t4", {}))
        assert desk.one(verb) == Refused(VERSION, "2")  # though now that version is the current one
        assert kept(desk).fields == {}
        assert desk.one(Keep("s", "t5", {"a": "5"}, version=1, record=noted(row, 2))) == 2

    def test_a_recorded_change_under_another_fence_is_refused_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        before = kept(desk)
        desk.release(row)
        after = desk.take()
        journal, seq = desk.store.journal(row.pk), desk.store.last_seq(row.pk) + 1
        change = Keep("s", "t2", {"a": "2"}, appends={"l": Append(("2",))}, record=noted(row, seq))
        for stale in (
            change,
            change._replace(version=7),
            Keep("s", "t1", {"a": "2"}, record=noted(row, seq)),
            Forget("s", "f", record=noted(row, seq)),
        ):
            assert desk.one(stale) == Refused(FENCE)
        for void in (-row.fence, -after.fence, 0):
            assert desk.one(change._replace(record=noted(row, seq)._replace(fence=void))) == Refused(FENCE)
        assert desk.one(change._replace(record=noted(row, seq)._replace(run=row.pk + 99))) == Refused(FENCE)
        assert kept(desk) == before
        assert desk.store.items("s", "l") == ["1"]
        assert desk.store.journal(row.pk) == journal
        assert desk.one(change._replace(record=noted(after, seq))) == 2

    def test_a_place_in_the_journal_that_is_taken_by_another_life_refuses_the_change(
        self, desk: Desk
    ) -> None:
        first = desk.held()
        desk.record(first, 1)
        desk.release(first)
        second = desk.take()
        assert desk.one(Keep("s", "t", {"a": "1"}, record=noted(second, 1))) == Refused(FENCE)
        assert desk.one(Forget("s", "f", record=noted(second, 1))) == Refused(FENCE)
        assert desk.store.session("s") is None

    def test_the_token_of_the_last_change_with_a_new_record_writes_only_the_entry(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.one(Keep("s", "t", {"a": "1"}, record=noted(row, 1))) == 1
        assert desk.one(Keep("s", "t", {"a": "2"}, record=noted(row, 2))) == 1
        assert kept(desk).fields == {"a": "1"}
        assert [json.loads(e.value or "") for e in desk.store.journal(row.pk)] == [{"version": 1}] * 2

    def test_forgetting_with_a_record_happens_once(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Keep("s", "t1", {"a": "1"}))
        verb = Forget("s", "f", record=noted(row, 1))
        assert desk.one(verb) is None
        (found,) = desk.store.journal(row.pk)
        assert (found.kind, json.loads(found.value or "")) == ("session", {})
        desk.one(Keep("s", "t2", {"b": "1"}))
        assert desk.one(verb) is None
        assert kept(desk).fields == {"b": "1"}
        assert desk.one(Forget("absent", "f", record=noted(row, 2))) is None
        assert desk.store.last_seq(row.pk) == 2
        assert (
            desk.one(verb._replace(record=noted(row, 3))) is None
        )  # its token is known: only the entry is new
        assert desk.store.last_seq(row.pk) == 3
        assert kept(desk).fields == {"b": "1"}

    def test_recorded_changes_stand_between_other_entries_of_a_batch(self, desk: Desk) -> None:
        row, other = desk.held(), desk.held("other")
        outcomes = desk.commit(
            entry(row, 1),
            Keep("s", "t1", {"a": "1"}, record=noted(row, 2)),
            entry(row, 3),
            Keep("s", "t2", {"a": "2"}, record=noted(other, 1)),
            Keep("s", "t3", {"a": "3"}, version=1, record=noted(row, 4)),
            Forget("s", "f", record=noted(row, 5)),
            entry(row, 6),
        )
        assert outcomes == [None, 1, None, 2, Refused(VERSION, "2"), None, None]
        assert [(e.seq, e.kind) for e in desk.store.journal(row.pk)] == [
            (1, "step"), (2, "session"), (3, "step"), (4, "session"), (5, "session"), (6, "step")
        ]  # fmt: skip
        assert desk.store.session("s") is None

    def test_a_run_that_changed_a_session_has_got_somewhere(self, desk: Desk) -> None:
        row = desk.held(attempts_max=2)
        desk.one(Keep("s", "t", {"a": "1"}, record=noted(row, 1)))
        assert desk.die(row).deaths_in_a_row == 0
        again = desk.die(desk.take(worker="w2"))
        assert (again.status, again.deaths_in_a_row) == ("queued", 1)

    # -- listing

    def test_sessions_are_listed_by_their_last_change_the_newest_first(self, desk: Desk) -> None:
        for id in ("a", "c", "b"):
            desk.one(Keep(id, "t1", {"f": id}, appends={"l": Append(("1", "2"))}))
            desk.clock.forward(1)
        desk.one(Keep("a", "t2", {"f": "again"}))
        desk.one(Touch("c", 100.0))
        listed = desk.store.sessions(SessionQuery())
        assert [session.id for session in listed] == ["a", "b", "c"]
        assert listed == [desk.store.session(id) for id in ("a", "b", "c")]

    def test_a_list_of_sessions_knows_its_space_and_not_what_has_expired(self, desk: Desk) -> None:
        desk.commit(
            Keep("a", "t", {}, ttl=10.0), Keep("b", "t", {}, ttl=20.0), Keep("c", "t", {}), Keep("d", "t", {}, space=CHECKPOINT)
        )  # fmt: skip
        desk.clock.forward(11)
        assert ids(desk) == ["c", "b"]
        assert ids(desk, space=CHECKPOINT) == ["d"]
        desk.one(Forget("c", "f"))
        assert ids(desk) == ["b"]
        desk.one(Keep("a", "t2", {}))
        assert ids(desk) == ["a", "b"]

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            ("", ["🌊2", "🌊1", "\\d", "é", "a_b", "aXb", "a%", "a", "Ab", "100%_y", "100%_x", "1000"]),
            ("a", ["a_b", "aXb", "a%", "a"]),
            ("a_", ["a_b"]),
            ("a%", ["a%"]),
            ("100%_", ["100%_y", "100%_x"]),
            ("%", []),
            ("_", []),
            ("A", ["Ab"]),
            ("é", ["é"]),
            ("e", []),
            ("🌊", ["🌊2", "🌊1"]),
            ("\\", ["\\d"]),
            ("a_b", ["a_b"]),
            ("a_bc", []),
            ("[a]", []),
            ("*", []),
            ("^", []),
        ],
    )
    def test_a_prefix_is_taken_literally(self, desk: Desk, prefix: str, found: list[str]) -> None:
        names = ("100%_x", "100%_y", "1000", "a", "a%", "a_b", "aXb", "Ab", "é", "🌊1", "🌊2", "\\d")
        desk.commit(*(Keep(id, "t", {}) for id in names))
        assert ids(desk, prefix=prefix) == sorted(found, reverse=True)

    def test_of_sessions_changed_at_the_same_time_the_greater_id_comes_first(self, desk: Desk) -> None:
        names = ["a", "B", "é", "z", "\uffff", "🌊", "10", "9", "a b", "a-b", "ab", "_", "~"]
        desk.commit(*(Keep(id, "t", {}) for id in names))
        assert ids(desk) == sorted(names, reverse=True)

    def test_sessions_are_listed_page_by_page_none_twice_and_none_left_out(self, desk: Desk) -> None:
        for n in range(23):
            desk.one(Keep(f"p{n:02}", "t", {"f": "1"}, ttl=1e6, appends={"l": Append(("1",))}))
            desk.one(Keep(f"q{n:02}", "t", {}))
            if n % 3 == 0:
                desk.clock.forward(0.123_456_7)
        whole = desk.store.sessions(SessionQuery(prefix="p", limit=1_000))
        assert len(whole) == 23
        pages: list[SessionRow] = []
        query = SessionQuery(prefix="p", limit=5)
        while page := desk.store.sessions(query):
            assert len(page) <= 5
            pages += page
            query = query._replace(before=(page[-1].updated, page[-1].id))
        assert pages == whole

    def test_a_page_has_its_whole_size_whatever_is_left_out(self, desk: Desk) -> None:
        for n in range(40):
            space = CHECKPOINT if n % 4 == 1 else SESSION
            desk.one(
                Keep(
                    f"{'x' if n % 4 == 2 else 'p'}{n}", "t", {}, ttl=1.0 if n % 4 == 3 else None, space=space
                )
            )
            desk.clock.forward(0.001)
        desk.clock.forward(2)
        assert ids(desk, prefix="p", limit=4) == ["p36", "p32", "p28", "p24"]

    # -- everything at once

    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_is_done_a_session_is_what_a_plain_dictionary_would_be(
        self, desk: Desk, seed: int
    ) -> None:
        chance, model = random.Random(seed), Model()  # noqa: S311 - a story, no secret
        for turn in range(120):
            desk.clock.forward(chance.choice((0, 0, 1, 3)))
            verb = chosen(chance, turn)
            assert desk.one(verb) == model.apply(verb, desk.clock.now), (turn, verb)
            for key in KEYS:
                assert desk.store.session(*key) == model.session(key, desk.clock.now), (turn, verb)
                for field in "abc":
                    for last in (None, 2):
                        found = desk.store.items(key[0], field, last, key[1])
                        assert found == model.items(key, field, last, desk.clock.now), (turn, verb)
            for space in (SESSION, CHECKPOINT):
                listed = [
                    session for key in KEYS if key[1] == space and (session := desk.store.session(*key))
                ]
                listed.sort(key=lambda row: (row.updated, row.id), reverse=True)
                assert desk.store.sessions(SessionQuery(space)) == listed


def kept(desk: Desk, id: str = "s") -> SessionRow:
    session = desk.store.session(id)
    assert session is not None
    return session


def ids(desk: Desk, **query: Any) -> list[str]:
    return [session.id for session in desk.store.sessions(SessionQuery(**query))]


def noted(row: RunRow, seq: int, **fields: Any) -> Record:
    return entry(row, seq, kind="session", key=f"flow/s#{seq}", **fields)


KEYS = (("s", SESSION), ("s", CHECKPOINT), ("t", SESSION))


def chosen(chance: random.Random, turn: int) -> Keep | Touch | Forget | Prune:
    id, space = chance.choice(KEYS)
    what, ttl = chance.random(), chance.choice((None, 4.0, 8.0))
    token = f"t{turn - chance.choice((0, 0, 0, 1, 5))}"
    if what < 0.12:
        return Forget(id, token, space)
    if what < 0.2:
        return Touch(id, ttl, space)
    if what < 0.25:
        return Prune(1e12, limit=chance.choice((1, 9)), sessions=True)
    fields = {
        field: chance.choice((None, f"{turn}{field}")) for field in chance.sample("abc", chance.randrange(3))
    }
    appends = {
        field: Append(
            tuple(f"{turn}.{n}" for n in range(chance.randrange(1, 4))), chance.choice((None, 1, 2, 5))
        )
        for field in chance.sample("abc", chance.randrange(3))
    }
    version = chance.choice((None, None, 0, 1, 2, 3))
    return Keep(id, token, fields, ttl, version, appends, space)


class Model:
    """Sessions as plain dictionaries: field to a value, or to a list. One that was forgotten has no version."""

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {}

    def _alive(self, key: tuple[str, str], now: float) -> dict[str, Any] | None:
        found = self.there.get(key)
        over = found is None or (found["expires"] is not None and found["expires"] <= now)
        return None if over or found is None or not found["version"] else found

    def apply(self, verb: Keep | Touch | Forget | Prune, now: float) -> int | Refused | None:
        if isinstance(verb, Prune):
            expired = sorted(
                (session["expires"], key)
                for key, session in self.there.items()
                if session["expires"] is not None and session["expires"] <= now
            )
            for _, key in expired[: verb.limit]:
                del self.there[key]
            return len(expired[: verb.limit])
        key = (verb.session, verb.space)
        session = self._alive(key, now)
        if isinstance(verb, Touch):
            if session is not None and session["expires"] is not None:
                session["expires"] = None if verb.ttl is None else max(session["expires"], now + verb.ttl)
            return None
        tokens = self.there.get(key, {"tokens": {}})["tokens"]
        if verb.token in tokens:
            return None if isinstance(verb, Forget) else int(tokens[verb.token])
        if isinstance(verb, Forget):
            self._put(key, 0, now, now, {}, tokens, verb.token)
            return None
        version = session["version"] if session else 0
        if verb.version not in (None, version):
            return Refused(VERSION, str(version))
        if not version and verb.fields and not verb.appends and set(verb.fields.values()) == {None}:
            self._put(key, 0, now, now, {}, tokens, verb.token)
            return 0
        fields = dict(session["fields"]) if session else {}
        for field, value in verb.fields.items():
            fields.pop(field, None)
            if value is not None:
                fields[field] = value
        for field, more in verb.appends.items():
            before = fields.get(field)
            items = [*(before if isinstance(before, list) else []), *more.values]
            fields[field] = items if more.keep is None else items[-more.keep :]
        expires = None if verb.ttl is None else now + verb.ttl
        self._put(key, version + 1, now, expires, fields, tokens, verb.token)
        return int(version) + 1

    def _put(
        self,
        key: tuple[str, str],
        version: int,
        now: float,
        expires: float | None,
        fields: dict[str, Any],
        tokens: dict[str, int],
        token: str,
    ) -> None:
        newest = dict(list({**tokens, token: version}.items())[-TOKENS_MAX:])
        self.there[key] = {
            "version": version, "updated": now, "expires": expires, "fields": fields, "tokens": newest,
        }  # fmt: skip

    def session(self, key: tuple[str, str], now: float) -> SessionRow | None:
        session = self._alive(key, now)
        if session is None:
            return None
        fields = sorted(session["fields"].items())
        return SessionRow(
            key[0], session["version"], session["updated"], session["expires"],
            {field: value for field, value in fields if isinstance(value, str)},
            {field: len(value) for field, value in fields if isinstance(value, list)},
        )  # fmt: skip

    def items(self, key: tuple[str, str], field: str, last: int | None, now: float) -> list[str]:
        session = self._alive(key, now)
        value = session["fields"].get(field) if session else None
        items = value if isinstance(value, list) else []
        return items if last is None else items[-last:]
