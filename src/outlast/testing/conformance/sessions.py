"""Check UpdateSession and reading one session: fields, lists, versions and separate spaces."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    TOKENS_MAX,
    VERSION,
    Append,
    DeleteSession,
    ExtendSession,
    Refused,
    UpdateSession,
)
from outlast.store.protocol import BadValue
from outlast.store.session_rows import SessionRow
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import kept


class SessionContract(Contract):
    # -- fields

    def test_fields_that_are_kept_come_back_with_a_version(self, driver: StoreDriver) -> None:
        assert driver.store.session("s") is None
        assert driver.one(UpdateSession("s", "t1", {"b": "1", "a": "2"})) == 1
        assert driver.store.session("s") == SessionRow(
            "s", 1, driver.clock.now, None, {"a": "2", "b": "1"}
        )

    def test_fields_come_in_the_order_of_their_names(self, driver: StoreDriver) -> None:
        names = ["b", "a", "é", "Z", "\uffff", "🌊", "", "a b", "10", "9"]
        driver.one(
            UpdateSession(
                "s",
                "t1",
                dict.fromkeys(names, "1"),
                appends={f"l{name}": Append(("1",)) for name in names},
            )
        )
        session = kept(driver)
        assert list(session.fields) == sorted(names)
        assert list(session.lists) == sorted(f"l{name}" for name in names)

    def test_other_fields_stay_and_none_deletes_one(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1", "b": "2"}))
        driver.clock.forward(1)
        assert driver.one(UpdateSession("s", "t2", {"b": None, "c": "3", "absent": None})) == 2
        assert driver.store.session("s") == SessionRow(
            "s", 2, driver.clock.now, None, {"a": "1", "c": "3"}
        )

    def test_a_session_without_fields_is_there(self, driver: StoreDriver) -> None:
        assert driver.commit(
            UpdateSession("s", "t1", {"a": "1"}), UpdateSession("s", "t2", {"a": None})
        ) == [
            1,
            2,
        ]
        assert driver.store.session("s") == SessionRow("s", 2, driver.clock.now, None, {})
        assert driver.one(UpdateSession("bare", "t1", {})) == 1
        assert driver.store.session("bare") == SessionRow("bare", 1, driver.clock.now, None, {})

    def test_an_empty_value_is_a_value(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": ""}, appends={"l": Append(("",))}))
        assert (kept(driver).fields, kept(driver).lists) == ({"a": ""}, {"l": 1})
        assert driver.store.items("s", "l") == [""]

    # -- versions

    def test_a_version_that_is_not_the_current_one_is_refused(self, driver: StoreDriver) -> None:
        assert driver.one(UpdateSession("s", "t0", {"a": "0"}, version=1)) == Refused(VERSION, "0")
        assert driver.one(UpdateSession("s", "t1", {"a": "1"}, version=0)) == 1
        assert driver.one(UpdateSession("s", "t2", {"a": "2"}, version=0)) == Refused(VERSION, "1")
        assert driver.one(UpdateSession("s", "t3", {"a": "3"}, version=1)) == 2
        assert driver.one(UpdateSession("s", "t4", {"a": "4"}, version=1)) == Refused(VERSION, "2")
        assert kept(driver).fields == {"a": "3"}

    def test_a_refused_change_changes_nothing_neither_a_list_nor_the_expiry(
        self, driver: StoreDriver
    ) -> None:
        driver.one(
            UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1", "2"))})
        )
        before = driver.store.session("s")
        driver.clock.forward(1)
        refused = UpdateSession(
            "s", "t2", {"a": None, "l": "3"}, ttl=99.0, version=7, appends={"m": Append(("1",))}
        )
        assert driver.one(refused) == Refused(VERSION, "1")
        assert driver.one(UpdateSession("other", "t2", {"a": "1"}, version=7)) == Refused(
            VERSION, "0"
        )
        assert driver.store.session("s") == before
        assert driver.store.items("s", "l") == ["1", "2"]
        assert driver.store.session("other") is None

    def test_of_two_changes_to_one_version_in_a_batch_one_is_refused(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}))
        assert driver.commit(
            UpdateSession("s", "t2", {"a": "2"}, version=1),
            UpdateSession("s", "t3", {"a": "3"}, version=1),
        ) == [
            2,
            Refused(VERSION, "2"),
        ]

    def test_a_repeat_is_known_after_others_changes_and_gives_the_version_it_made(
        self, driver: StoreDriver
    ) -> None:
        commands = [
            UpdateSession("s", f"t{n}", {"n": str(n)}, appends={"l": Append((str(n),))})
            for n in range(TOKENS_MAX)
        ]
        assert driver.commit(*commands) == [*range(1, TOKENS_MAX + 1)]
        before = driver.store.session("s")
        driver.clock.forward(1)
        assert driver.commit(*reversed(commands)) == [*range(TOKENS_MAX, 0, -1)]
        assert driver.one(commands[3]._replace(version=99)) == 4
        assert driver.store.session("s") == before
        assert driver.store.items("s", "l") == [str(n) for n in range(TOKENS_MAX)]

    def test_the_token_of_the_last_change_again_does_nothing(self, driver: StoreDriver) -> None:
        command = UpdateSession("s", "t1", {"a": "1"}, version=0, appends={"l": Append(("1",))})
        assert driver.commit(command, command) == [1, 1]
        before = driver.store.session("s")
        driver.clock.forward(1)
        assert driver.one(command._replace(fields={"a": "2"}, ttl=10.0)) == 1
        assert driver.store.session("s") == before
        assert driver.store.items("s", "l") == ["1"]

    # -- lists

    def test_what_is_appended_comes_back_oldest_first_and_from_the_end(
        self, driver: StoreDriver
    ) -> None:
        assert driver.one(UpdateSession("s", "t1", {}, appends={"l": Append(("1", "2"))})) == 1
        assert (
            driver.one(
                UpdateSession("s", "t2", {}, appends={"l": Append(("3",)), "m": Append(("9",))})
            )
            == 2
        )
        assert kept(driver) == SessionRow("s", 2, driver.clock.now, None, {}, {"l": 3, "m": 1})
        assert driver.store.items("s", "l") == ["1", "2", "3"]
        assert driver.store.items("s", "l", -2) == ["2", "3"]
        assert driver.store.items("s", "l", -1) == ["3"]
        assert driver.store.items("s", "l", -99) == ["1", "2", "3"]
        assert driver.store.items("s", "m") == ["9"]

    def test_items_of_what_is_no_list_are_none(self, driver: StoreDriver) -> None:
        assert driver.store.items("s", "l") == []
        driver.one(UpdateSession("s", "t1", {"a": "1"}))
        assert driver.store.items("s", "a") == []
        assert driver.store.items("s", "absent", -5) == []

    def test_the_same_value_may_be_there_often(self, driver: StoreDriver) -> None:
        driver.commit(
            *(UpdateSession("s", f"t{n}", {}, appends={"l": Append(("1", "1"))}) for n in range(3))
        )
        assert driver.store.items("s", "l") == ["1"] * 6

    def test_only_the_newest_are_kept(self, driver: StoreDriver) -> None:
        for n in range(1, 6):
            driver.one(UpdateSession("s", f"t{n}", {}, appends={"l": Append((str(n),), keep=3)}))
        assert driver.store.items("s", "l") == ["3", "4", "5"]
        driver.one(UpdateSession("s", "more", {}, appends={"l": Append(("6", "7"), keep=9)}))
        assert driver.store.items("s", "l") == ["3", "4", "5", "6", "7"]
        driver.one(UpdateSession("s", "many", {}, appends={"l": Append(tuple("abcd"), keep=2)}))
        assert driver.store.items("s", "l") == ["c", "d"]
        assert kept(driver).lists == {"l": 2}
        driver.one(UpdateSession("s", "all", {}, appends={"l": Append(("e",))}))
        assert driver.store.items("s", "l") == ["c", "d", "e"]
        assert driver.store.items("s", "l", -2) == ["d", "e"]

    def test_a_new_list_too_keeps_only_the_newest(self, driver: StoreDriver) -> None:
        driver.one(
            UpdateSession(
                "s",
                "t",
                {},
                appends={"l": Append(("1", "2", "3"), keep=1), "m": Append(("1",), keep=5)},
            )
        )
        assert (driver.store.items("s", "l"), driver.store.items("s", "m")) == (["3"], ["1"])
        assert kept(driver).lists == {"l": 1, "m": 1}

    def test_a_field_that_is_set_is_no_list_any_more(self, driver: StoreDriver) -> None:
        driver.one(
            UpdateSession("s", "t1", {}, appends={"f": Append(("1", "2")), "l": Append(("3",))})
        )
        driver.one(UpdateSession("s", "t2", {"f": "value"}))
        assert (kept(driver).fields, kept(driver).lists) == ({"f": "value"}, {"l": 1})
        assert driver.store.items("s", "f") == []
        assert driver.store.items("s", "l") == ["3"]

    def test_a_field_that_is_appended_to_loses_its_value(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"f": "value", "g": "1"}))
        driver.one(UpdateSession("s", "t2", {}, appends={"f": Append(("1",))}))
        assert (kept(driver).fields, kept(driver).lists) == ({"g": "1"}, {"f": 1})
        assert driver.store.items("s", "f") == ["1"]

    def test_a_list_that_was_a_value_and_is_a_list_again_has_only_its_new_items(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {}, appends={"f": Append(("1", "2", "3"), keep=2)}))
        driver.one(UpdateSession("s", "t2", {"f": "value"}))
        driver.one(UpdateSession("s", "t3", {}, appends={"f": Append(("4",))}))
        assert driver.store.items("s", "f") == ["4"]
        assert kept(driver).lists == {"f": 1}

    def test_none_deletes_a_list(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1", "2"))}))
        assert driver.one(UpdateSession("s", "t2", {"l": None})) == 2
        assert (kept(driver).fields, kept(driver).lists) == ({"a": "1"}, {})
        assert driver.store.items("s", "l") == []
        driver.one(UpdateSession("s", "t3", {}, appends={"l": Append(("3",))}))
        assert driver.store.items("s", "l") == ["3"]

    def test_fields_are_set_before_values_are_appended(self, driver: StoreDriver) -> None:
        """Set first, so that one change can replace an old list with a new one."""
        driver.one(
            UpdateSession("s", "t1", {}, appends={"f": Append(("1", "2")), "g": Append(("1",))})
        )
        both = {"f": Append(("3",)), "g": Append(("4", "5"))}
        assert driver.one(UpdateSession("s", "t2", {"f": None, "g": "value"}, appends=both)) == 2
        assert kept(driver) == SessionRow("s", 2, driver.clock.now, None, {}, {"f": 1, "g": 2})
        assert (driver.store.items("s", "f"), driver.store.items("s", "g")) == (["3"], ["4", "5"])

    def test_a_long_list_is_read_from_its_end(self, driver: StoreDriver) -> None:
        values = tuple(str(n) for n in range(5_000))
        driver.one(UpdateSession("s", "t1", {}, appends={"l": Append(values)}))
        driver.one(UpdateSession("s", "t2", {}, appends={"l": Append(("last",), keep=4_000)}))
        assert driver.store.items("s", "l") == [*values[1_001:], "last"]
        assert driver.store.items("s", "l", -3) == ["4998", "4999", "last"]
        assert kept(driver).lists == {"l": 4_000}

    def test_an_item_that_cannot_be_stored_is_a_bad_value_and_nothing_is_written(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}))
        before = driver.store.session("s")
        for bad in (
            UpdateSession("s", "t2", {"a": "2"}, appends={"l": Append(("2", "\ud800"))}),
            UpdateSession("s", "t2", {"a": "2", "\ud800": "2"}),
            UpdateSession("s", "t2", {"a": "2"}, appends={"\ud800": Append(("2",))}),
        ):
            with pytest.raises(BadValue):
                driver.commit(UpdateSession("s", "t0", {"b": "2"}), bad)
        assert driver.store.session("s") == before
        assert driver.store.items("s", "l") == ["1"]

    # -- spaces

    def test_the_same_id_in_two_spaces_is_two_sessions(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}))
        driver.one(
            UpdateSession(
                "s", "t1", {"a": "2"}, ttl=10.0, appends={"l": Append(("2",))}, space=CHECKPOINT
            )
        )
        assert driver.one(UpdateSession("s", "t2", {"b": "3"}, version=1, space=CHECKPOINT)) == 2
        assert kept(driver) == SessionRow("s", 1, driver.clock.now, None, {"a": "1"}, {"l": 1})
        assert driver.store.session("s", CHECKPOINT) == SessionRow(
            "s", 2, driver.clock.now, None, {"a": "2", "b": "3"}, {"l": 1}
        )
        assert driver.store.items("s", "l") == ["1"]
        assert driver.store.items("s", "l", space=CHECKPOINT) == ["2"]
        driver.one(ExtendSession("s", 10.0, space=CHECKPOINT))
        assert kept(driver).expires is None
        driver.one(DeleteSession("s", "f", space=CHECKPOINT))
        assert driver.store.session("s", CHECKPOINT) is None
        assert driver.store.items("s", "l") == ["1"]

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
        self, driver: StoreDriver, left: tuple[str, str], right: tuple[str, str]
    ) -> None:
        for number, (session, field) in enumerate((left, right)):
            driver.one(
                UpdateSession(
                    session,
                    "t",
                    {f"{field}+": str(number)},
                    appends={field: Append((str(number),))},
                )
            )
        for number, (session, field) in enumerate((left, right)):
            assert kept(driver, session).fields == {f"{field}+": str(number)}
            assert driver.store.items(session, field) == [str(number)]
        driver.one(DeleteSession(left[0], "f"))
        assert driver.store.items(*right) == ["1"]
