"""Check how sessions end: by expiry unless extended, by DeleteSession, and by Prune."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    SESSION,
    TOKENS_MAX,
    VERSION,
    Append,
    DeleteSession,
    ExtendSession,
    Prune,
    Refused,
    UpdateSession,
)
from outlast.store.session_rows import SessionQuery, SessionRow
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import ids, kept, noted


class SessionEndContract(Contract):
    # -- expiry

    def test_a_session_expires(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        driver.clock.forward(9.9)
        assert kept(driver).expires == driver.clock.now + 10.0 - 9.9
        assert driver.store.items("s", "l") == ["1"]
        driver.clock.forward(0.2)
        assert driver.store.session("s") is None
        assert driver.store.items("s", "l") == []
        assert driver.store.sessions(SessionQuery()) == []

    def test_a_change_moves_the_expiry_or_takes_it_away(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        driver.clock.forward(9)
        driver.one(UpdateSession("s", "t2", {}, ttl=10.0))
        driver.clock.forward(9)
        assert driver.store.session("s") is not None
        driver.one(UpdateSession("s", "t3", {}))
        driver.clock.forward(1e6)
        assert driver.store.session("s") is not None

    @pytest.mark.parametrize(
        ("had", "more", "left"),
        [(None, 10.0, None), (100.0, 10.0, 100.0), (10.0, 100.0, 100.0), (10.0, None, None)],
    )
    def test_a_change_that_extends_shortens_nothing(
        self, driver: StoreDriver, had: float | None, more: float | None, left: float | None
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=had))
        assert driver.one(UpdateSession("s", "t2", {"b": "2"}, ttl=more, extends=True)) == 2
        row = driver.store.session("s")
        assert row is not None
        assert row.expires == (None if left is None else driver.clock.now + left)
        driver.one(UpdateSession("s", "t3", {}, ttl=5.0))
        row = driver.store.session("s")
        assert row is not None
        assert row.expires == driver.clock.now + 5.0

    def test_a_session_that_is_made_again_by_a_change_that_extends_has_its_expiry_from_that(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        driver.clock.forward(11)
        driver.one(UpdateSession("s", "t2", {"a": "1"}, ttl=20.0, extends=True))
        driver.one(DeleteSession("gone", "t0"))
        driver.one(UpdateSession("gone", "t2", {"a": "1"}, ttl=20.0, extends=True))
        for id in ("s", "gone"):
            row = driver.store.session(id)
            assert row is not None
            assert row.expires == driver.clock.now + 20.0

    def test_nothing_of_an_expired_session_comes_back(self, driver: StoreDriver) -> None:
        driver.commit(
            UpdateSession(
                "s", "t1", {"a": "1"}, appends={"l": Append(("1",)), "m": Append(("2",))}
            ),
            UpdateSession("s", "t2", {"b": "2"}, ttl=10.0),
        )
        driver.clock.forward(11)
        assert driver.one(UpdateSession("s", "t3", {"c": "3"}, version=2)) == Refused(VERSION, "0")
        assert (
            driver.one(
                UpdateSession("s", "t4", {"c": "3"}, version=0, appends={"m": Append(("3",))})
            )
            == 1
        )
        assert driver.store.session("s") == SessionRow(
            "s", 1, driver.clock.now, None, {"c": "3"}, {"m": 1}
        )
        assert (driver.store.items("s", "l"), driver.store.items("s", "m")) == ([], ["3"])

    def test_a_session_that_is_there_again_outlives_the_expiry_of_the_one_before(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        driver.clock.forward(11)
        driver.one(UpdateSession("s", "t2", {"b": "2"}))
        driver.clock.forward(1e6)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 0
        assert kept(driver).fields == {"b": "2"}

    def test_an_extension_moves_the_expiry_and_nothing_else(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        before = kept(driver)
        driver.clock.forward(9)
        assert driver.one(ExtendSession("s", 10.0)) is None
        assert kept(driver) == before._replace(expires=driver.clock.now + 10.0)
        driver.clock.forward(9)
        assert driver.store.items("s", "l") == ["1"]
        driver.clock.forward(2)
        assert driver.store.session("s") is None

    def test_an_extension_never_shortens_the_time_and_never_is_the_longest(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        first = kept(driver)
        assert driver.commit(ExtendSession("s", 0.5), ExtendSession("s", 9.9)) == [None, None]
        assert kept(driver) == first
        assert driver.commit(ExtendSession("s", 10.5), ExtendSession("s", 10.2)) == [None, None]
        assert kept(driver).expires == driver.clock.now + 10.5
        assert driver.commit(
            ExtendSession("s", None), ExtendSession("s", None), ExtendSession("s", 10.0)
        ) == [None, None, None]
        driver.clock.forward(1e6)
        assert kept(driver) == first._replace(expires=None)
        assert driver.store.items("s", "l") == ["1"]
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 0

    def test_an_extension_brings_nothing_back_and_makes_nothing(self, driver: StoreDriver) -> None:
        assert driver.one(ExtendSession("absent", 10.0)) is None
        assert driver.store.session("absent") is None
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        driver.clock.forward(11)
        assert driver.commit(ExtendSession("s", 10.0), ExtendSession("s", None)) == [None, None]
        assert driver.store.session("s") is None
        assert driver.one(UpdateSession("s", "t2", {"b": "1"}, version=0)) == 1

    def test_an_extension_is_no_change_so_the_token_of_the_last_one_still_counts(
        self, driver: StoreDriver
    ) -> None:
        command = UpdateSession("s", "t1", {"a": "1"}, ttl=10.0)
        assert driver.commit(command, ExtendSession("s", 20.0), command) == [1, None, 1]
        assert kept(driver).expires == driver.clock.now + 20.0

    # -- the end of a session

    def test_a_deleted_session_is_gone(self, driver: StoreDriver) -> None:
        lists = {"l": Append(("1",))}
        driver.commit(
            UpdateSession("s", "t1", {"a": "1"}, appends=lists),
            UpdateSession("other", "t1", {"a": "1"}, appends=lists),
        )
        assert driver.commit(DeleteSession("s", "f1"), DeleteSession("s", "f2")) == [None, None]
        assert driver.store.session("s") is None
        assert driver.store.items("s", "l") == []
        assert ids(driver) == ["other"]
        # Deleted is deleted, whatever the clock says.
        driver.clock.forward(-25)
        assert driver.store.session("s") is None
        assert ids(driver) == ["other"]
        assert driver.one(UpdateSession("s", "t0", {}, version=1)) == Refused(VERSION, "0")
        assert driver.one(UpdateSession("s", "t2", {"b": "2"})) == 1
        assert kept(driver) == SessionRow("s", 1, driver.clock.now, None, {"b": "2"})
        assert kept(driver, "other").fields == {"a": "1"}
        assert driver.store.items("other", "l") == ["1"]

    def test_a_repeat_of_what_came_before_it_was_deleted_brings_nothing_back(
        self, driver: StoreDriver
    ) -> None:
        first, second = (
            UpdateSession("s", "t1", {"a": "1"}),
            UpdateSession("s", "t2", {}, appends={"l": Append(("1",))}),
        )
        assert driver.commit(first, second, DeleteSession("s", "f"), first, second) == [
            1,
            2,
            None,
            1,
            2,
        ]
        assert driver.store.session("s") is None
        driver.clock.forward(1)
        assert driver.commit(second, first) == [2, 1]
        assert driver.store.session("s") is None

    @pytest.mark.parametrize("was_there", [True, False])
    def test_a_repeat_of_a_deletion_takes_nothing_from_who_made_it_again(
        self, driver: StoreDriver, was_there: bool
    ) -> None:
        before = UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1",))})
        if was_there:
            driver.one(before)
        forgetting, again = DeleteSession("s", "f"), UpdateSession("s", "t2", {"b": "2"}, version=0)
        assert driver.commit(forgetting, again, forgetting) == [None, 1, None]
        driver.clock.forward(1)
        assert driver.one(forgetting) is None
        assert [driver.one(command) for command in (before, again) if was_there] == [1, 1][
            : 2 * was_there
        ]
        assert (kept(driver).version, kept(driver).fields, kept(driver).lists) == (
            1,
            {"b": "2"},
            {},
        )
        assert driver.commit(DeleteSession("s", "f2"), forgetting, again) == [None, None, 1]
        assert driver.store.session("s") is None

    def test_of_the_tokens_that_outlive_a_session_the_newest_stay(
        self, driver: StoreDriver
    ) -> None:
        half = TOKENS_MAX // 2
        commands = [UpdateSession("s", f"t{n}", {"n": str(n)}) for n in range(half)]
        driver.commit(*commands, DeleteSession("s", "f"))
        later = [UpdateSession("s", f"u{n}", {"n": str(n)}) for n in range(half)]
        assert driver.commit(*later) == [*range(1, half + 1)]
        # Half, one and half again exceed the limit by one, so the first token is forgotten.
        assert driver.commit(*commands[1:], DeleteSession("s", "f"), *later) == [
            *range(2, half + 1),
            None,
            *range(1, half + 1),
        ]
        assert driver.one(commands[0]) == half + 1

    def test_the_tokens_of_an_expired_session_are_known_until_it_is_pruned(
        self, driver: StoreDriver
    ) -> None:
        command = UpdateSession("s", "t1", {"a": "1"}, ttl=10.0)
        driver.commit(command, UpdateSession("s", "t2", {"a": "2"}, ttl=10.0))
        driver.clock.forward(11)
        assert driver.one(command) == 1
        assert driver.store.session("s") is None
        assert driver.one(UpdateSession("s", "t3", {"b": "3"}, ttl=10.0)) == 1
        assert driver.one(command) == 1
        assert kept(driver).fields == {"b": "3"}
        driver.clock.forward(11)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 1
        assert driver.one(command) == 1
        assert kept(driver).fields == {"a": "1"}

    def test_what_is_left_of_a_deleted_session_is_pruned_when_its_time_has_come(
        self, driver: StoreDriver
    ) -> None:
        forgotten, forgetting = driver.clock.now, DeleteSession("s", "f")
        driver.commit(
            UpdateSession("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}), forgetting
        )
        driver.clock.forward(5)
        # Prune deletes what expired before this time, not at it.
        assert driver.one(Prune(forgotten, sessions=True)) == 0
        assert driver.one(Prune(forgotten + 1, sessions=True)) == 1
        assert driver.one(Prune(forgotten + 1, sessions=True)) == 0
        assert driver.one(UpdateSession("s", "t2", {"a": "2"})) == 1
        assert driver.one(forgetting) is None
        assert driver.store.session("s") is None

    def test_a_change_that_only_deletes_makes_no_session(self, driver: StoreDriver) -> None:
        deleting = UpdateSession("s", "d1", {"a": None, "l": None})
        assert driver.commit(
            deleting, deleting, UpdateSession("s", "d2", {"a": None}, version=0)
        ) == [
            0,
            0,
            0,
        ]
        assert (driver.store.session("s"), ids(driver)) == (None, [])
        assert driver.one(UpdateSession("s", "d3", {"a": None}, version=1)) == Refused(VERSION, "0")
        driver.commit(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        # A repeat, which deletes nothing that was created since.
        assert driver.one(deleting) == 0
        assert (kept(driver).fields, kept(driver).lists) == ({"a": "1"}, {"l": 1})
        driver.clock.forward(11)
        assert driver.one(UpdateSession("s", "d4", {"a": None})) == 0
        assert driver.store.session("s") is None
        assert driver.one(UpdateSession("s", "t2", {"a": None, "b": "2"})) == 1

    def test_a_recorded_change_that_only_deletes_what_is_not_there_says_so(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        command = UpdateSession("s", "d1", {"a": None}, record=noted(row, 1))
        assert driver.one(command) == 0
        (found,) = driver.store.journal(row.pk)
        assert json.loads(found.value or "") == {"version": 0}
        driver.one(UpdateSession("s", "t1", {"a": "1"}))
        assert driver.one(command) == 0
        assert kept(driver).fields == {"a": "1"}

    def test_expired_sessions_of_every_space_are_pruned_the_oldest_first(
        self, driver: StoreDriver
    ) -> None:
        start = driver.clock.now
        for n, space in enumerate((SESSION, CHECKPOINT, SESSION), 1):
            driver.one(
                UpdateSession(
                    f"s{n}",
                    "t",
                    {"a": "1"},
                    ttl=10.0 * n,
                    appends={"l": Append(("1",))},
                    space=space,
                )
            )
        driver.one(UpdateSession("ever", "t", {"a": "1"}))
        driver.clock.forward(25)
        # Prune deletes what expired before this time, not at it.
        assert driver.one(Prune(start + 10.0, sessions=True)) == 0
        assert driver.one(Prune(start + 20.5, limit=1, sessions=True)) == 1
        assert driver.one(Prune(start + 20.5, sessions=True)) == 1
        assert driver.one(Prune(start + 20.5, sessions=True)) == 0
        assert kept(driver, "s3").fields == {"a": "1"}
        # Nothing is left of them, whatever the clock says.
        driver.clock.forward(-25)
        assert [driver.store.session("s1"), driver.store.session("s2", CHECKPOINT)] == [None, None]
        assert driver.store.items("s1", "l") == []
        assert driver.one(UpdateSession("s1", "t2", {}, version=0)) == 1
        assert kept(driver, "s1").lists == {}

    def test_what_has_not_expired_yet_is_not_pruned_whatever_the_time_given(
        self, driver: StoreDriver
    ) -> None:
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        assert driver.one(Prune(driver.clock.now + 1e9, sessions=True)) == 0
        assert kept(driver).fields == {"a": "1"}
        # The session expires at exactly this moment.
        driver.clock.forward(10)
        assert driver.store.session("s") is None
        assert driver.one(Prune(driver.clock.now + 1e9, sessions=True)) == 1

    def test_a_session_that_was_extended_in_time_is_not_pruned(self, driver: StoreDriver) -> None:
        driver.commit(
            UpdateSession("s", "t1", {"a": "1"}, ttl=10.0),
            UpdateSession("t", "t1", {"a": "1"}, ttl=10.0),
        )
        driver.clock.forward(9)
        driver.commit(ExtendSession("s", 10.0), UpdateSession("t", "t2", {}))
        driver.clock.forward(5)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 0

    def test_pruning_sessions_leaves_runs_and_pruning_runs_leaves_sessions(
        self, driver: StoreDriver
    ) -> None:
        driver.ended()
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0))
        driver.clock.forward(11)
        assert driver.commit(Prune(driver.clock.now, items=True), Prune(driver.clock.now)) == [0, 1]
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 1
        driver.ended("r2")
        driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 0
        assert driver.row("r2").status == "done"
