"""Report and its relatives: what is known of a drain afterwards, and how soon its runs were taken up again."""

from __future__ import annotations

import json

from outlast.store.verbs import (
    DRAINS_MAX,
    ITEM,
    Cancel,
    Drain,
    Enlist,
    Leave,
    Release,
    Renew,
    Report,
    Retry,
    Swept,
)
from outlast.testing.conformance.harness import LEASE, Desk, Promises, seen_of


class ReportPromises(Promises):
    # -- the report

    def test_a_drain_opens_a_report_that_says_who_and_why(self, desk: Desk) -> None:
        desk.store.hold("w1")
        desk.one(Enlist("w1", "host-7", 4711, 30.0))
        begun, _ = desk.held("begun"), desk.held("not begun")
        desk.one(Drain("w1", "SIGTERM", (begun.fence,)))
        (drain,) = desk.store.drains()
        assert drain == ("w1", "host-7", 4711, "SIGTERM", desk.clock.now, None, 1, None, ())

    def test_a_report_closes_it_and_a_repeat_overwrites(self, desk: Desk) -> None:
        desk.enlist()
        desk.one(Drain("w1", "SIGTERM"))
        (opened,) = desk.store.drains()
        desk.clock.forward(2)
        assert desk.one(Report("w1", '{"completed": 1}')) is None
        assert desk.store.drains() == [opened._replace(ended=desk.clock.now, report='{"completed": 1}')]
        desk.clock.forward(1)
        assert desk.one(Report("w1", '{"completed": 2}')) is None
        assert desk.store.drains() == [opened._replace(ended=desk.clock.now, report='{"completed": 2}')]

    def test_a_repeat_of_the_drain_does_not_open_a_closed_report(self, desk: Desk) -> None:
        desk.enlist()
        desk.commit(Drain("w1", "SIGTERM"), Report("w1", "{}"))
        (closed,) = desk.store.drains()
        desk.one(Drain("w1", "again"))
        assert desk.store.drains() == [closed]

    def test_a_report_is_taken_of_a_worker_that_has_left_and_of_one_that_nobody_knows(
        self, desk: Desk
    ) -> None:
        desk.enlist()
        desk.commit(Drain("w1", "SIGTERM"), Leave("w1"))
        assert [(drain.worker, drain.ended) for drain in desk.store.drains()] == [("w1", None)]
        assert desk.commit(Report("w1", '"late"'), Report("stranger", '"hello"')) == [None, None]
        stranger, known = desk.store.drains()
        assert stranger == (
            "stranger", "", 0, "", desk.clock.now, desk.clock.now, 0, '"hello"', ()
        )  # fmt: skip
        assert (known.worker, known.reason, known.report) == ("w1", "SIGTERM", '"late"')

    def test_a_sweep_closes_the_report_of_a_worker_that_died_while_it_drained(self, desk: Desk) -> None:
        rows = [desk.held(id) for id in ("one", "two")]
        desk.one(Drain("w1", "SIGTERM", tuple(row.fence for row in rows)))
        assert desk.lease_over().workers == ("w1",)
        (drain,) = desk.store.drains()
        assert (drain.reason, drain.ended, drain.held) == ("SIGTERM", desk.clock.now, 2)
        report = json.loads(drain.report or "")
        assert (report["cut_short"], report["left"]) == (True, ["one", "two"])
        assert "lease" in report["why"]
        assert report["seen"] == seen_of(desk, rows[0])[0]
        assert report["seen"] < desk.clock.now

    def test_it_makes_one_where_a_mere_renewal_had_said_that_it_drains(self, desk: Desk) -> None:
        desk.held()
        desk.renew(draining=True)
        desk.lease_over()
        (drain,) = desk.store.drains()
        assert (drain.worker, drain.host, drain.pid, drain.reason, drain.held) == ("w1", "host", 1, "", 1)
        assert (drain.began, drain.ended) == (desk.clock.now, desk.clock.now)
        assert json.loads(drain.report or "")["left"] == ["r"]

    def test_a_report_that_a_sweep_closed_is_not_overwritten_by_one_that_comes_late(self, desk: Desk) -> None:
        desk.held()
        desk.one(Drain("w1", "SIGTERM", (desk.row().fence,)))
        desk.lease_over()
        (closed,) = desk.store.drains()
        desk.clock.forward(1)
        assert desk.one(Report("w1", '"I only slept"')) is None
        assert desk.store.drains() == [closed]

    def test_a_sweep_leaves_a_closed_report_as_it_is(self, desk: Desk) -> None:
        desk.enlist()
        desk.commit(Drain("w1", "SIGTERM"), Report("w1", '"done"'))
        (closed,) = desk.store.drains()
        desk.lease_over()
        assert desk.store.drains() == [closed]

    def test_the_death_of_a_worker_that_did_not_drain_makes_no_report(self, desk: Desk) -> None:
        desk.held()
        assert desk.lease_over() == Swept(("r",), (), ("w1",))
        assert desk.store.drains() == []

    def test_newest_first_and_no_more_than_asked_for(self, desk: Desk) -> None:
        for number in range(25):
            desk.enlist(f"w{number}")
            desk.one(Drain(f"w{number}", "x"))
            desk.clock.forward(-1 if number % 2 else 1)  # clocks do
        assert [drain.worker for drain in desk.store.drains()] == [f"w{n}" for n in range(24, 4, -1)]
        assert [drain.worker for drain in desk.store.drains(limit=2)] == ["w24", "w23"]
        assert len(desk.store.drains(limit=100)) == 25

    def test_old_ones_are_forgotten_with_their_recoveries(self, desk: Desk) -> None:
        row = desk.held("r", "oldest")
        desk.one(Drain("oldest", "x", (row.fence,)))
        desk.release(row)
        desk.take("r", "w2")
        desk.commit(*(Report(f"w{number}", "{}") for number in range(DRAINS_MAX - 1)))
        assert [drain.recoveries for drain in desk.store.drains(limit=5000)[-1:]] == [(0.0,)]
        desk.enlist("newest")
        desk.one(Drain("newest", "x"))
        drains = desk.store.drains(limit=5000)
        assert (len(drains), drains[0].worker, drains[-1].worker) == (DRAINS_MAX, "newest", "w0")
        desk.one(Report("oldest", "{}"))
        assert desk.store.drains(1)[0].recoveries == ()

    # -- recoveries

    def test_the_claim_of_a_run_that_a_drain_left_is_a_recovery(self, desk: Desk) -> None:
        rows = [desk.held(id) for id in ("one", "two", "three")]
        desk.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        for row in rows:
            desk.release(row)
        desk.clock.forward(5)
        desk.claim("w2", limit=1)
        desk.clock.forward(-3)
        desk.claim("w2", limit=1)
        (drain,) = desk.store.drains()
        assert drain.recoveries == (2.0, 5.0)
        desk.one(Leave("w1"))
        desk.clock.forward(1)
        desk.take("three", "w3")
        (drain,) = desk.store.drains()
        assert drain.recoveries == (2.0, 3.0, 5.0)

    def test_it_is_counted_once(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Drain("w1", "x", (row.fence,)))
        desk.release(row)
        desk.release(desk.take("r", "w2"))
        desk.clock.forward(7)
        desk.take("r", "w3")
        (drain,) = desk.store.drains()
        assert drain.recoveries == (0.0,)

    def test_what_it_held_when_it_left_is_recovered_too(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Drain("w1", "x", (row.fence,)))
        desk.clock.forward(30)
        desk.one(Leave("w1"))
        desk.clock.forward(2)
        desk.take("r", "w9")
        assert desk.store.drains(1)[0].recoveries == (2.0,)

    def test_what_was_cut_is_recovered_from_when_its_worker_was_last_seen(self, desk: Desk) -> None:
        """Not from when somebody noticed: that is most of the time for which nobody executed it."""
        row, given_back = desk.held(), desk.held("given back")
        desk.one(Drain("w1", "x", (row.fence, given_back.fence)))
        desk.clock.forward(10)
        desk.renew(draining=True)
        desk.release(given_back)
        desk.lease_over()
        desk.clock.forward(2)
        desk.claim("w9", limit=2)
        assert desk.store.drains(1)[0].recoveries == (LEASE + 2, LEASE + 2)
        assert seen_of(desk, row) == (desk.clock.now - LEASE - 2, "lease")

    def test_what_was_given_back_in_another_way_is_no_recovery(self, desk: Desk) -> None:
        rows = [
            desk.held(id, workflow=ITEM if id == "failed" else "flow") for id in ("free", "waiting", "failed")
        ]
        desk.held("not begun")
        desk.one(Drain("w1", "x", tuple(row.fence for row in rows)))
        free, waiting, failed = rows
        desk.release(free, interrupted=False)
        desk.wait(waiting, due=desk.clock.now)
        desk.release(failed, failed=True)
        assert len(desk.claim("w2", limit=9)) == 4
        (drain,) = desk.store.drains()
        assert drain.recoveries == ()

    def test_what_was_given_back_before_the_drain_is_none_either(self, desk: Desk) -> None:
        desk.release(desk.held())
        desk.one(Drain("w1", "x"))
        desk.take("r", "w2")
        assert desk.store.drains()[0].recoveries == ()

    def test_a_run_that_ended_first_is_never_recovered(self, desk: Desk) -> None:
        """A dead letter, and an item that was cancelled, wait for somebody who tries again, not for a worker."""
        letter, item = desk.held("letter", interruptions_max=1), desk.held("item", workflow=ITEM)
        desk.one(Drain("w1", "x", (letter.fence, item.fence)))
        assert (desk.release(letter), desk.release(item)) == ("dead", "queued")
        desk.one(Cancel("item", "not needed"))
        desk.clock.forward(100)
        assert desk.commit(Retry("letter", "t"), Retry("item", "t")) == [None, None]
        assert len(desk.claim("w2", limit=9)) == 2
        assert desk.store.drains()[0].recoveries == ()

    def test_a_drain_without_a_report_has_no_recoveries(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.commit(Renew("w1", 60.0, draining=True), Release(row.pk, row.fence, "x")) == [
            None,
            "queued",
        ]
        desk.take("r", "w2")
        desk.one(Report("w1", "{}"))
        assert desk.store.drains()[0].recoveries == ()
