"""A session that a run changes: the change and its entry are one."""

from __future__ import annotations

import json

from outlast.store.verbs import (
    FENCE,
    VERSION,
    Append,
    Forget,
    Keep,
    Refused,
    Release,
)
from outlast.testing.conformance.harness import Desk, Promises, entry
from outlast.testing.conformance.session_desk import kept, noted


class SessionRecordPromises(Promises):
    def test_a_change_with_a_record_is_one_with_its_entry(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"a": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1, args="[1]"))
        assert desk.one(verb) == 1
        (found,) = desk.store.journal(row.pk)
        assert (found.seq, found.kind, found.key, found.at, found.args) == (
            1,
            "session",
            "flow/s#1",
            1.5,
            "[1]",
        )
        assert json.loads(found.value or "") == {"version": 1}
        assert kept(desk).fields == {"a": "1"}
        assert desk.store.last_seq(row.pk) == 1

    def test_a_repeat_of_a_recorded_change_changes_nothing_and_says_what_it_said(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"n": "1"}, appends={"l": Append(("1",))}, record=noted(row, 1))
        assert desk.commit(verb, verb) == [1, 1]
        desk.one(Keep("s", "elsewhere", {"n": "9"}, appends={"l": Append(("2",))}))
        before, journal = kept(desk), desk.store.journal(row.pk)
        desk.clock.forward(1)
        assert desk.one(verb) == 1
        assert desk.one(Keep("s", "another", {"n": "1"}, record=noted(row, 1))) == 1
        assert kept(desk) == before
        assert desk.store.items("s", "l") == ["1", "2"]
        assert desk.store.journal(row.pk) == journal

    def test_a_repeat_is_known_after_the_fence_is_void_and_the_session_gone(self, desk: Desk) -> None:
        row = desk.held()
        verb = Keep("s", "t1", {"n": "1"}, record=noted(row, 1))
        forgetting = Forget("s", "f", record=noted(row, 2))
        assert desk.commit(verb, forgetting) == [1, None]
        desk.one(Release(row.pk, row.fence, "drain"))
        assert desk.commit(verb, forgetting) == [1, None]
        assert desk.store.session("s") is None
        desk.one(Keep("s", "new", {"n": "2"}))
        assert desk.commit(verb, forgetting) == [1, None]
        assert kept(desk).fields == {"n": "2"}

    def test_a_version_that_is_refused_is_recorded_too(self, desk: Desk) -> None:
        row = desk.held()
        desk.commit(Keep("s", "t1", {"a": "1"}), Keep("s", "t2", {"a": "2"}))
        verb = Keep("s", "t3", {"a": "3"}, version=1, record=noted(row, 1))
        assert desk.one(verb) == Refused(VERSION, "2")
        (found,) = desk.store.journal(row.pk)
        assert json.loads(found.value or "") == {"conflict": 2}
        assert kept(desk).fields == {"a": "2"}
        desk.one(Forget("s", "f"))
        desk.one(Keep("s", "t4", {}))
        assert desk.one(verb) == Refused(VERSION, "2")  # though now that version is the current one
        assert kept(desk).fields == {}
        assert desk.one(Keep("s", "t5", {"a": "5"}, version=1, record=noted(row, 2))) == 2

    def test_a_recorded_change_under_another_fence_is_refused_and_changes_nothing(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Keep("s", "t1", {"a": "1"}, ttl=10.0, appends={"l": Append(("1",))}))
        before = kept(desk)
        desk.release(row)
        after = desk.take()
        journal, seq = desk.store.journal(row.pk), desk.store.last_seq(row.pk) + 1
        change = Keep("s", "t2", {"a": "2"}, appends={"l": Append(("2",))}, record=noted(row, seq))
        for stale in (
            change,
            change._replace(version=7),
            Keep("s", "t1", {"a": "2"}, record=noted(row, seq)),
            Forget("s", "f", record=noted(row, seq)),
        ):
            assert desk.one(stale) == Refused(FENCE)
        for void in (-row.fence, -after.fence, 0):
            assert desk.one(change._replace(record=noted(row, seq)._replace(fence=void))) == Refused(FENCE)
        assert desk.one(change._replace(record=noted(row, seq)._replace(run=row.pk + 99))) == Refused(FENCE)
        assert kept(desk) == before
        assert desk.store.items("s", "l") == ["1"]
        assert desk.store.journal(row.pk) == journal
        assert desk.one(change._replace(record=noted(after, seq))) == 2

    def test_a_place_in_the_journal_that_is_taken_by_another_life_refuses_the_change(
        self, desk: Desk
    ) -> None:
        first = desk.held()
        desk.record(first, 1)
        desk.release(first)
        second = desk.take()
        assert desk.one(Keep("s", "t", {"a": "1"}, record=noted(second, 1))) == Refused(FENCE)
        assert desk.one(Forget("s", "f", record=noted(second, 1))) == Refused(FENCE)
        assert desk.store.session("s") is None

    def test_the_token_of_the_last_change_with_a_new_record_writes_only_the_entry(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.one(Keep("s", "t", {"a": "1"}, record=noted(row, 1))) == 1
        assert desk.one(Keep("s", "t", {"a": "2"}, record=noted(row, 2))) == 1
        assert kept(desk).fields == {"a": "1"}
        assert [json.loads(e.value or "") for e in desk.store.journal(row.pk)] == [{"version": 1}] * 2

    def test_forgetting_with_a_record_happens_once(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Keep("s", "t1", {"a": "1"}))
        verb = Forget("s", "f", record=noted(row, 1))
        assert desk.one(verb) is None
        (found,) = desk.store.journal(row.pk)
        assert (found.kind, json.loads(found.value or "")) == ("session", {})
        desk.one(Keep("s", "t2", {"b": "1"}))
        assert desk.one(verb) is None
        assert kept(desk).fields == {"b": "1"}
        assert desk.one(Forget("absent", "f", record=noted(row, 2))) is None
        assert desk.store.last_seq(row.pk) == 2
        assert (
            desk.one(verb._replace(record=noted(row, 3))) is None
        )  # its token is known: only the entry is new
        assert desk.store.last_seq(row.pk) == 3
        assert kept(desk).fields == {"b": "1"}

    def test_recorded_changes_stand_between_other_entries_of_a_batch(self, desk: Desk) -> None:
        row, other = desk.held(), desk.held("other")
        outcomes = desk.commit(
            entry(row, 1),
            Keep("s", "t1", {"a": "1"}, record=noted(row, 2)),
            entry(row, 3),
            Keep("s", "t2", {"a": "2"}, record=noted(other, 1)),
            Keep("s", "t3", {"a": "3"}, version=1, record=noted(row, 4)),
            Forget("s", "f", record=noted(row, 5)),
            entry(row, 6),
        )
        assert outcomes == [None, 1, None, 2, Refused(VERSION, "2"), None, None]
        assert [(e.seq, e.kind) for e in desk.store.journal(row.pk)] == [
            (1, "step"), (2, "session"), (3, "step"), (4, "session"), (5, "session"), (6, "step")
        ]  # fmt: skip
        assert desk.store.session("s") is None

    def test_a_run_that_changed_a_session_has_got_somewhere(self, desk: Desk) -> None:
        row = desk.held(attempts_max=2)
        desk.one(Keep("s", "t", {"a": "1"}, record=noted(row, 1)))
        assert desk.die(row).deaths_in_a_row == 0
        again = desk.die(desk.take(worker="w2"))
        assert (again.status, again.deaths_in_a_row) == ("queued", 1)
