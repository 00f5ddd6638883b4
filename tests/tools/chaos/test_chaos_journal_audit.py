"""The fold of one journal: what it must find, and what is in order."""

import json

import pytest

from outlast.store.rows import Entry, RunRow
from outlast.tools.chaos.journal_audit import JournalAudit


def row(status="done", fence=-9, **more) -> RunRow:
    values = dict.fromkeys(RunRow._fields) | {
        "pk": 1,
        "id": "r",
        "status": status,
        "fence": fence,
        "mark": 0,
        **more,
    }
    return RunRow(**values)


def told(*entries: Entry, **more) -> JournalAudit:
    audit = JournalAudit()
    for entry in entries:
        audit.add(entry)
    audit.close(row(**more))
    return audit


def step(seq, key="a#1", fence=1, value="1", at=None, **more):
    return Entry(
        seq, "step", key, float(at if at is not None else seq), value=value, fence=fence, **more
    )


def intent(seq, key="pay#1", fence=1, id="K", compensation=None, **more):
    said = {
        "key": id, "effect": "pay", "code": "m", "arguments": "{}", "compensation": compensation, "timeout": 1.0,
        "threaded": False, "generation": 0,
    }  # fmt: skip
    return Entry(
        seq, "intent", key, float(seq), value=json.dumps(said), attempt=1, fence=fence, **more
    )


def by_store(seq, kind, fence=1, at=None, **said):
    return Entry(
        seq, kind, "", float(at if at is not None else seq), value=json.dumps(said), fence=-fence
    )


def test_journal_in_order_is_in_order():
    audit = told(
        step(1),
        by_store(2, "death", why="x"),
        step(3, "b#1", fence=2),
        intent(4, fence=2),
        step(5, "pay#1", fence=2),
    )
    assert (audit.damage, audit.effects.twice, audit.fences.stale, audit.effects.disorder) == (
        [],
        [],
        [],
        [],
    )
    assert audit.effects.outcomes == {"a#1": 1, "b#1": 2, "pay#1": 2}


def test_missing_entry_is_found_where_the_life_went_on_to_the_end():
    assert "missing before entry 3" in told(step(1), step(3, "b#1")).damage[0]
    assert "missing before entry 2" in told(step(2)).damage[0]


def test_missing_entry_is_no_loss_where_the_life_ended_for_it():
    assert (
        told(step(1), step(3, "b#1"), by_store(4, "interruption"), step(5, "c#1", fence=2)).damage
        == []
    )
    assert told(step(1), step(3, "b#1"), step(4, "c#1", fence=2)).damage == []
    assert told(step(1), step(3, "b#1"), status="running").damage == []


def test_entries_out_of_order_and_marks_that_are_not_there_are_found():
    assert "comes after" in told(step(2), step(1, "b#1")).damage[0]
    assert "its mark is entry 9" in told(step(1), mark=9).damage[0]


def test_fence_that_falls_is_found():
    assert (
        "fence 1, after one with 2"
        in told(step(1, fence=2), step(2, "b#1", fence=1)).fences.stale[0]
    )


def test_write_under_a_fence_that_was_void_is_found():
    audit = told(step(1), by_store(2, "death"), step(3, "b#1", fence=1))
    assert "fence 1, which was void by then" in audit.fences.stale[0]


def test_fence_that_the_run_never_had_is_found():
    assert "never had more than 3" in told(step(1, fence=7), fence=-3).fences.stale[0]


def test_two_results_of_one_place_are_found_but_not_after_a_retry():
    assert "two results" in told(step(1), step(2)).effects.twice[0]
    assert told(step(1), by_store(2, "retry", **{"from": 1}), step(3, fence=2)).effects.twice == []


def test_effect_that_is_intended_again_after_it_was_confirmed_is_found():
    audit = told(intent(1), step(2, "pay#1"), by_store(3, "death"), intent(4, fence=2))
    assert "intended again by entry 4" in audit.effects.twice[0]


def test_second_intent_of_an_unknown_effect_is_accepted():
    audit = told(intent(1), by_store(2, "death"), intent(3, fence=2), step(4, "pay#1", fence=2))
    assert audit.effects.twice == [] and audit.effects.log.opened == []


def test_effect_that_stays_open_is_reported():
    assert [one.place for one in told(intent(1)).effects.log.opened] == ["pay#1"]


def test_compensations_in_the_wrong_order_are_found():
    first = [
        intent(1, "a#1", id="A", compensation="un"),
        step(2, "a#1"),
        intent(3, "b#1", id="B", compensation="un"),
        step(4, "b#1"),
    ]
    begun = by_store(5, "undoing", status="failed")

    def undone(seq, place):
        return [
            intent(seq, f"undo:{place}", 2, id=f"undo {place}"),
            step(seq + 1, f"undo:{place}", 2),
        ]

    assert told(*first, begun, *undone(6, "b#1"), *undone(8, "a#1")).effects.disorder == []
    audit = told(*first, begun, *undone(6, "a#1"), *undone(8, "b#1"))
    assert "b#1 (entry 3) was undone after something older" in audit.effects.disorder[0]
    assert audit.effects.log.undoable == []


def test_recovery_is_from_the_last_sign_of_life_to_the_beginning_of_the_next_step():
    audit = told(
        step(1, at=10),
        by_store(2, "death", at=20, seen=12.0),
        step(3, "b#1", 2, at=25, seconds=4.0),
    )
    assert [one.seconds for one in audit.times.recoveries] == [9.0]


def test_recovery_is_not_timed_where_the_run_may_have_waited_for_something_else():
    death = by_store(2, "death", at=20, seen=12.0)
    fired = Entry(3, "fired", "t#1", 4000.0, fence=2)
    assert (
        told(step(1, at=10), death, fired).times.recoveries,
        told(step(1), death, fired).times.untimed,
    ) == (
        [],
        1,
    )
    assert told(intent(1), death, step(3, "pay#1", 2, at=4000)).times.recoveries == [], (
        "its act might have been under way"
    )
    failed = Entry(1, "attempt", "a#1", 1.0, value="3900.0", attempt=1, fence=1)
    assert told(failed, death, step(3, "a#1", 2, at=4000)).times.recoveries == [], (
        "its next attempt had a time of its own"
    )


@pytest.mark.parametrize("kind", ["retry", "resume", "decision"])
def test_recovery_is_not_timed_where_the_run_waited_for_a_person(kind):
    death = by_store(2, "death", at=20, seen=12.0)
    later = step(4, "b#1", 2, at=4001, seconds=1.0)
    times = told(step(1, at=10), death, by_store(3, kind, at=3999), later).times
    assert (times.recoveries, times.untimed) == ([], 1)


def test_what_cannot_be_read_is_damage_and_no_exception():
    audit = told(
        Entry(1, "intent", "pay#1", 1.0, value="{", fence=1),
        Entry(2, "death", "", 2.0, value="[]", fence=-1),
    )
    assert "entry 1 (intent) cannot be read" in audit.damage[0]
    assert len(audit.times.ends) == 1
