"""Release(waiting): a run that waits holds no worker, and nothing it waits for falls into the gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.rows import RunQuery
from outlast.store.verbs import FENCE, Cancel, Release, Retry, Send, Settle
from outlast.testing.conformance.harness import Desk, Promises


def settled(status: str) -> Callable[[Desk], None]:
    def end(desk: Desk) -> None:
        desk.settle(desk.row("child"), status)

    return end


def cancelled_before_it_started(desk: Desk) -> None:
    desk.release(desk.row("child"), interrupted=False)
    desk.settle(desk.take("child"), "parked")
    assert desk.one(Cancel("child", "no")) == "cancelled"


def dead_of_interruptions(desk: Desk) -> None:
    assert desk.release(desk.row("child")) == "dead"


def dead_of_failures(desk: Desk) -> None:
    assert desk.release(desk.row("child"), failed=True) == "dead"


def dead_of_deaths(desk: Desk) -> None:
    assert desk.lease_over("w2").dead == ("child",)


ENDS = {
    "done": settled("done"),
    "failed": settled("failed"),
    "cancelled": settled("cancelled"),
    "cancelled while parked": cancelled_before_it_started,
    "dead of interruptions": dead_of_interruptions,
    "dead of failures": dead_of_failures,
    "dead of deaths": dead_of_deaths,
}


class WaitingPromises(Promises):
    def test_a_waiting_run_is_claimable_when_it_is_due(self, desk: Desk) -> None:
        row = desk.held()
        now = desk.wait(row, due=desk.clock.now + 3600.0)
        assert (now.status, now.worker, now.due, now.ready, now.reason) == (
            "waiting", None, desk.clock.now + 3600.0, 0, "waits"
        )  # fmt: skip
        assert desk.claim() == []
        desk.clock.forward(3599)
        assert desk.claim() == []
        desk.clock.forward(1)
        assert [r.status for r in desk.claim()] == ["running"]

    def test_to_wait_is_no_interruption(self, desk: Desk) -> None:
        row = desk.held()
        now = desk.wait(row, due=desk.clock.now)
        assert (now.interruptions, now.interrupted) == (0, None)
        assert desk.kinds(row) == []

    def test_a_run_that_waited_is_not_ahead_of_new_work_any_more(self, desk: Desk) -> None:
        desk.release(desk.held())
        desk.submit("new")
        desk.clock.forward(5)
        desk.wait(desk.take(), due=desk.clock.now)
        assert [r.id for r in desk.claim(limit=5)] == ["new", "r"]

    def test_a_run_that_waits_for_a_message_only_is_never_due(self, desk: Desk) -> None:
        desk.wait(desk.held(), waits=("a",))
        desk.clock.forward(50 * 365 * 86400)
        assert desk.claim() == []

    def test_what_it_waits_for_can_be_seen(self, desk: Desk) -> None:
        desk.wait(desk.held(), waits=("approval", "stop"))
        assert [r.id for r in desk.store.runs(RunQuery(waiting_for="stop"))] == ["r"]
        desk.one(Send("r", "stop", "1", "1"))
        desk.claim()
        assert desk.store.runs(RunQuery(waiting_for="stop")) == []

    def test_a_repeat_is_accepted_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held()
        verb = Release(row.pk, row.fence, "waits", waiting=True, due=desk.clock.now + 9, waits=("a",))
        assert desk.one(verb) == "waiting"
        before = desk.row()
        desk.clock.forward(5)
        assert desk.commit(verb, verb._replace(due=desk.clock.now)) == ["waiting", "waiting"]
        assert desk.row() == before
        desk.one(Send("r", "a", "1", "1"))
        desk.take()
        assert desk.one(verb).why == "fence"

    # -- messages

    def test_a_message_of_a_name_it_waits_for_makes_it_claimable(self, desk: Desk) -> None:
        desk.wait(desk.held(), waits=("a", "b"))
        assert desk.claim() == []
        desk.one(Send("r", "b", "1", "1"))
        assert (desk.row().due, desk.row().ready) == (desk.clock.now, 1)
        assert [r.id for r in desk.claim()] == ["r"]

    @pytest.mark.parametrize("name", ["c", "a b", "", "\n", "aa"])
    def test_another_message_does_not(self, desk: Desk, name: str) -> None:
        desk.wait(desk.held(), due=desk.clock.now + 100, waits=("a", "b"))
        before = desk.row()
        desk.one(Send("r", name, "1", "1"))
        assert desk.row() == before

    def test_a_message_sent_again_does_not_wake_who_has_seen_it(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Send("r", "a", "1", "1"))
        before = desk.wait(row, waits=("a",), seen=1)
        desk.one(Send("r", "a", "1", "again"))
        assert desk.row() == before
        assert desk.claim() == []

    @pytest.mark.parametrize(("seen", "due"), [(0, True), (1, True), (2, False), (3, False)])
    def test_a_message_that_the_life_had_not_seen_makes_it_due_at_once(
        self, desk: Desk, seen: int, due: bool
    ) -> None:
        row = desk.held()
        desk.commit(Send("r", "a", "1", "1"), Send("r", "a", "2", "1"), Send("r", "other", "3", "1"))
        now = desk.wait(row, waits=("a",), seen=seen)
        assert (now.due == desk.clock.now, now.ready) == (due, int(due))
        assert [r.id for r in desk.claim()] == ["r"] * due

    def test_a_message_that_nobody_waits_for_does_not(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Send("r", "other", "1", "1"))
        desk.wait(row, waits=("a",))
        assert desk.claim() == []

    def test_what_is_due_already_stays_due_when_there_is_more_to_know(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Send("r", "a", "1", "1"))
        past = desk.clock.now - 5
        assert desk.wait(row, due=past, waits=("a",)).due == past

    # -- cancel requests

    def test_a_cancel_request_makes_it_claimable(self, desk: Desk) -> None:
        desk.wait(desk.held())
        assert desk.one(Cancel("r", "stop")) == "waiting"
        assert [r.cancel for r in desk.claim()] == ["stop"]

    def test_a_cancel_request_before_it_waits_makes_it_due_at_once(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Cancel("r", "stop"))
        assert desk.wait(row).due == desk.clock.now
        assert [r.cancel for r in desk.claim()] == ["stop"]

    # -- children

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    def test_the_end_of_a_child_makes_it_claimable(self, desk: Desk, end: Callable[[Desk], None]) -> None:
        desk.enlist("w2")
        row = desk.held(worker="w2")
        desk.held("child", parent="r", attempts_max=1, interruptions_max=1)
        desk.wait(row, children=("child",))
        assert desk.claim("w2") == []
        end(desk)
        assert desk.row("child").ended is not None
        assert [r.id for r in desk.claim("w2")] == ["r"]

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    def test_a_child_that_had_ended_makes_it_due_at_once(
        self, desk: Desk, end: Callable[[Desk], None]
    ) -> None:
        desk.enlist("w2")
        row = desk.held(worker="w2")
        desk.held("child", parent="r", attempts_max=1, interruptions_max=1)
        desk.held("other", parent="r", worker="w2")
        end(desk)
        assert desk.wait(row, children=("other", "child")).due == desk.clock.now
        assert [r.id for r in desk.claim("w2")] == ["r"]

    def test_a_child_that_is_not_there_makes_it_due_at_once(self, desk: Desk) -> None:
        row = desk.held()
        desk.held("child", parent="r")
        desk.wait(row, children=("child", "lost"))
        assert [r.id for r in desk.claim("w2")] == ["r"]

    @pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked"])
    def test_a_child_that_is_under_way_does_not(self, desk: Desk, status: str) -> None:
        row = desk.held()
        if status == "queued":
            desk.submit("child", parent="r", delay=100.0)
        else:
            child = desk.held("child", parent="r")
            if status == "waiting":
                desk.wait(child)
            elif status == "parked":
                desk.settle(child, "parked")
        assert desk.row("child").status == status
        desk.wait(row, children=("child",))
        assert desk.claim("w2") == []

    def test_a_child_that_is_named_twice_is_one_child(self, desk: Desk) -> None:
        row = desk.held()
        desk.held("child", parent="r")
        desk.wait(row, children=("child", "child"))
        assert desk.claim("w2") == []

    def test_a_child_that_was_cancelled_before_it_started_wakes_its_parent(self, desk: Desk) -> None:
        row = desk.held()
        desk.submit("child", parent="r", delay=100.0)
        desk.wait(row, children=("child",))
        assert desk.one(Cancel("child", "no")) == "cancelled"
        assert [r.id for r in desk.claim("w2")] == ["r"]

    def test_an_end_does_not_hurry_a_parent_that_is_queued_for_later(self, desk: Desk) -> None:
        row = desk.held()
        child = desk.held("child", parent="r")
        desk.release(row, delay=100.0)
        before = desk.row()
        desk.settle(child)
        assert desk.row() == before

    def test_an_end_that_is_refused_wakes_nobody(self, desk: Desk) -> None:
        """Of children whose lives are over: one was given back, and one has ended and is told so again."""
        rows = [desk.held(id) for id in ("r", "other")]
        stale, heard = desk.held("stale", parent="r"), desk.held("heard", parent="r")
        good = desk.held("good", parent="other")
        desk.release(stale, interrupted=False)
        desk.settle(heard)
        desk.wait(rows[0], children=("stale",))
        desk.wait(rows[1], children=("good",))
        before = desk.row()
        assert (before.status, before.ready) == ("waiting", 0)
        assert desk.one(Settle(stale.pk, stale.fence, "done")).why == FENCE
        desk.settle(heard)
        assert desk.row() == before
        outcomes = desk.commit(*(Settle(row.pk, row.fence, "done") for row in (stale, heard, good)))
        assert (outcomes[0].why, outcomes[1:]) == (FENCE, [None, None])
        assert desk.row() == before
        assert desk.row("other").ready == 1

    # -- the rest of its life

    def test_a_waiting_run_that_was_woken_is_claimed_once(self, desk: Desk) -> None:
        desk.wait(desk.held(), waits=("a",))
        desk.commit(Send("r", "a", "1", "1"), Send("r", "a", "2", "1"), Cancel("r", "stop"))
        assert [r.id for r in desk.claim(limit=5)] == ["r"]
        assert desk.claim("w2", limit=5) == []

    def test_a_waiting_run_cannot_be_retried_and_outlives_its_worker(self, desk: Desk) -> None:
        before = desk.wait(desk.held())
        assert desk.one(Retry("r", "t")).why == "status"
        assert desk.lease_over().runs == ()
        assert desk.row() == before

    def test_many_sleepers_are_not_in_the_way_of_one_that_is_awake(self, desk: Desk) -> None:
        desk.enlist()
        for number in range(200):
            desk.wait(desk.held(f"s{number}", priority=9))
        desk.submit("awake")
        assert [r.id for r in desk.claim(limit=5)] == ["awake"]
