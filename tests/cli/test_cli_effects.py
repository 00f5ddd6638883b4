"""`outlast decide`, and effects in `show`, `runs`, `cancel`, `retry` and `run`."""

from __future__ import annotations

import json

import pytest

from outlast.store.commands import Settle

PROGRAM = """
from __future__ import annotations

import os
from pathlib import Path

from outlast import KEY, compensate_with, effect, unit, workflow


def lost(what: str) -> bool:
    return what in Path("lost").read_text().split()


@effect(timeout=0.01)
async def book(what: str, *, key: str = KEY) -> str:
    if lost(what):
        raise ConnectionError(f"no answer about the {what}")
    return f"{what} booked"


@book.compensate(retries=1, backoff=0.001)
async def unbook(booking: str | None, what: str) -> None:
    if lost(f"un{what}"):
        raise RuntimeError(f"the {what} desk is closed")


@effect(timeout=0.01, undo=None)
async def close(what: str) -> None: ...


@effect(timeout=0.01, retries=1, backoff=0.001, failed_on=ValueError)
async def greet(name: str) -> str:
    raise ValueError("nobody home")


@workflow
async def trip(fail: bool = False) -> list[str]:
    await compensate_with(close, "the file")
    booked = [await book(what) for what in ("flight", "hotel")]
    if fail:
        raise ValueError("rain")
    return booked


@workflow
async def picnic() -> str:
    try:
        async with unit("basket"):
            await book("flight")
            raise ValueError("rain")
    except ValueError:
        return "home"


@workflow
async def welcome() -> str:
    try:
        return await greet("Ann")
    except ValueError:
        return "nobody"
"""


@pytest.fixture
def trips(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_EFFECT_MARGIN", "0")
    (outlast.folder / "trips.py").write_text(PROGRAM)
    outlast.lose = lambda *what: (outlast.folder / "lost").write_text(" ".join(what))
    outlast.lose()
    outlast.trip = lambda *words: outlast("run", "trips.py:trip", *words, "--id", "t1")
    return outlast


@pytest.fixture
def unknown(trips):
    """The flight is booked, of the hotel nobody can tell."""
    trips.lose("hotel")
    assert trips.trip().code == 5
    return trips


@pytest.fixture
def stuck(trips):
    """The hotel is undone, the flight cannot be, and the file is still to be closed."""
    trips.lose("unflight")
    assert trips.trip("true").code == 5
    return trips


def table(answer) -> dict[str, list[str]]:
    """The lines of the effects, by their places."""
    lines = answer.out.splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.split()[:2] == ["EFFECT", "STATE"]
    )
    cells = [line.split() for line in lines[start + 1 : lines.index("", start)]]
    return {line[0]: line[1:] for line in cells}


# -- decide


def test_decide_happened_records_the_given_result(unknown):
    answer = unknown("decide", "t1", "book#2", "--happened", '"room 7"')
    assert (answer.code, answer.out) == (0, "")
    assert "run t1 is queued again: it continues. To continue, start its program" in answer.err
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
        "its effects are being compensated, and it will end as cancelled: a person decided"
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


def test_a_run_that_is_not_there_exits_3_and_a_store_that_is_not_1(outlast):
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


# -- show, runs and run


def test_show_says_what_is_unknown_and_how_to_decide_it(unknown):
    answer = unknown("show", "t1", "--store", unknown.address)
    effects = table(answer)
    assert effects["book#1"][0] == "happened"
    assert effects["book#2"][0] == "unknown"
    key = unknown("show", "t1", "--json").json["effects"][-1]["key"]
    assert key in effects["book#2"]
    lines = answer.out.splitlines()
    said = " ".join(lines[lines.index("", lines.index("", 10) + 1) :])
    assert (
        "Parked: unknown: book#2: Outlast cannot determine whether it happened. It raised ConnectionError:"
        in said
    )
    assert "Say `outlast" not in said
    for way in ("--happened RESULT", "--did-not", "--compensate"):
        assert f"`outlast decide t1 'book#2' {way} --store {unknown.address}`" in said


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
    assert "about to be compensated by unbook, key " in answer.out
    assert "to compensate it: close, with" in answer.out
    effects = trips("show", "t1", "--json").json["effects"]
    done = [(effect["undo"]["known"], effect["place"]) for effect in effects]
    assert [place for _, place in sorted(done)] == ["book#2", "book#1", "compensate:close#1"]
    assert all(effect["known"] < effect["undo"]["since"] for effect in effects if effect["known"])


def test_retry_clears_shown_compensations(trips):
    trips.trip("true")
    trips("retry", "t1")
    answer = trips("show", "t1")
    assert "queued again; it was failed; entries from 1 on are void" in answer.out
    assert trips.trip().code == 1
    effects = trips("show", "t1", "--json").json["effects"]
    assert [effect["state"] for effect in effects] == ["undone"] * 3


def test_a_run_that_is_being_undone_says_so_and_what_it_ends_as(unknown):
    unknown("cancel", "t1", "--why", "enough")
    answer = unknown("runs")
    assert answer.out.splitlines()[1].split()[:2] == ["t1", "undoing"]
    assert "to end as cancelled: enough" in answer.out
    shown = unknown("show", "t1")
    assert shown.out.startswith("t1  undoing\n")
    assert (
        "Its effects are being compensated, newest first. It will end as cancelled: enough"
        in shown.out
    )
    assert "2 effects still to be compensated." in shown.out
    document = unknown("runs", "--json").json["runs"][0]
    assert (document["status"], document["undoing"]["status"]) == ("queued", "cancelled")
    assert [run["id"] for run in unknown("runs", "--undoing", "--json").json["runs"]] == ["t1"]


def test_only_runs_that_are_being_undone_are_listed_if_asked_for(trips):
    trips.trip()
    assert trips("runs", "--undoing").err == "outlast: no runs like that.\n"


def test_a_parked_run_is_listed_with_its_short_reason(unknown):
    line = unknown("runs", "--wide").out.splitlines()[1]
    assert line.split()[:2] == ["t1", "parked"]
    assert "unknown: book#2: Outlast cannot determine whether it happened." in line
    assert "Say" not in line


def test_run_says_that_somebody_has_to_decide(unknown):
    answer = unknown.trip()
    assert answer.code == 5
    assert "What to decide, and how: `outlast show t1`." in answer.err
    assert "resume" not in answer.err


def test_a_stuck_run_says_what_cannot_be_undone_and_how_to_go_on(stuck):
    assert "undoing, stuck: undo:book#1" in stuck("runs").out
    answer = stuck("show", "t1")
    effects = table(answer)
    assert effects["book#2"][0] == "undone"
    assert effects["book#1"][0] == "happened"
    assert "unbook failed 2 times: RuntimeError: the flight desk" in " ".join(effects["book#1"])
    assert "After fixing the cause: `outlast retry t1`." in answer.out
    assert (
        "Its effects are being compensated, newest first. It will end as failed: ValueError: rain"
        in answer.out
    )
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    assert f"`outlast decide t1 'undo:book#1' --happened null --intent {last}`" in answer.out
    assert stuck("show", "t1", "--json").json["undecided"] == ["undo:book#1"]


def test_a_stuck_run_is_undone_further_by_a_retry(stuck):
    stuck.lose()
    answer = stuck("retry", "t1")
    assert (
        "run t1 is queued again. Its effects are being compensated, and it will end as failed: ValueError: rain. To continue"
        in answer.err
    )
    assert stuck.trip().code == 1
    effects = stuck("show", "t1", "--json").json["effects"]
    assert [effect["state"] for effect in effects] == ["undone"] * 3


def test_a_stuck_run_goes_on_when_somebody_has_undone_it_by_hand(stuck):
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    answer = stuck("decide", "t1", "undo:book#1", "--happened", "null", "--intent", str(last))
    assert answer.code == 0
    assert "it will end as failed: ValueError: rain" in answer.err
    assert stuck.trip().code == 1
    states = [effect["state"] for effect in stuck("show", "t1", "--json").json["effects"]]
    assert states == ["undone"] * 3


def test_a_unit_that_cannot_be_undone_is_tried_again_by_a_resume(trips):
    trips.lose("unflight")
    assert trips("run", "trips.py:picnic", "--id", "p1").code == 5
    answer = trips("show", "p1")
    assert answer.out.startswith("p1  parked\n")
    assert "After fixing the cause: `outlast resume p1`." in answer.out
    trips.lose()
    assert trips("resume", "p1").code == 0
    assert trips("run", "trips.py:picnic", "--id", "p1").out == '"home"\n'


def test_an_effect_is_shown_with_the_units_that_it_was_called_in(trips):
    assert trips("run", "trips.py:picnic", "--id", "p1").out == '"home"\n'
    shown = trips("show", "p1")
    assert table(shown)["book#1"][-1] == "basket"
    assert trips("show", "p1", "--json").json["effects"][0]["units"] == ["basket"]


def test_of_effects_outside_a_unit_none_is_shown(trips):
    trips.trip()
    shown = trips("show", "t1")
    assert "UNIT" not in shown.out
    assert [one["units"] for one in trips("show", "t1", "--json").json["effects"]] == [[], [], []]


def test_an_effect_that_did_not_happen_says_so(trips):
    assert trips("run", "trips.py:welcome", "--id", "w1").out == '"nobody"\n'
    answer = trips("show", "w1")
    assert "attempt 1 did not happen: ValueError: nobody home" in answer.out
    assert "did not happen: ValueError: nobody home" in answer.out
    assert table(answer)["greet#1"][:3] == ["did", "not", "happen"]


def test_show_offers_no_retry_while_undoing(unknown):
    unknown("cancel", "t1", "--why", "enough.")
    assert unknown.trip().code == 5
    shown = unknown("show", "t1").out
    assert (
        "It did not happen, and needs no compensation:  `outlast decide t1 'book#2' --did-not"
        in shown
    )
    assert "Try it again" not in shown
    assert "It will end as cancelled: enough.\n" in shown
    intent = str(unknown("show", "t1", "--json").json["effects"][-1]["intent"])
    assert unknown("decide", "t1", "book#2", "--did-not", "--intent", intent).code == 0
    assert table(unknown("show", "t1"))["book#2"][:3] == ["did", "not", "happen"]
    ended = unknown.trip()
    assert (ended.code, "To run it anyway: `outlast retry t1`" in ended.err) == (6, True)
    assert ".." not in ended.err
    shown = unknown("show", "t1")
    assert table(shown)["book#2"][:3] == ["did", "not", "happen"]
    assert "its children have ended" not in shown.out


def test_what_is_to_be_decided_is_shown_with_its_arguments_and_its_time(unknown):
    shown = unknown("show", "t1").out
    [line] = [line for line in shown.splitlines() if line.startswith("book#2 (intent ")]
    assert " UTC), with " in line
    assert '"what": "hotel"' in line


def test_an_act_that_may_be_under_way_is_shown_with_its_time(outlast, monkeypatch):
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


def test_an_effect_that_is_to_be_undone_was_not_decided_to_have_happened(unknown):
    unknown("decide", "t1", "book", "--compensate")
    shown = unknown("show", "t1").out
    assert "decided by hand: compensate it\n" in shown
    assert "it happened, with" not in shown


def test_an_effect_that_cannot_be_undone_is_refused_with_4(stuck):
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    answer = stuck("decide", "t1", "undo:book#1", "--compensate", "--intent", str(last))
    assert answer.code == 4
    assert "is already being compensated" in answer.err


def test_a_parked_run_that_is_retried_is_told_to_be_resumed(unknown):
    answer = unknown("retry", "t1")
    assert answer.code == 4
    assert "`outlast resume t1`. What to decide: `outlast show t1`." in answer.err


def test_undoing_is_a_status_that_runs_can_be_listed_by(unknown):
    unknown("cancel", "t1")
    assert [run["id"] for run in unknown("runs", "--status", "undoing", "--json").json["runs"]] == [
        "t1"
    ]
    assert unknown("runs", "--status", "undoing", "--status", "parked").code == 2


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


# -- cancel


def test_cancelling_a_parked_run_with_effects_says_that_it_is_undone(unknown):
    answer = unknown("cancel", "t1", "--why", "enough")
    assert answer.code == 0
    assert (
        "run t1 has effects, which are being compensated. It will end as cancelled: enough. To compensate them"
        in answer.err
    )
    assert unknown("cancel", "t1", "--json").json["error"]["exit_code"] == 4


def test_what_is_being_undone_cannot_be_cancelled_and_says_how_far_it_is(stuck):
    answer = stuck("cancel", "t1")
    assert answer.code == 4
    assert (
        "run 't1' is already being compensated, and will end as failed: ValueError: rain."
        in answer.err
    )
    assert "`outlast show t1` shows its progress. It is stuck: `outlast retry t1`." in answer.err


# -- what cannot be trusted


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
        Settle(row.pk, row.fence, "parked", reason=f"unknown: {HOSTILE} Say `outlast x`")
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
