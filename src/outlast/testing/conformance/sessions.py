"""Keep, and what is read of one session: fields and lists with a version, each space for itself."""

from __future__ import annotations

import pytest

from outlast.store.protocol import BadValue
from outlast.store.rows import SessionRow
from outlast.store.verbs import (
    CHECKPOINT,
    TOKENS_MAX,
    VERSION,
    Append,
    Forget,
    Keep,
    Refused,
    Touch,
)
from outlast.testing.conformance.harness import Desk, Promises
from outlast.testing.conformance.session_desk import kept


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
