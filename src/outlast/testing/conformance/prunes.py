"""Prune: what may be forgotten."""

from __future__ import annotations

import pytest

from outlast.store.verbs import Prune, Send
from outlast.testing.conformance.harness import Desk, Promises


class PrunePromises(Promises):
    def test_a_pruned_run_is_gone_with_its_journal_and_mailbox(self, desk: Desk) -> None:
        row = desk.held()
        desk.record(row, 1)
        desk.one(Send("r", "a", "1", "1"))
        desk.settle(row)
        assert desk.one(Prune(desk.clock.now)) == 0  # before, not at
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run("r") is None
        assert desk.store.journal(row.pk) == []
        assert desk.store.messages(row.pk) == []
        assert desk.one(Prune(desk.clock.now + 1)) == 0

    def test_the_id_of_a_pruned_run_can_be_used_again_for_a_new_one(self, desk: Desk) -> None:
        old = desk.ended()
        desk.one(Prune(desk.clock.now + 1))
        new = desk.submit()
        assert new.pk > old.pk
        assert (new.status, new.started) == ("queued", None)

    @pytest.mark.parametrize("status", ["queued", "running", "parked"])
    def test_a_run_that_has_not_ended_stays(self, desk: Desk, status: str) -> None:
        if status == "queued":
            desk.submit()
        elif status == "running":
            desk.held()
        else:
            desk.ended(status=status)
        before = desk.row()
        assert desk.one(Prune(desk.clock.now + 1e9)) == 0
        assert desk.row() == before

    def test_the_oldest_ends_go_first_up_to_the_limit(self, desk: Desk) -> None:
        for id in ("c", "a", "b"):
            desk.ended(id)
            desk.clock.forward(1)
        assert desk.one(Prune(desk.clock.now, limit=2)) == 2
        assert desk.store.run("b") is not None
        assert desk.one(Prune(desk.clock.now, limit=2)) == 1

    def test_a_child_stays_as_long_as_its_parent_has_not_ended(self, desk: Desk) -> None:
        parent = desk.held("parent")
        desk.ended("child", parent="parent")
        desk.ended("orphan", parent="never was")
        assert desk.one(Prune(desk.clock.now + 1)) == 1
        assert desk.store.run("orphan") is None
        assert desk.store.run("child") is not None
        desk.settle(parent, "parked")
        assert desk.one(Prune(desk.clock.now + 1)) == 0

    def test_a_child_goes_with_its_parent(self, desk: Desk) -> None:
        desk.ended("parent")
        desk.ended("child", parent="parent")
        assert desk.one(Prune(desk.clock.now + 1)) == 2
