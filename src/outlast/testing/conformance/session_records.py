"""Check that a run's change to a session and its journal entry are one write."""

from __future__ import annotations

import json

from outlast.store.commands import (
    FENCE,
    VERSION,
    Append,
    DeleteSession,
    Refused,
    Release,
    UpdateSession,
)
from outlast.testing.conformance.harness import Contract, StoreDriver, entry
from outlast.testing.conformance.session_driver import kept, noted


class SessionRecordContract(Contract):
    def test_a_change_with_a_record_is_one_with_its_entry(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = UpdateSession(
            "s", "t1", {"a": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1, args="[1]")
        )
        assert driver.one(command) == 1
        (found,) = driver.store.journal(row.pk)
        assert (found.seq, found.kind, found.key, found.at, found.args) == (
            1,
            "session",
            "flow/s#1",
            1.5,
            "[1]",
        )
        assert json.loads(found.value or "") == {"version": 1}
        assert kept(driver).fields == {"a": "1"}
        assert driver.store.last_seq(row.pk) == 1

    def test_a_repeat_of_a_recorded_change_changes_nothing_and_says_what_it_said(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        command = UpdateSession(
            "s", "t1", {"n": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1)
        )
        assert driver.commit(command, command) == [1, 1]
        driver.one(UpdateSession("s", "elsewhere", {"n": "9"}, appends={"l": Append(("2",))}))
        before, journal = kept(driver), driver.store.journal(row.pk)
        driver.clock.forward(1)
        assert driver.one(command) == 1
        assert driver.one(UpdateSession("s", "another", {"n": "1"}, record=noted(row, 1))) == 1
        assert kept(driver) == before
        assert driver.store.items("s", "l") == ["1", "2"]
        assert driver.store.journal(row.pk) == journal

    def test_a_repeat_is_known_after_the_fence_is_void_and_the_session_gone(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        command = UpdateSession("s", "t1", {"n": "1"}, record=noted(row, 1))
        forgetting = DeleteSession("s", "f", record=noted(row, 2))
        assert driver.commit(command, forgetting) == [1, None]
        driver.one(Release(row.pk, row.fence, "drain"))
        assert driver.commit(command, forgetting) == [1, None]
        assert driver.store.session("s") is None
        driver.one(UpdateSession("s", "new", {"n": "2"}))
        assert driver.commit(command, forgetting) == [1, None]
        assert kept(driver).fields == {"n": "2"}

    def test_a_version_that_is_refused_is_recorded_too(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.commit(UpdateSession("s", "t1", {"a": "1"}), UpdateSession("s", "t2", {"a": "2"}))
        command = UpdateSession("s", "t3", {"a": "3"}, version=1, record=noted(row, 1))
        assert driver.one(command) == Refused(VERSION, "2")
        (found,) = driver.store.journal(row.pk)
        assert json.loads(found.value or "") == {"refused": [VERSION, "2"]}
        assert kept(driver).fields == {"a": "2"}
        driver.one(DeleteSession("s", "f"))
        driver.one(UpdateSession("s", "t4", {}))
        # Refused again, although that version is the current one now.
        assert driver.one(command) == Refused(VERSION, "2")
        assert kept(driver).fields == {}
        assert (
            driver.one(UpdateSession("s", "t5", {"a": "5"}, version=1, record=noted(row, 2))) == 2
        )

    def test_a_recorded_change_under_another_fence_is_refused_and_changes_nothing(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(UpdateSession("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        before = kept(driver)
        driver.release(row)
        after = driver.take()
        journal, seq = driver.store.journal(row.pk), driver.store.last_seq(row.pk) + 1
        change = UpdateSession(
            "s", "t2", {"a": "2"}, appends={"l": Append(("2",))}, record=noted(row, seq)
        )
        for stale in (
            change,
            change._replace(version=7),
            UpdateSession("s", "t1", {"a": "2"}, record=noted(row, seq)),
            DeleteSession("s", "f", record=noted(row, seq)),
        ):
            assert driver.one(stale) == Refused(FENCE)
        for void in (-row.fence, -after.fence, 0):
            assert driver.one(
                change._replace(record=noted(row, seq)._replace(fence=void))
            ) == Refused(FENCE)
        assert driver.one(
            change._replace(record=noted(row, seq)._replace(run=row.pk + 99))
        ) == Refused(FENCE)
        assert kept(driver) == before
        assert driver.store.items("s", "l") == ["1"]
        assert driver.store.journal(row.pk) == journal
        assert driver.one(change._replace(record=noted(after, seq))) == 2

    def test_a_place_in_the_journal_that_is_taken_by_another_life_refuses_the_change(
        self, driver: StoreDriver
    ) -> None:
        first = driver.held()
        driver.record(first, 1)
        driver.release(first)
        second = driver.take()
        assert driver.one(UpdateSession("s", "t", {"a": "1"}, record=noted(second, 1))) == Refused(
            FENCE
        )
        assert driver.one(DeleteSession("s", "f", record=noted(second, 1))) == Refused(FENCE)
        assert driver.store.session("s") is None

    def test_the_token_of_the_last_change_with_a_new_record_writes_only_the_entry(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        assert driver.one(UpdateSession("s", "t", {"a": "1"}, record=noted(row, 1))) == 1
        assert driver.one(UpdateSession("s", "t", {"a": "2"}, record=noted(row, 2))) == 1
        assert kept(driver).fields == {"a": "1"}
        assert [json.loads(e.value or "") for e in driver.store.journal(row.pk)] == [
            {"version": 1}
        ] * 2

    def test_deleting_with_a_record_happens_once(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(UpdateSession("s", "t1", {"a": "1"}))
        command = DeleteSession("s", "f", record=noted(row, 1))
        assert driver.one(command) is None
        (found,) = driver.store.journal(row.pk)
        assert (found.kind, json.loads(found.value or "")) == ("session", {})
        driver.one(UpdateSession("s", "t2", {"b": "1"}))
        assert driver.one(command) is None
        assert kept(driver).fields == {"b": "1"}
        assert driver.one(DeleteSession("absent", "f", record=noted(row, 2))) is None
        assert driver.store.last_seq(row.pk) == 2
        # The token is known, so only the entry is new.
        assert driver.one(command._replace(record=noted(row, 3))) is None
        assert driver.store.last_seq(row.pk) == 3
        assert kept(driver).fields == {"b": "1"}

    def test_recorded_changes_stand_between_other_entries_of_a_batch(
        self, driver: StoreDriver
    ) -> None:
        row, other = driver.held(), driver.held("other")
        outcomes = driver.commit(
            entry(row, 1),
            UpdateSession("s", "t1", {"a": "1"}, record=noted(row, 2)),
            entry(row, 3),
            UpdateSession("s", "t2", {"a": "2"}, record=noted(other, 1)),
            UpdateSession("s", "t3", {"a": "3"}, version=1, record=noted(row, 4)),
            DeleteSession("s", "f", record=noted(row, 5)),
            entry(row, 6),
        )
        assert outcomes == [None, 1, None, 2, Refused(VERSION, "2"), None, None]
        assert [(e.seq, e.kind) for e in driver.store.journal(row.pk)] == [
            (1, "step"), (2, "session"), (3, "step"), (4, "session"), (5, "session"), (6, "step")
        ]  # fmt: skip
        assert driver.store.session("s") is None

    def test_a_run_that_changed_a_session_has_got_somewhere(self, driver: StoreDriver) -> None:
        row = driver.held(attempts_max=2)
        driver.one(UpdateSession("s", "t", {"a": "1"}, record=noted(row, 1)))
        assert driver.die(row).deaths_in_a_row == 0
        again = driver.die(driver.take(worker="w2"))
        assert (again.status, again.deaths_in_a_row) == ("queued", 1)
