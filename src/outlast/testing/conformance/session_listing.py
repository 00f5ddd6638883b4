"""Sessions are listed by their last change, by a prefix, page by page."""

from __future__ import annotations

import pytest

from outlast.store.rows import SessionQuery, SessionRow
from outlast.store.verbs import (
    CHECKPOINT,
    SESSION,
    Append,
    Forget,
    Keep,
    Touch,
)
from outlast.testing.conformance.harness import Desk, Promises
from outlast.testing.conformance.session_desk import ids


class SessionListingPromises(Promises):
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
