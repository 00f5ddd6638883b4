"""`outlast decide` records what became of an effect."""

from __future__ import annotations

import json
import re

import pytest
from effect_tools import table

from outlast.store.commands import Settle


def test_decide_happened_records_the_given_result(unknown):
    answer = unknown("decide", "t1", "book#2", "--happened", '"room 7"')
    assert (answer.code, answer.out) == (0, "")
    assert (
        "run t1 is queued again. No live worker claims the run. To continue, start its program"
        in answer.err
    )
    assert json.loads(unknown.trip().out) == ["flight booked", "room 7"]


def test_decide_did_not_repeats_the_effect(unknown):
    unknown.lose()
    assert unknown("decide", "t1", "book", "--did-not").code == 0
    assert json.loads(unknown.trip().out) == ["flight booked", "hotel booked"]


def test_decide_compensate_undoes_the_run(unknown):
    answer = unknown("decide", "t1", "book", "--compensate", "--result", '"perhaps"', "--json")
    assert answer.code == 0
    assert answer.json["effect"] == "book"
    assert answer.json["run"]["undoing"] == {
        "status": "cancelled",
        "reason": "a person decided to compensate it, at book#2",
        "error": None,
    }
    assert unknown.trip().code == 6
    effects = unknown("show", "t1", "--json").json["effects"]
    assert {effect["place"]: effect["state"] for effect in effects} == {
        "compensate:close#1": "undone", "book#1": "undone", "book#2": "undone",
    }  # fmt: skip
    assert effects[2]["undo"]["arguments"] == {"booking": "perhaps", "what": "hotel"}


def test_decide_compensate_says_what_follows(unknown):
    answer = unknown("decide", "t1", "book", "--compensate")
    assert (
        "Its effects are being compensated, and it will end as cancelled: a person decided"
        in answer.err
    )


@pytest.mark.parametrize(
    "words",
    [[], ["--did-not", "--compensate"], ["--happened", "1", "--did-not"], ["--happened", "room 7"], ["--happened", "NaN"], ["--did-not", "--result", "1"], ["--compensate", "--result", "{"], ["--did-not", "--intent", "x"]],
)  # fmt: skip
def test_decide_needs_exactly_one_json_decision(unknown, words):
    answer = unknown("decide", "t1", "book", *words)
    assert answer.code == 2
    assert "decision" not in [
        entry["kind"] for entry in unknown("show", "t1", "--json").json["journal"]
    ]


def test_decide_on_an_unknown_effect_lists_the_known_ones(unknown):
    answer = unknown("decide", "t1", "bok", "--did-not")
    assert (answer.code, answer.out) == (2, "")
    assert "no effect 'bok' of run 't1' waits for a decision. This one does: book#2." in answer.err
    error = unknown("decide", "t1", "book#1", "--did-not", "--json").json["error"]
    assert (error["type"], error["there"], error["exit_code"]) == ("UnknownEffect", ["book#2"], 2)


def test_decide_without_a_pending_decision_exits_4(trips):
    assert trips.trip().code == 0
    answer = trips("decide", "t1", "book", "--did-not")
    assert answer.code == 4
    assert "run 't1' is done: an effect can be decided only while its run is parked" in answer.err
    row = trips.started("r1")
    trips.commit(Settle(row.pk, row.fence, "parked", reason="the code changed"))
    answer = trips("decide", "r1", "book", "--did-not")
    assert answer.code == 4
    assert (
        "no effect 'book' of run 'r1' waits for a decision. `outlast show r1` shows" in answer.err
    )


def test_decide_exits_3_without_the_run_and_1_without_the_store(outlast):
    assert outlast("decide", "t1", "book", "--did-not").code == 1
    outlast.commit()
    assert outlast("decide", "t1", "book", "--did-not").code == 3


def acted_twice(unknown):
    """It is decided that it did not happen, it is done again, and again nobody can tell."""
    unknown("decide", "t1", "book", "--did-not")
    assert unknown.trip().code == 5
    return unknown("show", "t1", "--json").json["effects"][-1]


def test_decide_needs_the_attempt_if_there_are_several(unknown):
    effect = acted_twice(unknown)
    assert effect["acts"] == 2
    last = str(effect["intent"])
    answer = unknown("decide", "t1", "book", "--happened", '"room 7"')
    assert answer.code == 2
    assert f"(--intent {last})" in answer.err
    assert f"--happened RESULT --intent {last}" in unknown("show", "t1").out
    assert unknown("decide", "t1", "book", "--happened", '"room 7"', "--intent", last).code == 0
    assert json.loads(unknown.trip().out) == ["flight booked", "room 7"]


def test_decide_on_an_old_attempt_is_refused(unknown):
    first = str(unknown("show", "t1", "--json").json["effects"][-1]["intent"])
    last = str(acted_twice(unknown)["intent"])
    answer = unknown("decide", "t1", "book", "--happened", '"room 7"', "--intent", first)
    assert answer.code == 4
    assert f"the last one is {last}. Check its outcome before you decide." in answer.err
    assert unknown.row("t1").status == "parked"


def test_show_prints_a_decision_to_compensate(unknown):
    unknown("decide", "t1", "book", "--compensate")
    shown = unknown("show", "t1").out
    assert re.search(r"decided by os:.* after being unknown for .*: compensate it\n", shown)
    assert "it happened, with" not in shown


def test_decide_compensate_on_a_failed_undo_exits_4(stuck):
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    answer = stuck("decide", "t1", "undo:book#1", "--compensate", "--intent", str(last))
    assert answer.code == 4
    assert "is already being compensated" in answer.err


def test_show_says_that_an_effect_is_decided_before_the_run_continues(unknown):
    assert unknown("decide", "t1", "book", "--happened", '"room 7"').code == 0
    answer = unknown("show", "t1")
    assert table(answer)["book#2"][0] == "decided"
    assert "is open" not in answer.out
