"""Check Release(waiting): a waiting run holds no worker, and misses nothing that it waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outlast.store.commands import FENCE, Cancel, Release, Retry, Send, Settle
from outlast.store.rows import RunQuery
from outlast.testing.conformance.harness import Contract, StoreDriver


def settled(status: str) -> Callable[[StoreDriver], None]:
    def end(driver: StoreDriver) -> None:
        driver.settle(driver.row("child"), status)

    return end


def cancelled_before_it_started(driver: StoreDriver) -> None:
    driver.release(driver.row("child"), interrupted=False)
    driver.settle(driver.take("child"), "parked")
    assert driver.one(Cancel("child", "no")) == "cancelled"


def dead_of_interruptions(driver: StoreDriver) -> None:
    assert driver.release(driver.row("child")) == "dead"


def dead_of_failures(driver: StoreDriver) -> None:
    assert driver.release(driver.row("child"), failed=True) == "dead"


def dead_of_deaths(driver: StoreDriver) -> None:
    assert driver.lease_over("w2").dead == ("child",)


ENDS = {
    "done": settled("done"),
    "failed": settled("failed"),
    "cancelled": settled("cancelled"),
    "cancelled while parked": cancelled_before_it_started,
    "dead of interruptions": dead_of_interruptions,
    "dead of failures": dead_of_failures,
    "dead of deaths": dead_of_deaths,
}


class WaitingContract(Contract):
    def test_a_waiting_run_is_claimable_when_it_is_due(self, driver: StoreDriver) -> None:
        row = driver.held()
        now = driver.wait(row, due=driver.clock.now + 3600.0)
        assert (now.status, now.worker, now.due, now.ready, now.reason) == (
            "waiting", None, driver.clock.now + 3600.0, 0, "waits"
        )  # fmt: skip
        assert driver.claim() == []
        driver.clock.forward(3599)
        assert driver.claim() == []
        driver.clock.forward(1)
        assert [r.status for r in driver.claim()] == ["running"]

    def test_to_wait_is_no_interruption(self, driver: StoreDriver) -> None:
        row = driver.held()
        now = driver.wait(row, due=driver.clock.now)
        assert (now.interruptions, now.interrupted) == (0, None)
        assert driver.kinds(row) == []

    def test_a_run_that_waited_is_not_ahead_of_new_work_any_more(self, driver: StoreDriver) -> None:
        driver.release(driver.held())
        driver.submit("new")
        driver.clock.forward(5)
        driver.wait(driver.take(), due=driver.clock.now)
        assert [r.id for r in driver.claim(limit=5)] == ["new", "r"]

    def test_a_run_that_waits_for_a_message_only_is_never_due(self, driver: StoreDriver) -> None:
        driver.wait(driver.held(), waits=("a",))
        driver.clock.forward(50 * 365 * 86400)
        assert driver.claim() == []

    def test_what_it_waits_for_can_be_seen(self, driver: StoreDriver) -> None:
        driver.wait(driver.held(), waits=("approval", "stop"))
        assert [r.id for r in driver.store.runs(RunQuery(waiting_for="stop"))] == ["r"]
        driver.one(Send("r", "stop", "1", "1"))
        driver.claim()
        assert driver.store.runs(RunQuery(waiting_for="stop")) == []

    def test_a_repeat_is_accepted_and_changes_nothing(self, driver: StoreDriver) -> None:
        row = driver.held()
        command = Release(
            row.pk, row.fence, "waits", waiting=True, due=driver.clock.now + 9, waits=("a",)
        )
        assert driver.one(command) == "waiting"
        before = driver.row()
        driver.clock.forward(5)
        assert driver.commit(command, command._replace(due=driver.clock.now)) == [
            "waiting",
            "waiting",
        ]
        assert driver.row() == before
        driver.one(Send("r", "a", "1", "1"))
        driver.take()
        assert driver.one(command).why == "fence"

    # -- messages

    def test_a_message_of_a_name_it_waits_for_makes_it_claimable(self, driver: StoreDriver) -> None:
        driver.wait(driver.held(), waits=("a", "b"))
        assert driver.claim() == []
        driver.one(Send("r", "b", "1", "1"))
        assert (driver.row().due, driver.row().ready) == (driver.clock.now, 1)
        assert [r.id for r in driver.claim()] == ["r"]

    @pytest.mark.parametrize("name", ["c", "a b", "", "\n", "aa"])
    def test_another_message_does_not(self, driver: StoreDriver, name: str) -> None:
        driver.wait(driver.held(), due=driver.clock.now + 100, waits=("a", "b"))
        before = driver.row()
        driver.one(Send("r", name, "1", "1"))
        assert driver.row() == before

    def test_a_message_sent_again_does_not_wake_who_has_seen_it(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Send("r", "a", "1", "1"))
        before = driver.wait(row, waits=("a",), seen=1)
        driver.one(Send("r", "a", "1", "again"))
        assert driver.row() == before
        assert driver.claim() == []

    @pytest.mark.parametrize(("seen", "due"), [(0, True), (1, True), (2, False), (3, False)])
    def test_a_message_that_the_life_had_not_seen_makes_it_due_at_once(
        self, driver: StoreDriver, seen: int, due: bool
    ) -> None:
        row = driver.held()
        driver.commit(
            Send("r", "a", "1", "1"), Send("r", "a", "2", "1"), Send("r", "other", "3", "1")
        )
        now = driver.wait(row, waits=("a",), seen=seen)
        assert (now.due == driver.clock.now, now.ready) == (due, int(due))
        assert [r.id for r in driver.claim()] == ["r"] * due

    def test_a_message_that_nobody_waits_for_does_not(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Send("r", "other", "1", "1"))
        driver.wait(row, waits=("a",))
        assert driver.claim() == []

    def test_what_is_due_already_stays_due_when_there_is_more_to_know(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Send("r", "a", "1", "1"))
        past = driver.clock.now - 5
        assert driver.wait(row, due=past, waits=("a",)).due == past

    # -- cancel requests

    def test_a_cancel_request_makes_it_claimable(self, driver: StoreDriver) -> None:
        driver.wait(driver.held())
        assert driver.one(Cancel("r", "stop")) == "waiting"
        assert [r.cancel for r in driver.claim()] == ["stop"]

    def test_a_cancel_request_before_it_waits_makes_it_due_at_once(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Cancel("r", "stop"))
        assert driver.wait(row).due == driver.clock.now
        assert [r.cancel for r in driver.claim()] == ["stop"]

    # -- children

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    def test_the_end_of_a_child_makes_it_claimable(
        self, driver: StoreDriver, end: Callable[[StoreDriver], None]
    ) -> None:
        driver.register_worker("w2")
        row = driver.held(worker="w2")
        driver.held("child", parent="r", attempts_max=1, interruptions_max=1)
        driver.wait(row, children=("child",))
        assert driver.claim("w2") == []
        end(driver)
        assert driver.row("child").ended is not None
        assert [r.id for r in driver.claim("w2")] == ["r"]

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    def test_a_child_that_had_ended_makes_it_due_at_once(
        self, driver: StoreDriver, end: Callable[[StoreDriver], None]
    ) -> None:
        driver.register_worker("w2")
        row = driver.held(worker="w2")
        driver.held("child", parent="r", attempts_max=1, interruptions_max=1)
        driver.held("other", parent="r", worker="w2")
        end(driver)
        assert driver.wait(row, children=("other", "child")).due == driver.clock.now
        assert [r.id for r in driver.claim("w2")] == ["r"]

    def test_a_child_that_is_not_there_makes_it_due_at_once(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.held("child", parent="r")
        driver.wait(row, children=("child", "lost"))
        assert [r.id for r in driver.claim("w2")] == ["r"]

    @pytest.mark.parametrize("status", ["queued", "running", "waiting", "parked"])
    def test_a_child_that_is_under_way_does_not(self, driver: StoreDriver, status: str) -> None:
        row = driver.held()
        if status == "queued":
            driver.submit("child", parent="r", delay=100.0)
        else:
            child = driver.held("child", parent="r")
            if status == "waiting":
                driver.wait(child)
            elif status == "parked":
                driver.settle(child, "parked")
        assert driver.row("child").status == status
        driver.wait(row, children=("child",))
        assert driver.claim("w2") == []

    def test_a_child_that_is_named_twice_is_one_child(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.held("child", parent="r")
        driver.wait(row, children=("child", "child"))
        assert driver.claim("w2") == []

    def test_a_child_that_was_cancelled_before_it_started_wakes_its_parent(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.submit("child", parent="r", delay=100.0)
        driver.wait(row, children=("child",))
        assert driver.one(Cancel("child", "no")) == "cancelled"
        assert [r.id for r in driver.claim("w2")] == ["r"]

    def test_an_end_does_not_hurry_a_parent_that_is_queued_for_later(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        child = driver.held("child", parent="r")
        driver.release(row, delay=100.0)
        before = driver.row()
        driver.settle(child)
        assert driver.row() == before

    def test_an_end_that_is_refused_wakes_nobody(self, driver: StoreDriver) -> None:
        """Cover children whose lives are over: one was released, one ended and settles again."""
        rows = [driver.held(id) for id in ("r", "other")]
        stale, heard = driver.held("stale", parent="r"), driver.held("heard", parent="r")
        good = driver.held("good", parent="other")
        driver.release(stale, interrupted=False)
        driver.settle(heard)
        driver.wait(rows[0], children=("stale",))
        driver.wait(rows[1], children=("good",))
        before = driver.row()
        assert (before.status, before.ready) == ("waiting", 0)
        assert driver.one(Settle(stale.pk, stale.fence, "done")).why == FENCE
        driver.settle(heard)
        assert driver.row() == before
        outcomes = driver.commit(
            *(Settle(row.pk, row.fence, "done") for row in (stale, heard, good))
        )
        assert (outcomes[0].why, outcomes[1:]) == (FENCE, [None, None])
        assert driver.row() == before
        assert driver.row("other").ready == 1

    # -- the rest of its life

    def test_a_waiting_run_that_was_woken_is_claimed_once(self, driver: StoreDriver) -> None:
        driver.wait(driver.held(), waits=("a",))
        driver.commit(Send("r", "a", "1", "1"), Send("r", "a", "2", "1"), Cancel("r", "stop"))
        assert [r.id for r in driver.claim(limit=5)] == ["r"]
        assert driver.claim("w2", limit=5) == []

    def test_a_waiting_run_cannot_be_retried_and_outlives_its_worker(
        self, driver: StoreDriver
    ) -> None:
        before = driver.wait(driver.held())
        assert driver.one(Retry("r", "t")).why == "status"
        assert driver.lease_over().runs == ()
        assert driver.row() == before

    def test_many_sleepers_are_not_in_the_way_of_one_that_is_awake(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        for number in range(200):
            driver.wait(driver.held(f"s{number}", priority=9))
        driver.submit("awake")
        assert [r.id for r in driver.claim(limit=5)] == ["awake"]
