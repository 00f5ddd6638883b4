"""Drain and AskDrain: a worker that takes nothing more, and gives back what had not begun."""

from __future__ import annotations

import threading

import pytest

from outlast.store.verbs import (
    DRAINING,
    ITEM,
    WORKER,
    AskDrain,
    Cancel,
    Claim,
    Drain,
    Enlist,
    Leave,
    Limit,
    Refused,
    Release,
    Renew,
    Submit,
)
from outlast.testing.conformance.harness import LEASE, WAIT_SECONDS, Desk, Promises


def own(id: str, worker: str = "w1") -> Submit:
    return Submit(id, "flow", "[]", f"token-of-{id}", "seed", worker=worker)


class DrainPromises(Promises):
    # -- giving back

    def test_what_has_not_begun_goes_back_free_and_what_has_begun_stays(self, desk: Desk) -> None:
        begun = desk.held("begun")
        before = [desk.held("one"), desk.held("two", priority=3)]
        desk.clock.forward(5)
        assert desk.one(Drain("w1", "SIGTERM", (begun.fence,))) == ("one", "two")
        assert desk.row("begun") == begun
        for old in before:
            now = desk.row(old.id)
            assert now == old._replace(
                status="queued", fence=-old.fence, worker=None, due=desk.clock.now, ready=1,
                reason="its worker drains before it began",
            )  # fmt: skip
            assert desk.kinds(now) == []
        assert desk.store.held("w1") == [(begun.pk, begun.fence, "begun")]

    def test_a_drain_touches_nobody_elses_runs(self, desk: Desk) -> None:
        desk.enlist()
        other = desk.held("other", "w2")
        desk.submit("queued")
        before = [other, desk.row("queued")]
        assert desk.one(Drain("w1", "SIGTERM")) == ()
        assert [desk.row("other"), desk.row("queued")] == before
        assert {worker.id: bool(worker.draining) for worker in desk.store.workers()} == {
            "w1": True,
            "w2": False,
        }

    def test_what_it_gave_back_is_claimed_by_the_next_in_its_old_place(self, desk: Desk) -> None:
        desk.release(desk.held("returned"))
        desk.clock.forward(1)
        for id in ("first", "second"):
            desk.submit(id)
        desk.clock.forward(1)
        desk.take("returned")
        desk.take("first")
        assert desk.one(Drain("w1", "SIGTERM")) == ("returned", "first")
        assert desk.row("returned").interruptions == 1
        assert desk.row("returned").interrupted is not None
        assert [row.id for row in desk.claim("w2", limit=9)] == ["returned", "second", "first"]

    def test_a_life_that_lost_its_run_by_a_drain_may_still_give_it_back(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Drain("w1", "SIGTERM"))
        assert desk.record(row, 1) == Refused("fence")
        assert desk.release(row) == "queued"
        assert desk.row().interruptions == 0

    def test_a_suspect_that_had_not_begun_is_one_after_it(self, desk: Desk) -> None:
        desk.suspect()
        desk.take("r", "w2")
        assert desk.one(Drain("w2", "SIGTERM")) == ("r",)
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (2, 2)
        assert desk.claim("w3") == []
        assert len(desk.claim("w3", suspects=True)) == 1

    def test_a_run_that_had_died_once_and_not_begun_is_no_suspect_after_it(self, desk: Desk) -> None:
        desk.die(desk.held())
        desk.take("r", "w2")
        assert desk.one(Drain("w2", "SIGTERM")) == ("r",)
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (1, 1)
        assert len(desk.claim("w3")) == 1

    @pytest.mark.parametrize("kind", ["step", "attempt", "inner", "child", "done"])
    def test_one_that_had_got_somewhere_after_all_is_none(self, desk: Desk, kind: str) -> None:
        desk.suspect()
        row = desk.take("r", "w2")
        desk.record(row, 3, kind=kind)
        desk.one(Drain("w2", "SIGTERM"))
        assert (desk.row().deaths_in_a_row, desk.row().ready) == (0, 1)

    def test_a_run_that_somebody_wants_to_end_goes_back_and_an_item_is_cancelled(self, desk: Desk) -> None:
        desk.held("run")
        desk.held("item", workflow=ITEM)
        desk.commit(Cancel("run", "stop"), Cancel("item", "stop"))
        assert desk.one(Drain("w1", "SIGTERM")) == ("run", "item")
        run, item = desk.row("run"), desk.row("item")
        assert (run.status, run.cancel, run.ready) == ("queued", "stop", 1)
        assert (item.status, item.reason, item.ended, item.ready) == ("cancelled", "stop", desk.clock.now, 0)
        assert desk.release(item._replace(fence=-item.fence)) == "cancelled"

    def test_a_parent_hears_nothing_of_a_child_that_goes_back_but_of_an_item_that_is_cancelled(
        self, desk: Desk
    ) -> None:
        for parent, child, workflow in (("p", "c", "flow"), ("q", "i", ITEM)):
            row = desk.held(parent, "w2")
            desk.held(child, parent=parent, workflow=workflow)
            desk.wait(row, children=(child,))
        desk.one(Cancel("i", "stop"))
        desk.one(Drain("w1", "SIGTERM"))
        assert [desk.row(id).ready for id in ("p", "q")] == [0, 1]

    def test_the_counts_of_queues_follow_and_children_take_no_slot(self, desk: Desk) -> None:
        desk.one(Limit("default", None, 2))
        begun = desk.held("begun")
        desk.held("waits for its turn")
        desk.held("child", parent="begun")
        desk.submit("other")
        assert desk.claim("w2", limit=9) == []
        desk.one(Drain("w1", "SIGTERM", (begun.fence,)))
        (queue,) = desk.store.queues()
        assert (queue.queued, queue.running) == (3, 1)
        assert len(desk.claim("w2", limit=9)) == 2  # one slot, and the child
        desk.check()

    def test_a_drain_counts_within_its_batch(self, desk: Desk) -> None:
        desk.enlist("w2")
        desk.held("a")
        back, rows, refused = desk.commit(Drain("w1", "x"), Claim("w2", "t", limit=5), Claim("w1", "t1"))
        assert (back, [row.id for row in rows], refused.why) == (("a",), ["a"], DRAINING)

    def test_a_thousand_go_back_in_one_verb(self, desk: Desk) -> None:
        for number in range(1000):
            desk.commit(Submit(f"r{number}", "flow", "[]", f"t{number}", "seed"))
        rows = desk.claim(limit=1000)
        assert desk.one(Drain("w1", "x", tuple(row.fence for row in rows))) == ()
        assert len(desk.one(Drain("w1", "x", tuple(row.fence for row in rows[::2])))) == 500
        assert [desk.row(row.id).status for row in rows] == ["running", "queued"] * 500

    # -- repeats and refusals

    def test_a_drain_of_somebody_unknown_is_refused(self, desk: Desk) -> None:
        assert desk.one(Drain("w1", "SIGTERM")).why == WORKER
        desk.enlist()
        desk.one(Leave("w1"))
        assert desk.one(Drain("w1", "SIGTERM")).why == WORKER
        assert desk.store.drains() == []

    def test_a_repeat_keeps_the_first_reason_and_time_and_gives_back_what_it_does_not_keep(
        self, desk: Desk
    ) -> None:
        one, two = desk.held("one"), desk.held("two")
        assert desk.one(Drain("w1", "SIGTERM", (one.fence, two.fence))) == ()
        (first,) = desk.store.drains()
        desk.clock.forward(3)
        assert desk.commit(Drain("w1", "again", (two.fence,)), Drain("w1", "again", (two.fence,))) == [
            ("one",),
            (),
        ]
        assert desk.store.drains() == [first]
        assert (first.reason, first.began, first.held) == ("SIGTERM", desk.clock.now - 3, 2)

    def test_fences_in_keep_that_it_does_not_hold_harm_nothing(self, desk: Desk) -> None:
        desk.held()
        assert desk.one(Drain("w1", "x", (-1, 0, 10**15))) == ("r",)

    def test_a_draining_worker_gets_nothing_by_a_claim(self, desk: Desk) -> None:
        desk.enlist()
        before = desk.submit()
        desk.one(Drain("w1", "x"))
        for claim in (Claim("w1", "a"), Claim("w1", "b", ids=("r",)), Claim("w1", "c", suspects=True)):
            assert desk.one(claim).why == DRAINING
        assert desk.row() == before

    def test_a_draining_worker_gets_nothing_by_a_submission(self, desk: Desk) -> None:
        desk.enlist()
        before = desk.submit("there")
        desk.one(Drain("w1", "x"))
        assert [outcome.why for outcome in desk.commit(own("new"), own("there"))] == [DRAINING, DRAINING]
        assert desk.store.run("new") is None
        assert desk.row("there") == before

    def test_a_draining_worker_may_queue_work_for_others(self, desk: Desk) -> None:
        desk.enlist()
        desk.one(Drain("w1", "x"))
        assert desk.submit().status == "queued"

    def test_a_worker_that_drains_by_a_mere_renewal_is_refused_too(self, desk: Desk) -> None:
        desk.enlist()
        desk.submit()
        desk.renew(draining=True)
        assert [outcome.why for outcome in desk.commit(Claim("w1", "t"), own("new"))] == [DRAINING, DRAINING]
        assert desk.store.drains() == []
        assert desk.one(Drain("w1", "SIGTERM")) == ()
        assert [drain.reason for drain in desk.store.drains()] == ["SIGTERM"]

    def test_a_repeat_of_a_claim_or_submission_is_answered_as_long_as_the_worker_holds_it(
        self, desk: Desk
    ) -> None:
        desk.enlist()
        desk.submit("claimed")
        claim, submit = Claim("w1", "t"), own("own")
        (claimed,), submitted = desk.commit(claim, submit)
        desk.one(Drain("w1", "x", (claimed.fence, submitted.row.fence)))
        assert desk.commit(claim, submit) == [[claimed], submitted]
        assert desk.one(submit._replace(token=desk.token())).why == DRAINING
        desk.one(Drain("w1", "x"))
        assert [outcome.why for outcome in desk.commit(claim, submit)] == [DRAINING, DRAINING]

    def test_neither_enlisting_nor_renewing_takes_a_drain_back(self, desk: Desk) -> None:
        desk.enlist()
        desk.one(Drain("w1", "x"))
        desk.commit(Renew("w1", LEASE), Enlist("w1", "host", 1, LEASE))
        assert desk.one(Claim("w1", "t")).why == DRAINING

    def test_a_worker_that_left_and_is_back_under_its_id_drains_anew(self, desk: Desk) -> None:
        desk.enlist()
        desk.one(Drain("w1", "first"))
        desk.one(Leave("w1"))
        desk.enlist()
        desk.submit()
        (row,) = desk.claim()
        desk.clock.forward(9)
        assert desk.one(Drain("w1", "second", (row.fence,))) == ()
        (drain,) = desk.store.drains()
        assert (drain.reason, drain.began, drain.held) == ("second", desk.clock.now, 1)

    # -- requests and bells

    def test_a_drain_that_gives_something_back_rings(self, desk: Desk) -> None:
        desk.held()
        rung = threading.Event()
        desk.store.listen(rung.set)
        desk.one(Drain("w1", "x"))
        assert rung.wait(WAIT_SECONDS)

    def test_a_request_to_drain_is_found_by_its_worker_and_the_first_stays(self, desk: Desk) -> None:
        desk.enlist()
        desk.enlist("w2")
        assert desk.store.asked("w1") is None
        assert desk.commit(AskDrain("w1", "a new version"), AskDrain("w1", "impatience")) == [None, None]
        assert (desk.store.asked("w1"), desk.store.asked("w2")) == ("a new version", None)
        assert {worker.id: worker.asked for worker in desk.store.workers()} == {
            "w1": "a new version",
            "w2": None,
        }
        desk.commit(Renew("w1", LEASE), Enlist("w1", "host", 1, LEASE))
        assert desk.store.asked("w1") == "a new version"

    def test_a_request_drains_nothing_by_itself(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(AskDrain("w1", "a new version"))
        assert desk.row() == row
        assert [bool(worker.draining) for worker in desk.store.workers()] == [False]
        assert desk.claim() == []

    def test_a_request_to_somebody_unknown_is_refused(self, desk: Desk) -> None:
        assert desk.one(AskDrain("w1", "a new version")).why == WORKER
        assert desk.store.asked("w1") is None

    def test_a_request_rings_also_in_the_process_that_makes_it(self, desk: Desk) -> None:
        desk.enlist()
        rung = threading.Event()
        desk.store.listen(rung.set)
        desk.one(AskDrain("w1", "a new version"))
        assert rung.wait(WAIT_SECONDS)

    def test_a_draining_worker_can_go_on_with_what_it_holds(self, desk: Desk) -> None:
        rows = [desk.held(id) for id in ("a", "b", "c")]
        desk.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        assert desk.record(rows[0], 1) is None
        desk.settle(rows[0])
        desk.wait(rows[1])
        assert desk.one(Release(rows[2].pk, rows[2].fence, "drain")) == "queued"
