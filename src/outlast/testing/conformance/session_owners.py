"""Check that a session has one owner at a time, and that an old one's writes are refused."""

from __future__ import annotations

import json

from outlast.store.commands import (
    OWNER,
    Append,
    Changed,
    DeleteSession,
    Prune,
    Refused,
    UpdateSession,
)
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import kept, noted


def taken(driver: StoreDriver, token: str, ttl: float | None = None) -> int:
    answer = driver.one(UpdateSession("s", token, {}, ttl, take=True))
    assert isinstance(answer, Changed)
    assert answer.owner is not None
    return answer.owner


class SessionOwnerContract(Contract):
    def test_a_take_makes_an_owner_and_a_session(self, driver: StoreDriver) -> None:
        owner = taken(driver, "t1")
        assert (kept(driver).version, kept(driver).owner) == (1, owner)
        assert driver.one(UpdateSession("s", "t2", {"a": "1"}, owner=owner)) == 2
        assert (kept(driver).fields, kept(driver).owner) == ({"a": "1"}, owner)

    def test_the_writes_of_an_old_owner_are_refused_and_change_nothing(
        self, driver: StoreDriver
    ) -> None:
        old = taken(driver, "t1")
        driver.one(UpdateSession("s", "t2", {"a": "1"}, owner=old, appends={"l": Append(("1",))}))
        new = taken(driver, "t3")
        assert new > old
        before = kept(driver)
        driver.clock.forward(1)
        for command in (
            UpdateSession("s", "t4", {"a": "2"}, owner=old),
            UpdateSession("s", "t5", {}, owner=old, appends={"l": Append(("2",))}),
            UpdateSession("s", "t6", {}, owner=old, pops={"l": 1}),
            UpdateSession("s", "t7", {}, owner=old, clear=True),
            UpdateSession("s", "t8", {}, owner=old, take=True),
        ):
            assert driver.one(command) == Refused(OWNER, str(new))
        assert kept(driver) == before
        assert driver.store.items("s", "l") == ["1"]
        # The answer of a write that was made before the take can still be repeated.
        made = UpdateSession("s", "t2", {"a": "1"}, owner=old, appends={"l": Append(("1",))})
        assert driver.one(made) == 2

    def test_a_repeated_take_returns_the_same_number(self, driver: StoreDriver) -> None:
        taking = UpdateSession("s", "t1", {"a": "1"}, take=True)
        first = driver.one(taking)
        assert driver.one(taking) == first
        new = taken(driver, "t2")
        assert driver.one(taking) == first
        assert kept(driver).owner == new

    def test_a_write_without_an_owner_is_not_checked_and_keeps_the_owner(
        self, driver: StoreDriver
    ) -> None:
        owner = taken(driver, "t1")
        assert driver.one(UpdateSession("s", "t2", {"a": "1"})) == 2
        assert kept(driver).owner == owner

    def test_a_session_that_ended_has_no_owner(self, driver: StoreDriver) -> None:
        write = UpdateSession("s", "w1", {"a": "1"})
        assert driver.one(write._replace(owner=1)) == Refused(OWNER, "")
        first = taken(driver, "t1", ttl=10.0)
        driver.clock.forward(11)
        assert driver.one(write._replace(owner=first)) == Refused(OWNER, "")
        assert driver.store.session("s") is None
        second = taken(driver, "t2")
        driver.one(DeleteSession("s", "f"))
        assert driver.one(write._replace(owner=second)) == Refused(OWNER, "")
        assert driver.one(write) == 1
        assert kept(driver).owner is None
        assert driver.one(write._replace(token="w2", owner=second)) == Refused(OWNER, "")

    def test_the_owner_of_a_pruned_session_is_not_the_owner_of_a_new_one(
        self, driver: StoreDriver
    ) -> None:
        old = taken(driver, "t1", ttl=10.0)
        driver.clock.forward(11)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 1
        new = taken(driver, "t2")
        assert new > old
        assert driver.one(UpdateSession("s", "w", {"a": "1"}, owner=old)) == Refused(
            OWNER, str(new)
        )

    def test_numbers_of_owners_and_fences_of_runs_are_never_the_same(
        self, driver: StoreDriver
    ) -> None:
        numbers = [
            number
            for n in range(5)
            for number in (taken(driver, f"t{n}"), driver.held(f"r{n}").fence)
        ]
        assert len(set(numbers)) == 10

    def test_a_recorded_take_is_known_to_every_later_execution(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = UpdateSession("s", "t1", {}, take=True, record=noted(row, 1))
        answer = driver.one(command)
        assert isinstance(answer, Changed)
        (found,) = driver.store.journal(row.pk)
        assert json.loads(found.value or "") == {"version": 1, "owner": answer.owner}
        taken(driver, "t2")
        assert driver.one(command) == answer
