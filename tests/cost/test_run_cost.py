"""The account folds a journal into spent, saved and kept amounts."""

import json

from outlast.execution.run_cost import RunCost, run_cost_of
from outlast.store.rows import Entry


def journal(*lines: dict) -> list[Entry]:
    return [Entry(seq, at=float(seq), **{"key": "", **line}) for seq, line in enumerate(lines, 1)]


def spent(kind: str, key: str, tokens: int, **fields) -> dict:
    value = {"value": "1.0"} if "error" not in fields else {}
    return {"kind": kind, "key": key, "cost": json.dumps({"tokens": tokens}), **value, **fields}


def retry(start: int | None, was: str = "failed") -> dict:
    return {"kind": "retry", "value": json.dumps({"from": start, "was": was})}


DEATH, INTERRUPTION = {"kind": "death", "value": "{}"}, {"kind": "interruption", "value": "{}"}
FAILED = {"error": "{}"}


def tokens(*lines: dict) -> tuple[int, int, int]:
    """Spent, saved, kept."""
    account = RunCost(journal(*lines))
    return tuple(
        cost.document().get("tokens", 0) for cost in (account.spent, account.saved, account.kept)
    )  # type: ignore[return-value]


def test_empty_journal_costs_nothing():
    assert tokens() == (0, 0, 0)
    assert run_cost_of(journal(DEATH, {"kind": "step", "key": "a#1", "value": "1"})) is None


def test_all_entries_before_a_death_or_interruption_count_as_saved():
    lines = [
        spent("step", "a#1", 1),
        DEATH,
        spent("step", "b#1", 10),
        INTERRUPTION,
        DEATH,
        spent("inner", "c", 100),
    ]
    assert tokens(*lines) == (111, 1 + 11 + 11, 111)


def test_other_entries_save_nothing():
    others = [{"kind": kind, "value": "{}"} for kind in ("resume", "fired", "cancel", "failure")]
    assert tokens(spent("step", "a#1", 1), *others, retry(None, "dead")) == (1, 0, 1)


def test_a_retry_voids_what_failed_and_keeps_results_aside_until_they_are_used():
    lines = [spent("step", "bad#1", 1, **FAILED), spent("step", "good#1", 10, args="x"), retry(1)]
    assert tokens(*lines) == (11, 0, 10)
    assert tokens(*lines, DEATH) == (11, 10, 10)
    used = {"kind": "step", "key": "good#1", "args": "x", "value": "1"}
    assert tokens(*lines, DEATH, used, DEATH) == (11, 20, 10)
    assert tokens(*lines, used, retry(4), DEATH) == (11, 10, 10), "kept aside a second time"


def test_kept_result_is_not_used_for_other_arguments():
    lines = [spent("step", "bad#1", 1, **FAILED), spent("step", "good#1", 10, args="x"), retry(1)]
    other = {"kind": "step", "key": "good#1", "args": "y", "value": "1"}
    assert tokens(*lines, other) == (11, 0, 0)
    assert tokens(*lines, spent("step", "good#1", 100, args="y")) == (111, 0, 100)
    assert tokens(*lines, spent("attempt", "good#1", 100, args="y", **FAILED)) == (111, 0, 100)


def test_attempts_go_with_their_step():
    attempt = spent("attempt", "a#1", 1, error="{}", attempt=1, value="2.0")
    assert tokens(attempt, spent("step", "a#1", 10, **FAILED), retry(2)) == (11, 0, 0)
    assert tokens(attempt, spent("step", "a#1", 10), retry(2)) == (11, 0, 11)
    assert tokens(attempt, spent("step", "b#1", 10, **FAILED), retry(2)) == (11, 0, 1), (
        "it goes on counting"
    )


def test_steps_within_steps_outlast_a_retry():
    assert tokens(spent("inner", "a#1/b()#1", 1), spent("step", "a#1", 10, **FAILED), retry(1)) == (
        11,
        0,
        1,
    )


def test_a_retry_of_what_cannot_be_read_voids_nothing():
    lines = [
        spent("step", "a#1", 1, **FAILED),
        {"kind": "retry", "value": "not JSON"},
        DEATH,
        retry(1),
        DEATH,
    ]
    assert tokens(*lines) == (1, 2, 1)


def test_account_knows_whether_the_journal_ends_with_a_death():
    lines = [spent("step", "a#1", 1), DEATH]
    assert RunCost(journal(*lines)).is_cut
    assert not RunCost(journal(*lines, retry(None, "dead"))).is_cut
    assert not RunCost(journal(*lines, {"kind": "fired", "key": "t"})).is_cut
