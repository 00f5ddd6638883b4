"""Check Drain and RequestDrain: a worker takes nothing more and releases what had not started."""

from __future__ import annotations

import threading

import pytest

from outlast.store.commands import (
    DRAINING,
    ITEM,
    WORKER,
    Cancel,
    Claim,
    DeregisterWorker,
    Drain,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    RequestDrain,
    SetQueueLimits,
    Submit,
)
from outlast.testing.conformance.harness import LEASE, WAIT_SECONDS, Contract, StoreDriver


def own(id: str, worker: str = "w1") -> Submit:
    return Submit(id, "flow", "[]", f"token-of-{id}", "seed", worker=worker)


class DrainContract(Contract):
    # -- releasing

    def test_what_has_not_begun_goes_back_free_and_what_has_begun_stays(
        self, driver: StoreDriver
    ) -> None:
        begun = driver.held("begun")
        before = [driver.held("one"), driver.held("two", priority=3)]
        driver.clock.forward(5)
        assert driver.one(Drain("w1", "SIGTERM", (begun.fence,))) == ("one", "two")
        assert driver.row("begun") == begun
        for old in before:
            now = driver.row(old.id)
            assert now == old._replace(
                status="queued", fence=-old.fence, worker=None, due=driver.clock.now, ready=1,
                reason="its worker drains before it began",
            )  # fmt: skip
            assert driver.kinds(now) == []
        assert driver.store.held("w1") == [(begun.pk, begun.fence, "begun")]

    def test_a_drain_touches_nobody_elses_runs(self, driver: StoreDriver) -> None:
        driver.register_worker()
        other = driver.held("other", "w2")
        driver.submit("queued")
        before = [other, driver.row("queued")]
        assert driver.one(Drain("w1", "SIGTERM")) == ()
        assert [driver.row("other"), driver.row("queued")] == before
        assert {worker.id: bool(worker.draining) for worker in driver.store.workers()} == {
            "w1": True,
            "w2": False,
        }

    def test_what_it_gave_back_is_claimed_by_the_next_in_its_old_place(
        self, driver: StoreDriver
    ) -> None:
        driver.release(driver.held("returned"))
        driver.clock.forward(1)
        for id in ("first", "second"):
            driver.submit(id)
        driver.clock.forward(1)
        driver.take("returned")
        driver.take("first")
        assert driver.one(Drain("w1", "SIGTERM")) == ("returned", "first")
        assert driver.row("returned").interruptions == 1
        assert driver.row("returned").interrupted is not None
        assert [row.id for row in driver.claim("w2", limit=9)] == ["returned", "second", "first"]

    def test_a_life_that_lost_its_run_by_a_drain_may_still_give_it_back(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held()
        driver.one(Drain("w1", "SIGTERM"))
        assert driver.record(row, 1) == Refused("fence")
        assert driver.release(row) == "queued"
        assert driver.row().interruptions == 0

    def test_a_suspect_that_had_not_begun_is_one_after_it(self, driver: StoreDriver) -> None:
        driver.suspect()
        driver.take("r", "w2")
        assert driver.one(Drain("w2", "SIGTERM")) == ("r",)
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (2, 2)
        assert driver.claim("w3") == []
        assert len(driver.claim("w3", suspects=True)) == 1

    def test_a_run_that_had_died_once_and_not_begun_is_no_suspect_after_it(
        self, driver: StoreDriver
    ) -> None:
        driver.die(driver.held())
        driver.take("r", "w2")
        assert driver.one(Drain("w2", "SIGTERM")) == ("r",)
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (1, 1)
        assert len(driver.claim("w3")) == 1

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child", "done"])
    def test_one_that_had_got_somewhere_after_all_is_none(
        self, driver: StoreDriver, kind: str
    ) -> None:
        driver.suspect()
        row = driver.take("r", "w2")
        driver.record(row, 3, kind=kind)
        driver.one(Drain("w2", "SIGTERM"))
        assert (driver.row().deaths_in_a_row, driver.row().ready) == (0, 1)

    def test_a_run_that_somebody_wants_to_end_goes_back_and_an_item_is_cancelled(
        self, driver: StoreDriver
    ) -> None:
        driver.held("run")
        driver.held("item", workflow=ITEM)
        driver.commit(Cancel("run", "stop"), Cancel("item", "stop"))
        assert driver.one(Drain("w1", "SIGTERM")) == ("run", "item")
        run, item = driver.row("run"), driver.row("item")
        assert (run.status, run.cancel, run.ready) == ("queued", "stop", 1)
        assert (item.status, item.reason, item.ended, item.ready) == (
            "cancelled",
            "stop",
            driver.clock.now,
            0,
        )
        assert driver.release(item._replace(fence=-item.fence)) == "cancelled"

    def test_a_parent_hears_nothing_of_a_child_that_goes_back_but_of_an_item_that_is_cancelled(
        self, driver: StoreDriver
    ) -> None:
        for parent, child, workflow in (("p", "c", "flow"), ("q", "i", ITEM)):
            row = driver.held(parent, "w2")
            driver.held(child, parent=parent, workflow=workflow)
            driver.wait(row, children=(child,))
        driver.one(Cancel("i", "stop"))
        driver.one(Drain("w1", "SIGTERM"))
        assert [driver.row(id).ready for id in ("p", "q")] == [0, 1]

    def test_the_counts_of_queues_follow_and_children_take_no_slot(
        self, driver: StoreDriver
    ) -> None:
        driver.one(SetQueueLimits("default", None, 2))
        begun = driver.held("begun")
        driver.held("waits for its turn")
        driver.held("child", parent="begun")
        driver.submit("other")
        assert driver.claim("w2", limit=9) == []
        driver.one(Drain("w1", "SIGTERM", (begun.fence,)))
        (queue,) = driver.store.queues()
        assert (queue.queued, queue.running) == (3, 1)
        # One slot, and the child.
        assert len(driver.claim("w2", limit=9)) == 2
        driver.check()

    def test_a_drain_counts_within_its_batch(self, driver: StoreDriver) -> None:
        driver.register_worker("w2")
        driver.held("a")
        back, rows, refused = driver.commit(
            Drain("w1", "x"), Claim("w2", "t", limit=5), Claim("w1", "t1")
        )
        assert (back, [row.id for row in rows], refused.why) == (("a",), ["a"], DRAINING)

    def test_a_thousand_go_back_in_one_command(self, driver: StoreDriver) -> None:
        driver.commit(*(Submit(f"r{n}", "flow", "[]", f"t{n}", "seed") for n in range(1000)))
        rows = driver.claim(limit=1000)
        assert driver.one(Drain("w1", "x", tuple(row.fence for row in rows))) == ()
        assert len(driver.one(Drain("w1", "x", tuple(row.fence for row in rows[::2])))) == 500
        assert [driver.row(row.id).status for row in rows] == ["running", "queued"] * 500

    # -- repeats and refusals

    def test_a_drain_of_somebody_unknown_is_refused(self, driver: StoreDriver) -> None:
        assert driver.one(Drain("w1", "SIGTERM")).why == WORKER
        driver.register_worker()
        driver.one(DeregisterWorker("w1"))
        assert driver.one(Drain("w1", "SIGTERM")).why == WORKER
        assert driver.store.drains() == []

    def test_a_repeat_keeps_the_first_reason_and_time_and_gives_back_what_it_does_not_keep(
        self, driver: StoreDriver
    ) -> None:
        one, two = driver.held("one"), driver.held("two")
        assert driver.one(Drain("w1", "SIGTERM", (one.fence, two.fence))) == ()
        (first,) = driver.store.drains()
        driver.clock.forward(3)
        assert driver.commit(
            Drain("w1", "again", (two.fence,)), Drain("w1", "again", (two.fence,))
        ) == [
            ("one",),
            (),
        ]
        assert driver.store.drains() == [first]
        assert (first.reason, first.began, first.held) == ("SIGTERM", driver.clock.now - 3, 2)

    def test_fences_in_keep_that_it_does_not_hold_harm_nothing(self, driver: StoreDriver) -> None:
        driver.held()
        assert driver.one(Drain("w1", "x", (-1, 0, 10**15))) == ("r",)

    def test_a_draining_worker_gets_nothing_by_a_claim(self, driver: StoreDriver) -> None:
        driver.register_worker()
        before = driver.submit()
        driver.one(Drain("w1", "x"))
        for claim in (
            Claim("w1", "a"),
            Claim("w1", "b", ids=("r",)),
            Claim("w1", "c", suspects=True),
        ):
            assert driver.one(claim).why == DRAINING
        assert driver.row() == before

    def test_a_draining_worker_gets_nothing_by_a_submission(self, driver: StoreDriver) -> None:
        driver.register_worker()
        before = driver.submit("there")
        driver.one(Drain("w1", "x"))
        assert [outcome.why for outcome in driver.commit(own("new"), own("there"))] == [
            DRAINING,
            DRAINING,
        ]
        assert driver.store.run("new") is None
        assert driver.row("there") == before

    def test_a_draining_worker_may_queue_work_for_others(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.one(Drain("w1", "x"))
        assert driver.submit().status == "queued"

    def test_a_worker_that_drains_by_a_mere_renewal_is_refused_too(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.submit()
        driver.renew(draining=True)
        assert [outcome.why for outcome in driver.commit(Claim("w1", "t"), own("new"))] == [
            DRAINING,
            DRAINING,
        ]
        assert driver.store.drains() == []
        assert driver.one(Drain("w1", "SIGTERM")) == ()
        assert [drain.reason for drain in driver.store.drains()] == ["SIGTERM"]

    def test_a_repeat_of_a_claim_or_submission_is_answered_as_long_as_the_worker_holds_it(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.submit("claimed")
        claim, submit = Claim("w1", "t"), own("own")
        (claimed,), submitted = driver.commit(claim, submit)
        driver.one(Drain("w1", "x", (claimed.fence, submitted.row.fence)))
        assert driver.commit(claim, submit) == [[claimed], submitted]
        assert driver.one(submit._replace(token=driver.token())).why == DRAINING
        driver.one(Drain("w1", "x"))
        assert [outcome.why for outcome in driver.commit(claim, submit)] == [DRAINING, DRAINING]

    def test_neither_registering_nor_renewing_takes_a_drain_back(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.one(Drain("w1", "x"))
        driver.commit(Renew("w1", LEASE), RegisterWorker("w1", "host", 1, LEASE))
        assert driver.one(Claim("w1", "t")).why == DRAINING

    def test_a_worker_that_left_and_is_back_under_its_id_drains_again(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.one(Drain("w1", "first"))
        driver.one(DeregisterWorker("w1"))
        driver.register_worker()
        driver.submit()
        (row,) = driver.claim()
        driver.clock.forward(9)
        assert driver.one(Drain("w1", "second", (row.fence,))) == ()
        (drain,) = driver.store.drains()
        assert (drain.reason, drain.began, drain.held) == ("second", driver.clock.now, 1)

    # -- requests and notifications

    def test_a_drain_that_releases_something_notifies(self, driver: StoreDriver) -> None:
        driver.held()
        notified = threading.Event()
        driver.store.listen(notified.set)
        driver.one(Drain("w1", "x"))
        assert notified.wait(WAIT_SECONDS)

    def test_a_request_to_drain_is_found_by_its_worker_and_the_first_stays(
        self, driver: StoreDriver
    ) -> None:
        driver.register_worker()
        driver.register_worker("w2")
        assert driver.store.asked("w1") is None
        assert driver.commit(
            RequestDrain("w1", "a new version"), RequestDrain("w1", "impatience")
        ) == [
            None,
            None,
        ]
        assert (driver.store.asked("w1"), driver.store.asked("w2")) == ("a new version", None)
        assert {worker.id: worker.asked for worker in driver.store.workers()} == {
            "w1": "a new version",
            "w2": None,
        }
        driver.commit(Renew("w1", LEASE), RegisterWorker("w1", "host", 1, LEASE))
        assert driver.store.asked("w1") == "a new version"

    def test_a_request_drains_nothing_by_itself(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(RequestDrain("w1", "a new version"))
        assert driver.row() == row
        assert [bool(worker.draining) for worker in driver.store.workers()] == [False]
        assert driver.claim() == []

    def test_a_request_to_somebody_unknown_is_refused(self, driver: StoreDriver) -> None:
        assert driver.one(RequestDrain("w1", "a new version")).why == WORKER
        assert driver.store.asked("w1") is None

    def test_a_request_also_notifies_the_process_that_makes_it(self, driver: StoreDriver) -> None:
        driver.register_worker()
        notified = threading.Event()
        driver.store.listen(notified.set)
        driver.one(RequestDrain("w1", "a new version"))
        assert notified.wait(WAIT_SECONDS)

    def test_a_draining_worker_can_go_on_with_what_it_holds(self, driver: StoreDriver) -> None:
        rows = [driver.held(id) for id in ("a", "b", "c")]
        driver.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        assert driver.record(rows[0], 1) is None
        driver.settle(rows[0])
        driver.wait(rows[1])
        assert driver.one(Release(rows[2].pk, rows[2].fence, "drain")) == "queued"
