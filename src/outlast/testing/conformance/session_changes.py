"""Check the parts of a change beside fields and appends, and the limits of a session."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import (
    INDEX,
    LIMIT,
    PRESENT,
    VERSION,
    Append,
    Changed,
    Refused,
    Replace,
    SessionLimits,
    UpdateSession,
)
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import kept, noted


def with_list(driver: StoreDriver, *values: str, **fields: str | None) -> None:
    driver.one(UpdateSession("s", "list", {**fields}, appends={"l": Append(values)}))


class SessionChangeContract(Contract):
    # -- fields that are set only if they are absent

    def test_a_field_is_set_only_if_it_has_no_value(self, driver: StoreDriver) -> None:
        setting = UpdateSession("s", "t1", {"a": "1"}, absent=("a",))
        assert driver.one(setting) == 1
        assert driver.one(setting._replace(token="t2", fields={"a": "2"})) == Refused(PRESENT, "1")
        assert kept(driver).fields == {"a": "1"}
        # The repeat of the change that set it is no refusal.
        assert driver.one(setting) == 1
        driver.one(UpdateSession("s", "t3", {"a": None}))
        assert driver.one(setting._replace(token="t4", fields={"a": "4"})) == 3
        assert kept(driver).fields == {"a": "4"}

    def test_a_list_counts_as_present_and_an_expired_session_as_absent(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {}, ttl=10.0, appends={"l": Append(("1",))}))
        setting = UpdateSession("s", "t2", {"l": "2"}, absent=("l",))
        assert driver.one(setting) == Refused(PRESENT, "1")
        assert driver.store.items("s", "l") == ["1"]
        driver.clock.forward(11)
        assert driver.one(setting._replace(token="t3")) == 1
        assert kept(driver).fields == {"l": "2"}

    def test_of_several_fields_those_that_are_absent_are_set(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}))
        fields: dict[str, str | None] = {"a": "2", "b": "2", "c": "2"}
        assert driver.one(UpdateSession("s", "t2", fields, absent=("a", "b"))) == 2
        assert kept(driver).fields == {"a": "1", "b": "2", "c": "2"}
        # A change that does more than setting these fields is made.
        more = UpdateSession("s", "t3", {"a": "3"}, absent=("a",), appends={"l": Append(("1",))})
        assert driver.one(more) == 3
        assert (kept(driver).fields["a"], kept(driver).lists) == ("1", {"l": 1})

    # -- pops

    def test_the_newest_items_are_removed_and_returned_oldest_first(
        self, driver: StoreDriver
    ) -> None:
        with_list(driver, "1", "2", "3", "4")
        popping = UpdateSession("s", "t1", {}, pops={"l": 2})
        assert driver.one(popping) == Changed(2, {"l": ("3", "4")})
        assert driver.store.items("s", "l") == ["1", "2"]
        # A repeat removes nothing more and returns the same items.
        assert driver.one(popping) == Changed(2, {"l": ("3", "4")})
        assert kept(driver).lists == {"l": 2}
        driver.one(UpdateSession("s", "t2", {}, appends={"l": Append(("5",))}))
        assert driver.store.items("s", "l") == ["1", "2", "5"]

    def test_of_a_shorter_list_all_is_popped_and_then_there_is_no_list(
        self, driver: StoreDriver
    ) -> None:
        with_list(driver, "1", "2", a="1")
        assert driver.one(UpdateSession("s", "t1", {}, pops={"l": 9})) == Changed(
            2, {"l": ("1", "2")}
        )
        assert (kept(driver).fields, kept(driver).lists) == ({"a": "1"}, {})
        assert driver.one(UpdateSession("s", "t2", {}, pops={"l": 1, "a": 1, "absent": 1})) == 3
        assert kept(driver).fields == {"a": "1"}
        driver.one(UpdateSession("s", "t3", {}, appends={"l": Append(("3",))}))
        assert driver.store.items("s", "l") == ["3"]

    def test_a_pop_makes_no_session(self, driver: StoreDriver) -> None:
        assert driver.one(UpdateSession("s", "t1", {}, pops={"l": 1})) == 0
        assert driver.store.session("s") is None

    def test_popped_items_are_recorded_and_returned_to_a_repeat(self, driver: StoreDriver) -> None:
        row = driver.held()
        with_list(driver, '"é🌊"', "null")
        command = UpdateSession("s", "t1", {}, pops={"l": 5}, record=noted(row, 1))
        popped = {"l": ('"é🌊"', "null")}
        assert driver.commit(command, command) == [Changed(2, popped)] * 2
        (found,) = driver.store.journal(row.pk)
        assert json.loads(found.value or "") == {"version": 2, "popped": {"l": ['"é🌊"', "null"]}}

    # -- replaces

    @pytest.mark.parametrize(("at", "found"), [(0, "x23"), (2, "12x"), (-1, "12x"), (-3, "x23")])
    def test_an_item_is_replaced(self, driver: StoreDriver, at: int, found: str) -> None:
        with_list(driver, "1", "2", "3")
        assert driver.one(UpdateSession("s", "t1", {}, replaces={"l": Replace(at, "x")})) == 2
        assert driver.store.items("s", "l") == [*found]

    @pytest.mark.parametrize("at", [2, -3, 99, -99])
    def test_an_item_that_does_not_exist_is_refused_and_nothing_is_written(
        self, driver: StoreDriver, at: int
    ) -> None:
        with_list(driver, "1", "2")
        before = kept(driver)
        driver.clock.forward(1)
        command = UpdateSession("s", "t1", {"a": "1"}, replaces={"l": Replace(at, "x")})
        assert driver.one(command) == Refused(INDEX, "2/l")
        assert kept(driver) == before
        assert driver.store.items("s", "l") == ["1", "2"]

    def test_a_value_and_a_missing_list_have_no_items_to_replace(self, driver: StoreDriver) -> None:
        with_list(driver, "1", a="1")
        for field in ("a", "absent"):
            command = UpdateSession("s", f"t{field}", {}, replaces={field: Replace(0, "x")})
            assert driver.one(command) == Refused(INDEX, f"0/{field}")
        missing = UpdateSession("none", "t", {}, replaces={"l": Replace(0, "x")})
        assert driver.one(missing) == Refused(INDEX, "0/l")
        assert driver.store.session("none") is None

    def test_indexes_count_from_what_is_left_of_a_list(self, driver: StoreDriver) -> None:
        with_list(driver, "1", "2", "3", "4", "5")
        driver.one(UpdateSession("s", "t1", {}, appends={"l": Append(("6",), keep=4)}))
        driver.one(UpdateSession("s", "t2", {}, replaces={"l": Replace(0, "x")}))
        assert driver.store.items("s", "l") == ["x", "4", "5", "6"]
        # Within one change: pop, then replace, then append.
        command = UpdateSession(
            "s",
            "t3",
            {},
            pops={"l": 2},
            replaces={"l": Replace(-1, "y")},
            appends={"l": Append(("z",))},
        )
        assert driver.one(command) == Changed(4, {"l": ("5", "6")})
        assert driver.store.items("s", "l") == ["x", "y", "z"]

    # -- clear

    def test_clearing_deletes_everything_and_keeps_the_version(self, driver: StoreDriver) -> None:
        with_list(driver, "1", "2", a="1")
        command = UpdateSession("s", "t1", {"b": "2"}, clear=True, appends={"l": Append(("3",))})
        assert driver.one(command) == 2
        assert (kept(driver).fields, kept(driver).lists) == ({"b": "2"}, {"l": 1})
        assert driver.store.items("s", "l") == ["3"]

    # -- limits

    def test_the_number_of_fields_is_limited(self, driver: StoreDriver) -> None:
        limits = SessionLimits(fields=2, items=9, popped=9)
        change = UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}, limits=limits)
        assert driver.one(change) == 1
        more = UpdateSession("s", "t2", {"b": "1"}, limits=limits)
        assert driver.one(more) == Refused(LIMIT, "fields/2/3/")
        assert driver.one(more._replace(fields={"b": "1", "a": None})) == 2
        assert kept(driver).fields == {"b": "1"}
        # Without limits it may grow. Beyond them it may still shrink, or stay as large.
        driver.one(UpdateSession("s", "t3", {"c": "1", "d": "1"}))
        assert driver.one(more._replace(token="t4", fields={"b": "2"})) == 4
        assert driver.one(more._replace(token="t5", fields={"c": None})) == 5

    def test_the_number_of_items_is_limited(self, driver: StoreDriver) -> None:
        limits = SessionLimits(fields=9, items=3, popped=9)
        with_list(driver, "1", "2")
        more = UpdateSession("s", "t1", {}, appends={"l": Append(("3", "4"))}, limits=limits)
        assert driver.one(more) == Refused(LIMIT, "items/3/4/l")
        assert driver.store.items("s", "l") == ["1", "2"]
        assert driver.one(more._replace(appends={"l": Append(("3", "4"), keep=3)})) == 2
        assert driver.one(more._replace(token="t2", pops={"l": 2})) == Changed(3, {"l": ("3", "4")})
        assert driver.store.items("s", "l") == ["2", "3", "4"]

    def test_what_one_change_pops_is_limited(self, driver: StoreDriver) -> None:
        limits = SessionLimits(fields=9, items=9, popped=5)
        with_list(driver, "123", "456")
        popping = UpdateSession("s", "t1", {}, pops={"l": 2}, limits=limits)
        assert driver.one(popping) == Refused(LIMIT, "popped/5/6/")
        assert driver.store.items("s", "l") == ["123", "456"]
        assert driver.one(popping._replace(pops={"l": 1})) == Changed(2, {"l": ("456",)})

    @pytest.mark.parametrize(
        ("change", "refusal"),
        [
            (UpdateSession("s", "t", {"a": "2"}, absent=("a",)), Refused(PRESENT, "1")),
            (UpdateSession("s", "t", {}, replaces={"l": Replace(5, "x")}), Refused(INDEX, "1/l")),
            (
                UpdateSession("s", "t", {"b": "1"}, limits=SessionLimits(2, 9, 9)),
                Refused(LIMIT, "fields/2/3/"),
            ),
            (UpdateSession("s", "t", {"b": "1"}, owner=1), Refused("owner", "")),
            (UpdateSession("s", "t", {"b": "1"}, owner=1, version=9), Refused("owner", "")),
            (
                UpdateSession("s", "t", {"a": "1"}, absent=("a",), version=9),
                Refused(VERSION, "1"),
            ),
        ],
        ids=["present", "index", "limit", "owner", "owner first", "version first"],
    )
    def test_every_refusal_is_recorded_and_writes_nothing(
        self, driver: StoreDriver, change: UpdateSession, refusal: Refused
    ) -> None:
        row = driver.held()
        with_list(driver, "1", a="1")
        before = kept(driver)
        driver.clock.forward(1)
        command = change._replace(record=noted(row, 1))
        assert driver.commit(command, command) == [refusal, refusal]
        (found,) = driver.store.journal(row.pk)
        assert json.loads(found.value or "") == {"refused": [*refusal]}
        assert kept(driver) == before
