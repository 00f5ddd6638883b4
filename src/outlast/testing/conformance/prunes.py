"""Check Prune: what may be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.commands import (
    FENCE,
    Cancel,
    Claim,
    Command,
    DeleteSession,
    Prune,
    Retry,
    Send,
    Settle,
    Submit,
    SubmitMany,
    UpdateSession,
)
from outlast.store.rows import RunQuery, RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver
from outlast.testing.conformance.session_driver import noted


def letter(driver: StoreDriver, id: str = "r", **fields: Any) -> RunRow:
    """Return a dead letter that has recorded an intent."""
    row = driver.held(id, interruptions_max=1, **fields)
    assert driver.record(row, 1, kind="intent") is None
    assert driver.release(row, "deploy") == "dead"
    return row


def in_batches(driver: StoreDriver, before: float, limit: int) -> list[int]:
    """Prune in batches until one finds less than the limit, as `app.prune` does.

    Return how many runs each batch deleted.
    """
    counts: list[int] = []
    while not counts or counts[-1] == limit:
        counts.append(driver.one(Prune(before, limit=limit)))
    return counts


class PruneContract(Contract):
    def test_a_pruned_run_is_gone_with_its_journal_and_mailbox(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.record(row, 1)
        driver.one(Send("r", "a", "1", "1"))
        driver.settle(row)
        # Prune deletes what ended before this time, not at it.
        assert driver.one(Prune(driver.clock.now)) == 0
        assert driver.one(Prune(driver.clock.now + 1)) == 1
        assert driver.store.run("r") is None
        assert driver.store.journal(row.pk) == []
        assert driver.store.messages(row.pk) == []
        assert driver.one(Prune(driver.clock.now + 1)) == 0

    def test_the_id_of_a_pruned_run_can_be_used_again_for_a_new_one(
        self, driver: StoreDriver
    ) -> None:
        old = driver.ended()
        driver.one(Prune(driver.clock.now + 1))
        new = driver.submit()
        assert new.pk > old.pk
        assert (new.status, new.started) == ("queued", None)

    @pytest.mark.parametrize("status", ["queued", "running", "parked"])
    def test_a_run_that_has_not_ended_stays(self, driver: StoreDriver, status: str) -> None:
        if status == "queued":
            driver.submit()
        elif status == "running":
            driver.held()
        else:
            driver.ended(status=status)
        before = driver.row()
        assert driver.one(Prune(driver.clock.now + 1e9)) == 0
        assert driver.row() == before

    def test_the_oldest_ends_go_first_up_to_the_limit(self, driver: StoreDriver) -> None:
        for id in ("c", "a", "b"):
            driver.ended(id)
            driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now, limit=2)) == 2
        assert driver.store.run("b") is not None
        assert driver.one(Prune(driver.clock.now, limit=2)) == 1

    def test_what_stays_for_its_parents_sake_keeps_nothing_behind_it_from_being_pruned(
        self, driver: StoreDriver
    ) -> None:
        parent = driver.held("parent")
        for number in range(7):
            driver.ended(f"kept{number}", parent="parent")
            driver.clock.forward(1)
            driver.ended(f"old{number}")
        before = driver.clock.now + 1
        assert in_batches(driver, before, 3) == [3, 3, 1]
        assert all(driver.store.run(f"old{number}") is None for number in range(7))
        assert all(driver.store.run(f"kept{number}") is not None for number in range(7))
        driver.settle(parent)
        assert driver.one(Prune(before, limit=100)) == 7 + (driver.clock.now < before)

    def test_a_child_stays_as_long_as_its_parent_has_not_ended(self, driver: StoreDriver) -> None:
        parent = driver.held("parent")
        driver.ended("child", parent="parent")
        driver.ended("orphan", parent="never was")
        assert driver.one(Prune(driver.clock.now + 1)) == 1
        assert driver.store.run("orphan") is None
        assert driver.store.run("child") is not None
        driver.settle(parent, "parked")
        assert driver.one(Prune(driver.clock.now + 1)) == 0

    def test_a_child_goes_with_its_parent(self, driver: StoreDriver) -> None:
        driver.ended("parent")
        driver.ended("child", parent="parent")
        assert driver.one(Prune(driver.clock.now + 1)) == 2

    def test_who_names_runs_deletes_these_if_they_may_go_and_no_others(
        self, driver: StoreDriver
    ) -> None:
        held = driver.held("held")
        for id, parent in (("mine", None), ("too", None), ("other", None), ("child", "held")):
            driver.ended(id, parent=parent)
        named = ("mine", "too", "mine", "child", "held", "never was")
        # Prune deletes what ended before this time, not at it.
        assert driver.one(Prune(driver.clock.now, ids=named)) == 0
        driver.clock.forward(1)
        driver.ended("later")
        assert driver.one(Prune(driver.clock.now, ids=(*named, "later"))) == 2
        assert [driver.store.run(id) for id in ("mine", "too")] == [None, None]
        assert None not in [driver.store.run(id) for id in ("other", "child", "held", "later")]
        driver.settle(held)
        driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now, limit=1, ids=named)) == 1
        assert driver.one(Prune(driver.clock.now, ids=named)) == 1
        assert driver.one(Prune(driver.clock.now)) == 2

    def test_what_may_not_go_does_not_stand_before_what_may(self, driver: StoreDriver) -> None:
        parent = driver.held("parent")
        children = (Submit(f"c{n}", "flow", "[]", "t", "s", parent="parent") for n in range(300))
        driver.one(SubmitMany(tuple(children)))
        rows = driver.one(Claim("w1", "all", limit=300))
        driver.commit(*(Settle(row.pk, row.fence, "done") for row in rows))
        for number in range(3):
            driver.clock.forward(1)
            driver.ended(f"x{number}")
        driver.clock.forward(1)
        counts = [driver.one(Prune(driver.clock.now, limit=2)) for _ in range(3)]
        assert counts == [2, 1, 0]
        driver.settle(parent)
        driver.clock.forward(1)
        assert driver.one(Prune(driver.clock.now, limit=1_000)) == 301

    # -- dead letters

    def test_a_dead_letter_stays_until_what_it_did_is_undone(self, driver: StoreDriver) -> None:
        row = letter(driver)
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now)) == 0
        assert driver.kinds(row) == ["intent", "interruption"]
        assert driver.one(Cancel("r", "given up")) == "queued"
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now)) == 0
        driver.settle(driver.take(), "cancelled")
        assert driver.one(Prune(driver.clock.now + 1)) == 1
        assert driver.store.run("r") is None
        assert driver.store.journal(row.pk) == []

    def test_a_dead_letter_that_was_retried_and_is_done_is_pruned_as_any_other(
        self, driver: StoreDriver
    ) -> None:
        letter(driver)
        driver.one(Retry("r", "t"))
        driver.settle(driver.take())
        assert driver.one(Prune(driver.clock.now + 1)) == 1

    def test_a_dead_item_stays_too(self, driver: StoreDriver) -> None:
        driver.put(attempts_max=1)
        driver.release(driver.take("i"), failed=True)
        assert driver.row("i").status == "dead"
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        assert driver.one(Prune(driver.clock.now + 1, items=True)) == 0
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 1

    def test_who_asks_for_it_forgets_dead_letters_too(self, driver: StoreDriver) -> None:
        row = letter(driver)
        driver.ended("done")
        driver.ended("child", parent="r")
        # Prune deletes what ended before this time, not at it.
        assert driver.one(Prune(driver.clock.now, dead=True)) == 0
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 3
        assert driver.store.journal(row.pk) == []

    def test_who_names_a_dead_letter_deletes_it(self, driver: StoreDriver) -> None:
        letter(driver)
        letter(driver, "other")
        driver.ended("child", parent="other")
        assert driver.one(Prune(driver.clock.now + 1, ids=("r", "child"))) == 2
        assert [row.id for row in driver.store.runs(RunQuery())] == ["other"]

    def test_a_dead_letter_keeps_those_below_it_as_they_are_undone_with_it(
        self, driver: StoreDriver
    ) -> None:
        letter(driver)
        driver.ended("child", parent="r")
        driver.ended("grandchild", "failed", parent="child")
        driver.clock.forward(10)
        assert driver.one(Prune(driver.clock.now)) == 0
        assert driver.one(Cancel("r", "given up")) == "queued"
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        driver.settle(driver.take(), "cancelled")
        assert driver.one(Prune(driver.clock.now + 1)) == 3

    def test_a_dead_letter_keeps_those_above_it(self, driver: StoreDriver) -> None:
        """Keep ancestors: their ids would be new work that finds the dead letter as its child."""
        driver.ended("grandparent")
        driver.ended("parent", parent="grandparent")
        letter(driver, "dead", parent="parent")
        driver.ended("sibling", parent="parent")
        driver.ended("aunt", parent="grandparent")
        assert driver.one(Prune(driver.clock.now + 1)) == 2
        assert {row.id for row in driver.store.runs(RunQuery())} == {
            "grandparent",
            "parent",
            "dead",
        }
        assert driver.one(Cancel("dead", "given up")) == "queued"
        driver.settle(driver.take("dead"), "cancelled")
        assert driver.one(Prune(driver.clock.now + 1)) == 3

    def test_what_is_far_below_a_run_that_has_not_ended_stays(self, driver: StoreDriver) -> None:
        """Keep them, because the ancestor may still have to compensate them through its child."""
        above = driver.held("grandparent")
        driver.ended("parent", parent="grandparent")
        driver.ended("child", parent="parent")
        assert driver.one(Prune(driver.clock.now + 1)) == 0
        assert driver.one(Prune(driver.clock.now + 1, dead=True)) == 0
        driver.settle(above)
        assert driver.one(Prune(driver.clock.now + 1)) == 3

    def test_dead_letters_do_not_stand_before_what_may_go(self, driver: StoreDriver) -> None:
        for number in range(7):
            letter(driver, f"dead{number}")
            driver.clock.forward(1)
            driver.ended(f"old{number}")
        before = driver.clock.now + 1
        assert in_batches(driver, before, 3) == [3, 3, 1]
        assert {row.id for row in driver.store.runs(RunQuery())} == {
            f"dead{number}" for number in range(7)
        }
        assert driver.one(Prune(before, limit=5, dead=True)) == 5
        assert driver.one(Prune(before, limit=5, dead=True)) == 2

    # -- in a batch

    @pytest.mark.parametrize("command", ["record", "keep", "forget"])
    def test_a_late_record_of_a_run_that_is_pruned_in_the_same_batch_is_refused(
        self, driver: StoreDriver, command: str
    ) -> None:
        """Cover a life that does not know of its end yet, and a prune by the same process."""
        late = noted(driver.ended(), 1)
        late = late._replace(fence=abs(late.fence))
        commands: dict[str, Command] = {
            "record": late,
            "keep": UpdateSession("s", "t", {"f": "1"}, record=late),
            "forget": DeleteSession("s", "t", record=late),
        }
        driver.clock.forward(10)
        refused, pruned = driver.commit(commands[command], Prune(driver.clock.now - 5))
        assert (refused.why, pruned) == (FENCE, 1)
        assert driver.store.run("r") is None
        assert driver.store.session("s") is None

    def test_of_what_one_batch_says_of_a_session_the_last_counts_when_it_is_pruned(
        self, driver: StoreDriver
    ) -> None:
        driver.commit(
            UpdateSession("kept", "1", {"f": "1"}, ttl=10.0), UpdateSession("kept", "2", {"f": "2"})
        )
        driver.commit(UpdateSession("gone", "1", {"f": "1"}, ttl=10.0), DeleteSession("gone", "2"))
        driver.commit(
            UpdateSession("short", "1", {"f": "1"}),
            UpdateSession("short", "2", {"f": "2"}, ttl=10.0),
        )
        driver.clock.forward(100)
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 2
        assert driver.one(Prune(driver.clock.now, sessions=True)) == 0
        kept = driver.store.session("kept")
        assert kept is not None
        assert kept.fields == {"f": "2"}
