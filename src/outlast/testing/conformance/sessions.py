"""Keep, Forget and session: state with versions and an expiry."""

from __future__ import annotations

from outlast.store.rows import SessionRow
from outlast.store.verbs import VERSION, Forget, Keep, Refused
from outlast.testing.conformance.harness import Desk, Promises


class SessionPromises(Promises):
    def test_fields_that_are_kept_come_back_with_a_version(self, desk: Desk) -> None:
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t1", {"b": "1", "a": "2"})) == 1
        assert desk.store.session("s") == SessionRow("s", 1, desk.clock.now, None, {"a": "2", "b": "1"})

    def test_other_fields_stay_and_none_deletes_one(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1", "b": "2"}))
        desk.clock.forward(1)
        assert desk.one(Keep("s", "t2", {"b": None, "c": "3", "absent": None})) == 2
        assert desk.store.session("s") == SessionRow("s", 2, desk.clock.now, None, {"a": "1", "c": "3"})

    def test_a_session_without_fields_is_there(self, desk: Desk) -> None:
        assert desk.commit(Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {"a": None})) == [1, 2]
        assert desk.store.session("s") == SessionRow("s", 2, desk.clock.now, None, {})

    def test_a_version_that_is_not_the_current_one_is_refused(self, desk: Desk) -> None:
        assert desk.one(Keep("s", "t0", {"a": "0"}, version=1)) == Refused(VERSION, "0")
        assert desk.one(Keep("s", "t1", {"a": "1"}, version=0)) == 1
        assert desk.one(Keep("s", "t2", {"a": "2"}, version=0)) == Refused(VERSION, "1")
        assert desk.one(Keep("s", "t3", {"a": "3"}, version=1)) == 2
        assert desk.one(Keep("s", "t4", {"a": "4"}, version=1)) == Refused(VERSION, "2")
        session = desk.store.session("s")
        assert session is not None
        assert session.fields == {"a": "3"}

    def test_of_two_changes_to_one_version_in_a_batch_one_is_refused(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}))
        assert desk.commit(
            Keep("s", "t2", {"a": "2"}, version=1), Keep("s", "t3", {"a": "3"}, version=1)
        ) == [
            2,
            Refused(VERSION, "2"),
        ]

    def test_the_token_of_the_last_change_again_does_nothing(self, desk: Desk) -> None:
        verb = Keep("s", "t1", {"a": "1"}, version=0)
        assert desk.commit(verb, verb) == [1, 1]
        before = desk.store.session("s")
        desk.clock.forward(1)
        assert desk.one(verb._replace(fields={"a": "2"})) == 1
        assert desk.store.session("s") == before

    def test_a_session_expires(self, desk: Desk) -> None:
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0))
        desk.clock.forward(9.9)
        session = desk.store.session("s")
        assert session is not None
        assert session.expires == desk.clock.now + 10.0 - 9.9
        desk.clock.forward(0.2)
        assert desk.store.session("s") is None

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
        desk.commit(Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {"b": "2"}, ttl=10.0))
        desk.clock.forward(11)
        assert desk.one(Keep("s", "t3", {"c": "3"}, version=2)) == Refused(VERSION, "0")
        assert desk.one(Keep("s", "t4", {"c": "3"}, version=0)) == 1
        assert desk.store.session("s") == SessionRow("s", 1, desk.clock.now, None, {"c": "3"})

    def test_a_forgotten_session_is_gone(self, desk: Desk) -> None:
        desk.commit(Keep("s", "t1", {"a": "1"}), Keep("other", "t1", {"a": "1"}))
        assert desk.commit(Forget("s"), Forget("s")) == [None, None]
        assert desk.store.session("s") is None
        assert desk.one(Keep("s", "t2", {"b": "2"})) == 1
        session, other = desk.store.session("s"), desk.store.session("other")
        assert session is not None
        assert other is not None
        assert session.fields == {"b": "2"}
