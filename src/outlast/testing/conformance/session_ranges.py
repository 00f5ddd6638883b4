"""Check reads of parts of a session: ranges of lists, of fields, and of ids."""

from __future__ import annotations

import pytest

from outlast.store.commands import CHECKPOINT, Append, DeleteSession, UpdateSession
from outlast.store.session_rows import NAMES_MAX, FieldQuery, SessionQuery
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import ids, kept

NAMES = (
    *("", "!", "A", "a", "a%", "a.1", "a_", "ab", "b"),
    *("é", "\ud7ff", "\ue000", "\uffff", "🌊", "🌊1", "\U0010ffff"),
)
PREFIXES = ("", "a", "a%", "a.", "b", "zz", "é", "🌊", "\ud7ff", "\U0010ffff")


class SessionRangeContract(Contract):
    # -- items

    def test_items_are_read_as_a_slice_of_a_list(self, driver: StoreDriver) -> None:
        values = tuple(str(n) for n in range(7))
        driver.one(UpdateSession("s", "t1", {}, appends={"l": Append(("x", "y", *values), 7)}))
        numbers = [-99, -8, -7, -6, -1, 0, 1, 3, 6, 7, 8, 99]
        for start in numbers:
            for stop in [*numbers, None]:
                found = driver.store.items("s", "l", start, stop)
                assert found == [*values[start:stop]], (start, stop)

    def test_a_slice_belongs_to_its_list_session_and_space(self, driver: StoreDriver) -> None:
        for id, space in (("s", "session"), ("s", CHECKPOINT), ("s2", "session")):
            for field in ("l", "l2"):
                items = Append((f"{id}{space}{field}", "2", "3"))
                driver.one(UpdateSession(id, field, {}, appends={field: items}, space=space))
        assert driver.store.items("s", "l2", 0, 1, CHECKPOINT) == ["scheckpointl2"]
        assert driver.store.items("s", "l", 0, 1) == ["ssessionl"]

    # -- fields

    def test_a_session_is_read_with_the_named_fields_only(self, driver: StoreDriver) -> None:
        driver.one(
            UpdateSession(
                "s", "t", {"a": "1", "b": "2"}, appends={"l": Append(("1",)), "m": Append(("2",))}
            )
        )
        whole = kept(driver)
        some = whole._replace(fields={"b": "2"}, lists={"l": 1})
        assert driver.store.session("s", names=("l", "b", "absent")) == some
        assert driver.store.session("s", names=()) == whole._replace(fields={}, lists={})
        bare = whole._replace(fields={"a": "", "b": ""})
        assert driver.store.session("s", values=False) == bare
        assert driver.store.session("absent", names=("a",)) is None

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_fields_are_read_by_prefix_in_the_order_of_their_bytes(
        self, driver: StoreDriver, prefix: str
    ) -> None:
        names = [name for name in NAMES if name]
        driver.one(
            UpdateSession("s", "t", dict.fromkeys(names, "1"), appends={"a0": Append(("x",))})
        )
        expected = sorted(name for name in names if name.startswith(prefix))
        for reverse in (False, True):
            order = expected[::-1] if reverse else expected
            query = FieldQuery("s", prefix, reverse=reverse)
            assert fields(driver, query) == order
            assert fields(driver, query._replace(limit=2)) == order[:2]
            assert fields(driver, query._replace(limit=0)) == []
            for after in NAMES:
                later = [name for name in order if (name < after if reverse else name > after)]
                assert fields(driver, query._replace(after=after)) == later, after

    def test_fields_of_no_session_are_none(self, driver: StoreDriver) -> None:
        assert driver.store.fields(FieldQuery("s")) is None
        driver.one(UpdateSession("s", "t", {"a": "1"}, ttl=10.0))
        found = driver.store.fields(FieldQuery("s", "zz"))
        assert found == kept(driver)._replace(fields={})
        assert driver.store.fields(FieldQuery("s", space=CHECKPOINT)) is None
        driver.clock.forward(11)
        assert driver.store.fields(FieldQuery("s")) is None

    # -- sessions in the order of their ids

    def test_sessions_are_listed_by_id_page_by_page(self, driver: StoreDriver) -> None:
        names = [f"p{n:02}" for n in range(12)]
        for n, name in enumerate(reversed(names)):
            driver.one(UpdateSession(name, "t", {"f": "1"}, ttl=5.0 if n % 4 == 3 else None))
            driver.one(UpdateSession(f"q{n}", "t", {}))
            driver.one(UpdateSession(name, "t", {}, space=CHECKPOINT))
        driver.one(DeleteSession("p07", "f"))
        driver.clock.forward(6)
        there = [id for n, id in enumerate(reversed(names)) if n % 4 != 3 and id != "p07"][::-1]
        assert ids(driver, prefix="p", by_id=True) == there
        pages: list[str] = []
        query = SessionQuery(prefix="p", by_id=True, limit=2)
        while page := [row.id for row in driver.store.sessions(query)]:
            pages += page
            query = query._replace(after=page[-1])
        assert pages == there

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_a_prefix_and_a_first_id_are_taken_literally(
        self, driver: StoreDriver, prefix: str
    ) -> None:
        names = [name for name in NAMES if name]
        driver.commit(*(UpdateSession(id, "t", {}) for id in names))
        expected = sorted(name for name in names if name.startswith(prefix))
        assert ids(driver, prefix=prefix, by_id=True) == expected
        assert ids(driver, prefix=prefix) == expected[::-1]
        for after in NAMES:
            later = [name for name in expected if name > after]
            assert ids(driver, prefix=prefix, by_id=True, after=after) == later

    def test_a_list_of_sessions_names_some_fields_and_no_values(self, driver: StoreDriver) -> None:
        many = [f"f{n:03}" for n in range(NAMES_MAX + 5)]
        driver.one(
            UpdateSession(
                "s",
                "t",
                dict.fromkeys(many, "1"),
                appends={f"l{name}": Append(("1",)) for name in many},
            )
        )
        for query in (SessionQuery(), SessionQuery(prefix="s"), SessionQuery(by_id=True)):
            (row,) = driver.store.sessions(query)
            assert row.fields == dict.fromkeys(many[:NAMES_MAX], "")
            assert row.lists == {f"l{name}": 1 for name in many[:NAMES_MAX]}


def fields(driver: StoreDriver, query: FieldQuery) -> list[str]:
    row = driver.store.fields(query)
    assert row is not None
    assert row.lists == {}
    return [*row.fields]
