"""Check that changes of several sessions are made together or not at all."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import (
    CHECKPOINT,
    FENCE,
    INDEX,
    LIMIT,
    OWNER,
    VERSION,
    Append,
    Changed,
    DeleteSession,
    Refused,
    Replace,
    SessionLimits,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.protocol import BadValue
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import ids, kept, noted


def setting(id: str, token: str = "t", value: str = "1") -> UpdateSession:
    return UpdateSession(id, token, {"a": value})


class SessionGroupContract(Contract):
    def test_changes_of_several_sessions_are_one(self, driver: StoreDriver) -> None:
        driver.one(setting("b", "t0"))
        group = UpdateSessions(
            (
                setting("a"),
                UpdateSession("b", "t", {}, appends={"l": Append(("1", "2"))}, version=1),
                UpdateSession("a", "t", {"c": "3"}, space=CHECKPOINT, ttl=10.0),
            )
        )
        assert driver.one(group) == [1, 2, 1]
        assert kept(driver, "a").fields == {"a": "1"}
        assert (kept(driver, "b").fields, kept(driver, "b").lists) == ({"a": "1"}, {"l": 2})
        checkpoint = driver.store.session("a", CHECKPOINT)
        assert checkpoint is not None
        assert checkpoint.expires == driver.clock.now + 10.0

    def test_pops_and_takes_return_their_results_in_order(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("b", "t0", {}, appends={"l": Append(("1", "2"))}))
        one, two, three = driver.one(
            UpdateSessions(
                (
                    UpdateSession("a", "t", {}, take=True),
                    UpdateSession("b", "t", {}, pops={"l": 1}),
                    UpdateSession("c", "t", {"a": None}),
                )
            )
        )
        assert one == Changed(1, {}, kept(driver, "a").owner)
        assert (two, three) == (Changed(2, {"l": ("2",)}), 0)

    @pytest.mark.parametrize(
        ("refused", "why"),
        [
            (UpdateSession("z", "t", {"a": "2"}, version=7), Refused(VERSION, "1/1")),
            (UpdateSession("z", "t", {"a": "2"}, owner=5), Refused(OWNER, "1/")),
            (UpdateSession("z", "t", {}, replaces={"l": Replace(0, "x")}), Refused(INDEX, "1/0/l")),
            (
                UpdateSession("z", "t", {"b": "2"}, limits=SessionLimits(1, 9, 9)),
                Refused(LIMIT, "1/fields/1/2/"),
            ),
        ],
        ids=["version", "owner", "index", "limit"],
    )
    def test_if_one_change_is_refused_none_is_made(
        self, driver: StoreDriver, refused: UpdateSession, why: Refused
    ) -> None:
        driver.one(setting("z", "t0"))
        before = kept(driver, "z")
        driver.clock.forward(1)
        assert driver.one(UpdateSessions((setting("new"), refused, setting("y")))) == why
        assert ids(driver) == ["z"]
        assert kept(driver, "z") == before
        # It left nothing behind that a later change would see.
        assert driver.one(UpdateSessions((setting("new", "t2"), setting("y", "t2")))) == [1, 1]

    def test_a_field_that_is_present_does_not_refuse_the_others(self, driver: StoreDriver) -> None:
        driver.one(setting("b", "t0"))
        group = UpdateSessions((setting("a"), UpdateSession("b", "t", {"a": "2"}, absent=("a",))))
        assert driver.one(group) == [1, 2]
        assert kept(driver, "b").fields == {"a": "1"}

    def test_a_repeat_changes_nothing_and_returns_the_same(self, driver: StoreDriver) -> None:
        driver.one(UpdateSession("b", "t0", {}, appends={"l": Append(("1", "2"))}))
        group = UpdateSessions(
            (
                UpdateSession("a", "t", {"n": "1"}, take=True),
                UpdateSession("b", "t", {}, pops={"l": 1}),
            )
        )
        answer = driver.one(group)
        assert driver.one(group) == answer
        driver.commit(setting("a", "x", "9"), setting("b", "x", "9"))
        before = [kept(driver, id) for id in "ab"]
        driver.clock.forward(1)
        assert driver.commit(group, group) == [answer, answer]
        assert [kept(driver, id) for id in "ab"] == before

    def test_a_repeat_is_known_while_one_session_remembers_it(self, driver: StoreDriver) -> None:
        group = UpdateSessions((setting("a"), setting("b")))
        assert driver.one(group) == [1, 1]
        driver.commit(*(setting("a", f"x{n}", str(n)) for n in range(30)))
        driver.one(DeleteSession("b", "f"))
        assert driver.one(group) == [31, 1]
        assert (kept(driver, "a").fields, driver.store.session("b")) == ({"a": "29"}, None)

    def test_a_group_and_its_entry_are_one(self, driver: StoreDriver) -> None:
        row = driver.held()
        group = UpdateSessions((setting("a"), setting("b")), record=noted(row, 1))
        assert driver.commit(group, group) == [[1, 1], [1, 1]]
        refused = UpdateSessions(
            (setting("a", "t2"), setting("b", "t2")._replace(version=9)), record=noted(row, 2)
        )
        assert driver.one(refused) == Refused(VERSION, "1/1")
        driver.one(setting("b", "x")._replace(version=1))
        # A repeat returns what was recorded, whatever holds now.
        assert driver.one(refused) == Refused(VERSION, "1/1")
        assert [json.loads(entry.value or "") for entry in driver.store.journal(row.pk)] == [
            {"changes": [{"version": 1}, {"version": 1}]},
            {"refused": [VERSION, "1/1"]},
        ]
        assert kept(driver, "a").version == 1

    def test_a_group_under_another_fence_is_refused(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.release(row)
        driver.take()
        seq = driver.store.last_seq(row.pk) + 1
        group = UpdateSessions((setting("a"), setting("b")), record=noted(row, seq))
        assert driver.one(group) == Refused(FENCE)
        assert (ids(driver), driver.store.last_seq(row.pk)) == ([], seq - 1)

    def test_a_session_that_occurs_twice_is_a_bad_value(self, driver: StoreDriver) -> None:
        row = driver.held()
        for group in (
            UpdateSessions((setting("a", "t1"), setting("a", "t2"))),
            UpdateSessions((setting("a"), setting("b")._replace(record=noted(row, 1)))),
        ):
            with pytest.raises(BadValue):
                driver.one(group)
        assert ids(driver) == []

    def test_groups_and_single_changes_of_a_batch_follow_each_other(
        self, driver: StoreDriver
    ) -> None:
        assert driver.commit(
            setting("a", "t1"),
            UpdateSessions((setting("a", "t2"), setting("b", "t2"))),
            setting("b", "t3")._replace(version=1),
            UpdateSessions((setting("b", "t4"), setting("a", "t4")._replace(version=9))),
            setting("a", "t5"),
        ) == [1, [2, 1], 2, Refused(VERSION, "1/2"), 3]
