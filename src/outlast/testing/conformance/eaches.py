"""Runs that are an `each`: what of it is done, who may claim it, and that it can go on after its end."""

from __future__ import annotations

from outlast.store.rows import RunRow
from outlast.store.verbs import EACH, Claim, Refused, Resume, Retry
from outlast.testing.conformance.harness import Desk, Promises, entry


def done(desk: Desk, row: RunRow, *keys: str) -> None:
    first = desk.store.last_seq(row.pk) + 1
    for seq, key in enumerate(keys, first):
        assert desk.record(row, seq, kind="done", key=key, value=f'"{key}!"') is None


class EachPromises(Promises):
    # -- what is done

    def test_what_is_done_is_found_by_its_key(self, desk: Desk) -> None:
        row, other = desk.held(workflow=EACH), desk.held("other", workflow=EACH)
        done(desk, row, "a", "b")
        done(desk, other, "c")
        desk.record(row, 3, kind="done", key="plain")
        desk.record(row, 4, kind="step", key="d", value="1")
        assert desk.store.done(row.pk, ["b", "a", "c", "d", "plain", "a"]) == {
            "a": '"a!"', "b": '"b!"', "plain": None
        }  # fmt: skip
        assert desk.store.done(row.pk, []) == {}
        assert desk.store.done(row.pk + 100, ["a"]) == {}

    def test_what_is_done_is_counted(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH)
        assert desk.store.done_count(row.pk) == 0
        done(desk, row, "a", "b")
        desk.record(row, 3)
        assert (desk.store.done_count(row.pk), desk.store.done_count(row.pk + 1)) == (2, 0)

    def test_its_history_is_what_else_happened(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH)
        desk.record(row, 1, kind="items", value="{}")
        done(desk, row, "a", "b")
        desk.release(row)
        assert [(one.seq, one.kind) for one in desk.store.history(row.pk)] == [
            (1, "items"),
            (4, "interruption"),
        ]

    def test_keys_are_what_they_are(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH)
        keys = ["", " ", '"', "'", "1", "ünï", "\U0001f600", "a\nb", "x" * 5000]
        done(desk, row, *keys)
        assert desk.store.done(row.pk, keys) == {key: f'"{key}!"' for key in keys}

    def test_the_last_number_of_a_journal_is_told(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.store.last_seq(row.pk) == 0
        desk.commit(*(entry(row, seq) for seq in (1, 2, 3)))
        assert desk.store.last_seq(row.pk) == 3
        desk.release(row)
        assert desk.store.last_seq(row.pk) == 4  # the interruption

    def test_an_item_that_is_done_is_progress(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH, interruptions_max=2)
        done(desk, row, "a")
        desk.release(row)
        assert desk.row().interruptions_in_a_row == 1
        row = desk.take()
        done(desk, row, "b")
        assert desk.release(row) == "queued"
        row = desk.take()
        done(desk, row, "c")
        assert desk.die(row).deaths_in_a_row == 0

    # -- who may claim it

    def test_only_who_names_it_claims_it(self, desk: Desk) -> None:
        desk.submit("each", workflow=EACH, priority=9)
        desk.submit("run")
        assert [row.id for row in desk.claim(limit=9)] == ["run"]
        assert desk.claim(limit=9, workflows=("flow",)) == []
        assert desk.claim(limit=9, queues=("default",)) == []
        assert [row.id for row in desk.claim(workflows=(EACH, "flow"))] == ["each"]

    def test_it_may_be_claimed_by_its_id(self, desk: Desk) -> None:
        desk.submit("each", workflow=EACH)
        assert desk.take("each").workflow == EACH

    def test_a_suspect_is_no_exception(self, desk: Desk) -> None:
        desk.suspect("each", workflow=EACH)
        assert desk.claim("w2", suspects=True) == []
        assert len(desk.claim("w2", suspects=True, workflows=(EACH,))) == 1

    def test_nobody_is_told_that_a_workflow_of_this_name_is_unknown(self, desk: Desk) -> None:
        desk.suspect("suspect", workflow=EACH)
        desk.submit("each", workflow=EACH)
        look = desk.store.look(("default",), ("flow",))
        assert (look.ready, look.suspect, look.unknown) == (False, False, ())
        assert desk.store.look(("default",), (EACH,)).ready

    # -- going on after its end

    def test_one_that_is_done_can_be_resumed(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH)
        done(desk, row, "a")
        desk.settle(row, value="1")
        desk.clock.forward(5)
        assert desk.commit(Resume("r", "t"), Resume("r", "t")) == [None, None]
        now = desk.row()
        assert (now.status, now.ended, now.value, now.due, now.ready) == (
            "queued",
            None,
            None,
            desk.clock.now,
            1,
        )
        assert desk.kinds(now) == ["done", "resume"]
        again = desk.take()
        assert desk.store.done(again.pk, ["a"]) == {"a": '"a!"'}
        desk.settle(again)
        assert desk.one(Resume("r", "t")) is None
        assert desk.row().status == "done"
        assert desk.one(Resume("r", "t2")) is None
        assert desk.row().status == "queued"

    def test_its_time_limit_stands_still_between_its_end_and_its_resumption(self, desk: Desk) -> None:
        row = desk.held(workflow=EACH, timeout=100.0)
        desk.clock.forward(40)
        desk.settle(row)
        desk.clock.forward(1000)
        desk.one(Resume("r", "t"))
        assert desk.row().deadline == desk.clock.now + 60

    def test_it_can_be_resumed_when_parked_and_retried_when_failed_like_any_other(self, desk: Desk) -> None:
        desk.ended("parked", "parked", workflow=EACH)
        desk.ended("failed", "failed", workflow=EACH)
        assert desk.commit(Resume("parked", "t"), Resume("failed", "t"), Retry("failed", "t")) == [
            None,
            Refused("status", "failed"),
            None,
        ]

    def test_no_other_run_that_is_done_can_be(self, desk: Desk) -> None:
        desk.ended()
        desk.ended("each", workflow=EACH)
        assert desk.commit(Resume("r", "t"), Retry("each", "t")) == [Refused("status", "done")] * 2

    def test_a_repeat_of_its_claim_is_answered(self, desk: Desk) -> None:
        desk.enlist()
        desk.submit("each", workflow=EACH)
        claim = Claim("w1", "t", ids=("each",))
        assert desk.one(claim) == desk.one(claim) != []
