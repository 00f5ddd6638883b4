"""Effects in the output of `outlast show`, `runs`, `run` and `retry`."""

from __future__ import annotations

import json
import re

import pytest
from effect_tools import table

from outlast.cli.os_user import os_user
from outlast.store.commands import Settle


def test_show_says_what_is_unknown_and_how_to_decide_it(unknown):
    answer = unknown("show", "t1", "--store", unknown.address)
    effects = table(answer)
    assert effects["book#1"][0] == "happened"
    assert effects["book#2"][0] == "unknown"
    key = unknown("show", "t1", "--json").json["effects"][-1]["key"]
    assert f"Its key is {key}." in answer.out
    assert key in table(unknown("show", "t1", "--wide"))["book#2"]
    lines = answer.out.splitlines()
    said = " ".join(lines[lines.index("", lines.index("", 10) + 1) :])
    assert (
        "Parked: unknown: book#2: Outlast cannot determine whether it happened. It raised ConnectionError:"
        in said
    )
    assert "Run `outlast" not in said
    for way in ("--happened RESULT", "--did-not", "--compensate"):
        assert f"    outlast decide t1 'book#2' {way} --store {unknown.address}" in lines


def test_show_lists_compensations_in_order(trips):
    assert trips.trip("true").code == 1
    answer = trips("show", "t1")
    effects = table(answer)
    assert [(effects[place][0], effects[place][-6:]) for place in ("book#2", "book#1")] == [
        ("undone", ["1st,", "at", effects["book#2"][-4], effects["book#2"][-3], "by", "unbook"]),
        ("undone", ["2nd,", "at", effects["book#1"][-4], effects["book#1"][-3], "by", "unbook"]),
    ]
    assert effects["compensate:close#1"][-2:] == ["by", "close"]
    assert "compensation begins; the run will end as failed: ValueError: rain" in answer.out
    assert re.search(r"intent +undo:book#2 +by unbook, key ", answer.out)
    assert "to compensate it: close, with" in answer.out
    effects = trips("show", "t1", "--json").json["effects"]
    done = [(effect["undo"]["known"], effect["place"]) for effect in effects]
    assert [place for _, place in sorted(done)] == ["book#2", "book#1", "compensate:close#1"]
    assert all(effect["known"] < effect["undo"]["since"] for effect in effects if effect["known"])


def test_retry_clears_shown_compensations(trips):
    trips.trip("true")
    trips("retry", "t1")
    answer = trips("show", "t1")
    assert f"queued again by {os_user()} (was failed); entries from 1 on are void" in answer.out
    assert trips.trip().code == 1
    effects = trips("show", "t1", "--json").json["effects"]
    assert [effect["state"] for effect in effects] == ["undone"] * 3


def test_a_parked_run_is_listed_with_its_short_reason(unknown):
    line = unknown("runs", "--wide").out.splitlines()[1]
    assert line.split()[:2] == ["t1", "parked"]
    assert "unknown: book#2: Outlast cannot determine whether it happened." in line
    assert "Run `" not in line


def test_run_names_the_command_that_shows_what_to_decide(unknown):
    answer = unknown.trip()
    assert answer.code == 5
    assert "What to decide, and how: `outlast show t1`." in answer.err
    assert "resume" not in answer.err


def test_show_names_the_unit_of_an_effect(trips):
    assert trips("run", "trips.py:picnic", "--id", "p1").out == '"home"\n'
    shown = trips("show", "p1")
    assert table(shown)["book#1"][-1] == "basket"
    assert trips("show", "p1", "--json").json["effects"][0]["units"] == ["basket"]


def test_show_has_no_unit_column_without_units(trips):
    trips.trip()
    shown = trips("show", "t1")
    assert "UNIT" not in shown.out
    assert [one["units"] for one in trips("show", "t1", "--json").json["effects"]] == [[], [], []]


def test_show_marks_an_effect_that_did_not_happen(trips):
    assert trips("run", "trips.py:welcome", "--id", "w1").out == '"nobody"\n'
    answer = trips("show", "w1")
    assert "attempt 1 did not happen: ValueError: nobody home" in answer.out
    assert "did not happen: ValueError: nobody home" in answer.out
    assert table(answer)["greet#1"][:3] == ["did", "not", "happen"]


def test_show_prints_arguments_and_time_of_an_undecided_effect(unknown):
    shown = unknown("show", "t1").out
    assert re.search(r"^To decide book#2 \(intent \d+, open since .* UTC\):$", shown, re.MULTILINE)
    assert re.search(r'^  Its arguments are .*"what": "hotel"', shown, re.MULTILINE)


def test_show_numbers_every_entry_of_a_compensated_run(trips):
    trips.trip("true")
    journal = trips("show", "t1", "--json").json["journal"]
    lines = trips("show", "t1").out.splitlines()
    shown = [line.split()[2] for line in lines if line.lstrip().startswith("+")]
    assert shown == [str(entry["seq"]) for entry in journal]
    assert shown == [str(number) for number in range(1, len(shown) + 1)]
    assert any(line.endswith("no children to wait for") for line in lines)


def test_show_prints_the_time_limit_of_an_open_effect(outlast, monkeypatch):
    row = outlast.started("r1")
    intent = {
        "key": "k", "effect": "send", "code": "m", "arguments": "{}", "compensation": None,
        "timeout": 60, "threaded": False, "generation": 0,
    }  # fmt: skip
    outlast.entry(row, 1, "intent", "send#1", value=json.dumps(intent))
    outlast.entry(row, 2, "intent", "send#1", value=json.dumps({**intent, "again": True}))
    shown = outlast("show", "r1").out
    assert (
        "key k (the previous intent was recorded too late, so nothing was done under it)" in shown
    )
    assert "send#1 is open: it may " in shown
    assert "(timeout 60 s + margin 5 s)" in shown
    monkeypatch.setenv("OUTLAST_EFFECT_MARGIN", "7.5")
    assert "(timeout 60 s + margin 7.5 s)" in outlast("show", "r1").out


def test_retry_of_a_parked_run_names_resume(unknown):
    answer = unknown("retry", "t1")
    assert answer.code == 4
    assert "`outlast resume t1`. `outlast show t1` prints what there is to decide." in answer.err


def test_effects_of_one_name_are_listed_in_the_order_of_their_calls(outlast):
    row = outlast.started("r1")
    intent = {
        "key": "k", "effect": "send", "code": "m", "arguments": "{}", "compensation": "undo send",
        "timeout": 60, "threaded": False, "generation": 0,
    }  # fmt: skip
    for seq, place in enumerate(["send#2", "other#1", "send#10", "send#1"], 1):
        outlast.entry(row, seq, "intent", place, value=json.dumps(intent))
    shown = table(outlast("show", "r1"))
    assert list(shown) == ["send#1", "other#1", "send#2", "send#10"]
    assert shown["send#1"][-3:] == ["can", "be", "undone"]


HOSTILE = "\x1b]0;owned\x07\x9b31m \u202eevil\r\n\u2028x"


def test_effect_output_escapes_control_characters(outlast):
    row = outlast.started("r1")
    intent = {
        "key": HOSTILE, "effect": HOSTILE, "code": "m", "arguments": HOSTILE, "compensation": HOSTILE,
        "timeout": 1, "threaded": False, "generation": 0,
    }  # fmt: skip
    error = json.dumps({"type": f"m:{HOSTILE}", "message": HOSTILE})
    outlast.entry(row, 1, "intent", f"{HOSTILE}#1", value=json.dumps(intent))
    outlast.entry(row, 2, "verify", f"{HOSTILE}#1", error=error, attempt=1, value="1")
    outlast.entry(row, 3, "step", f"{HOSTILE}#1", value=json.dumps(HOSTILE), seconds=1.0)
    outlast.entry(row, 4, "intent", "other#1", value=json.dumps(intent))
    outlast.entry(row, 5, "attempt", "other#1", error=error, attempt=1, value="1")
    outlast.entry(
        row, 6, "decision", "x", value=json.dumps({"what": HOSTILE, "value": HOSTILE, "intent": 4})
    )
    verdict = {"status": HOSTILE, "error": error, "reason": HOSTILE}
    outlast.entry(row, 7, "undoing", value=json.dumps(verdict))
    outlast.entry(
        row,
        8,
        "compensation",
        "c#1",
        value=json.dumps({"effect": HOSTILE, "code": "", "arguments": HOSTILE}),
    )
    outlast.commit(
        Settle(row.pk, row.fence, "parked", reason=f"unknown: {HOSTILE} Run `outlast x`")
    )
    for words in (["show", "r1"], ["show", "r1", "--full"], ["runs"], ["show", "r1", "--json"]):
        answer = outlast(*words)
        assert answer.code == 0
        assert not set("\x1b\x07\x9b\r\u202e\u2028") & set(answer.out + answer.err)
    assert "unknown" in outlast("show", "r1").out
    answer = outlast("decide", "r1", f"no{HOSTILE}", "--did-not")
    assert answer.code == 2
    assert not set("\x1b\x07\x9b\r\u202e\u2028") & set(answer.err)


@pytest.mark.parametrize("value", [None, "7", "{}", "nonsense"])
def test_damaged_effect_entry_is_marked(outlast, value):
    row = outlast.started("r1")
    outlast.entry(row, 1, "intent", "book#1", value=value)
    outlast.entry(row, 2, "undoing", value=value)
    outlast.entry(row, 3, "verify", "book#1", value=value)
    answer = outlast("show", "r1")
    assert answer.code == 0
    assert "Its effects cannot be read" in answer.out
    assert outlast("show", "r1", "--json").json["effects"] is None
