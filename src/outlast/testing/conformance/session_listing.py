"""Check that sessions are listed by last change, by prefix, and page by page."""

from __future__ import annotations

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    SESSION,
    Append,
    DeleteSession,
    ExtendSession,
    UpdateSession,
)
from outlast.store.session_rows import SessionQuery, SessionRow
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import ids


class SessionListingContract(Contract):
    def test_sessions_are_listed_by_their_last_change_the_newest_first(
        self, driver: StoreDriver
    ) -> None:
        for id in ("a", "c", "b"):
            driver.one(UpdateSession(id, "t1", {"f": id}, appends={"l": Append(("1", "2"))}))
            driver.clock.forward(1)
        driver.one(UpdateSession("a", "t2", {"f": "again"}))
        driver.one(ExtendSession("c", 100.0))
        listed = driver.store.sessions(SessionQuery(values=True))
        assert [session.id for session in listed] == ["a", "b", "c"]
        assert listed == [driver.store.session(id) for id in ("a", "b", "c")]

    def test_a_list_of_sessions_knows_its_space_and_not_what_has_expired(
        self, driver: StoreDriver
    ) -> None:
        driver.commit(
            UpdateSession("a", "t", {}, ttl=10.0),
            UpdateSession("b", "t", {}, ttl=20.0),
            UpdateSession("c", "t", {}),
            UpdateSession("d", "t", {}, space=CHECKPOINT),
        )
        driver.clock.forward(11)
        assert ids(driver) == ["c", "b"]
        assert ids(driver, space=CHECKPOINT) == ["d"]
        driver.one(DeleteSession("c", "f"))
        assert ids(driver) == ["b"]
        driver.one(UpdateSession("a", "t2", {}))
        assert ids(driver) == ["a", "b"]

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            (
                "",
                [
                    "🌊2",
                    "🌊1",
                    "\\d",
                    "é",
                    "a_b",
                    "aXb",
                    "a%",
                    "a",
                    "Ab",
                    "100%_y",
                    "100%_x",
                    "1000",
                ],
            ),
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
    def test_a_prefix_is_taken_literally(
        self, driver: StoreDriver, prefix: str, found: list[str]
    ) -> None:
        names = (
            "100%_x",
            "100%_y",
            "1000",
            "a",
            "a%",
            "a_b",
            "aXb",
            "Ab",
            "é",
            "🌊1",
            "🌊2",
            "\\d",
        )
        driver.commit(*(UpdateSession(id, "t", {}) for id in names))
        assert ids(driver, prefix=prefix) == sorted(found, reverse=True)

    def test_of_sessions_changed_at_the_same_time_the_greater_id_comes_first(
        self, driver: StoreDriver
    ) -> None:
        names = ["a", "B", "é", "z", "\uffff", "🌊", "10", "9", "a b", "a-b", "ab", "_", "~"]
        driver.commit(*(UpdateSession(id, "t", {}) for id in names))
        assert ids(driver) == sorted(names, reverse=True)

    def test_sessions_are_listed_page_by_page_none_twice_and_none_left_out(
        self, driver: StoreDriver
    ) -> None:
        for n in range(23):
            driver.one(
                UpdateSession(f"p{n:02}", "t", {"f": "1"}, ttl=1e6, appends={"l": Append(("1",))})
            )
            driver.one(UpdateSession(f"q{n:02}", "t", {}))
            if n % 3 == 0:
                driver.clock.forward(0.123_456_7)
        whole = driver.store.sessions(SessionQuery(prefix="p", limit=1_000))
        assert len(whole) == 23
        pages: list[SessionRow] = []
        query = SessionQuery(prefix="p", limit=5)
        while page := driver.store.sessions(query):
            assert len(page) <= 5
            pages += page
            query = query._replace(before=(page[-1].updated, page[-1].id))
        assert pages == whole

    def test_a_page_has_its_whole_size_whatever_is_left_out(self, driver: StoreDriver) -> None:
        for n in range(40):
            space = CHECKPOINT if n % 4 == 1 else SESSION
            driver.one(
                UpdateSession(
                    f"{'x' if n % 4 == 2 else 'p'}{n}",
                    "t",
                    {},
                    ttl=1.0 if n % 4 == 3 else None,
                    space=space,
                )
            )
            driver.clock.forward(0.001)
        driver.clock.forward(2)
        assert ids(driver, prefix="p", limit=4) == ["p36", "p32", "p28", "p24"]
