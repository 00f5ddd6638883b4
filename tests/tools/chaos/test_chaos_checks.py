"""The checks of a store raise no alarm for correct runs, and find each kind of damage."""

from check_tools import OF, alarms, fill, judged, tamper

from outlast.tools.chaos.findings import ASKS


def test_correct_runs_raise_no_alarm(place):
    fill(place)
    verdict = judged(place)
    assert alarms(verdict) == {}
    assert verdict.looked_at["runs"] == 5 and verdict.looked_at["entries"] > 20
    assert verdict["compensated"].looked_at == 5
    assert verdict["ended"].facts["statuses"] == {"cancelled": 2, "done": 2, "failed": 1}, (
        "the child was undone"
    )
    assert [one.name for one in verdict.checks] == list(ASKS)


def test_ledger_checks_are_unknown_without_a_ledger(copy):
    verdict = judged(copy)
    assert {one.name for one in verdict.checks if one.outcome == "not known"} == {
        "none lost", "no action twice", "no stale fence", "redone",
    }  # fmt: skip
    assert verdict.outcome == "not known" and not verdict.violated


def test_missing_entry_is_found(copy):
    tamper(copy, f"DELETE FROM entries WHERE {OF} AND seq = 2", "good")
    assert list(alarms(judged(copy))) == ["none lost", "compensated"], (
        "its effect is open without the confirmation"
    )


def test_missing_acknowledged_run_is_found(copy):
    verdict = judged(copy, acknowledged=["good", "gone"])
    assert alarms(verdict) == {"none lost": ["gone was acknowledged and is not in the store"]}


def test_decreasing_fence_is_found(copy):
    tamper(copy, f"UPDATE entries SET fence = fence + 1000 WHERE {OF} AND seq = 2", "good")
    (found,) = alarms(judged(copy)).items()
    assert found[0] == "no stale fence" and "good: entry 3" in found[1][0]


def test_result_recorded_twice_is_found(copy):
    tamper(
        copy,
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT run, 99, fence, kind, key, at, value FROM entries"
        f" WHERE {OF} AND kind = 'step' AND key LIKE 'pay%'",
        "good",
    )
    assert "good: pay#1 has two results" in alarms(judged(copy))["no action twice"][0]


def test_missing_compensation_is_found(copy):
    tamper(copy, f"DELETE FROM entries WHERE {OF} AND key LIKE 'undo:pay%'", "endless")
    found = alarms(judged(copy))["compensated"]
    assert found == ["endless is cancelled, but pay#1 happened (entry 1) and was not compensated"]


def test_child_not_undone_with_its_parent_is_found(copy):
    tamper(copy, "UPDATE runs SET status = 'done' WHERE parent IS NOT NULL")
    tamper(
        copy,
        "DELETE FROM entries WHERE run = (SELECT pk FROM runs WHERE parent IS NOT NULL) AND (key LIKE 'undo:%' OR kind = 'undoing')",
    )
    (found,) = alarms(judged(copy))["compensated"]
    assert "is done and its parent bad is failed, but pay#1 happened" in found


def test_new_dead_letters_and_parked_runs_are_found(copy):
    tamper(copy, "UPDATE runs SET status = 'dead', reason = 'died 5 times' WHERE id = 'good'")
    tamper(
        copy,
        "UPDATE runs SET status = 'parked', ended = NULL, reason = 'unknown' WHERE id = 'mixed'",
    )
    found = alarms(judged(copy))["dead letters and parked"]
    assert sorted(found) == ["good is a dead letter: died 5 times", "mixed is parked: unknown"]
    assert alarms(judged(copy, since=1e11)) == {}


def test_run_without_an_end_is_found_after_the_experiment(copy):
    tamper(copy, "UPDATE runs SET status = 'queued', ended = NULL WHERE id = 'good'")
    assert "good is queued" in alarms(judged(copy, over=True))["ended"][0]
    assert "ended" not in alarms(judged(copy)), "on a store that lives it is new work that waits"


def test_run_with_an_unexpected_end_is_found(copy):
    verdict = judged(copy, amiss=lambda row: "is not as it should be" if row.id == "good" else None)
    assert alarms(verdict) == {"ended": ["good is not as it should be"]}


def test_slow_recovery_is_found(copy):
    tamper(copy, "UPDATE runs SET lives = 2, deaths = 1 WHERE id = 'good'")
    tamper(
        copy,
        f"UPDATE entries SET seq = 4, at = at + 500, fence = fence + 1 WHERE {OF} AND seq = 3",
        "good",
    )
    tamper(copy, "UPDATE runs SET fence = fence - 1 WHERE id = 'good'")
    tamper(
        copy,
        "INSERT INTO entries (run, seq, fence, kind, key, at, value) SELECT run, 3, -fence, 'death', '', at, json_object('why', 'died', 'seen', at)"
        f" FROM entries WHERE {OF} AND seq = 2",
        "good",
    )
    verdict = judged(copy)
    (found,) = alarms(verdict)["recovery"]
    assert found.startswith("good continued 500.0 s after its death")
    assert verdict["recovery"].facts["death"]["count"] == 1
    assert alarms(judged(copy, objective=600)) == {}
    assert alarms(judged(copy, recovered=lambda *_: 1.5)) == {}, "a known recovery time counts"
