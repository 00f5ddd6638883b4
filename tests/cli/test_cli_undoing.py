"""Runs that are being undone: `outlast show`, `runs`, `retry`, `resume` and `cancel`."""

from __future__ import annotations

from effect_tools import table

from outlast.cli.os_user import os_user


def test_undoing_run_shows_how_it_will_end(unknown):
    unknown("cancel", "t1", "--why", "enough")
    answer = unknown("runs")
    assert answer.out.splitlines()[1].split()[:2] == ["t1", "undoing"]
    assert "will end as cancelled: enough" in answer.out
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


def test_runs_undoing_lists_only_undoing_runs(trips):
    trips.trip()
    assert trips("runs", "--undoing").err == "outlast: no runs match.\n"


def test_stuck_run_shows_what_failed_and_how_to_continue(stuck):
    assert "undoing, stuck: undo:book#1" in stuck("runs").out
    answer = stuck("show", "t1")
    effects = table(stuck("show", "t1", "--wide"))
    assert effects["book#2"][0] == "undone"
    assert effects["book#1"][0] == "happened"
    assert "unbook failed 2 times: RuntimeError: the flight desk" in " ".join(effects["book#1"])
    assert "After fixing the cause, run `outlast retry t1`." in answer.out
    assert (
        "Its effects are being compensated, newest first. It will end as failed: ValueError: rain"
        in answer.out
    )
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    assert f"outlast decide t1 'undo:book#1' --happened null --intent {last}" in answer.out
    assert stuck("show", "t1", "--json").json["undecided"] == ["undo:book#1"]


def test_retry_continues_the_undoing_of_a_stuck_run(stuck):
    stuck.lose()
    answer = stuck("retry", "t1")
    assert (
        "run t1 is queued again. Its effects are being compensated, and it will end as failed: ValueError: rain. No live worker claims the run. To continue"
        in answer.err
    )
    assert stuck.trip().code == 1
    effects = stuck("show", "t1", "--json").json["effects"]
    assert [effect["state"] for effect in effects] == ["undone"] * 3


def test_stuck_run_continues_after_a_manual_decision(stuck):
    last = stuck("show", "t1", "--json").json["effects"][1]["undo"]["intent"]
    answer = stuck("decide", "t1", "undo:book#1", "--happened", "null", "--intent", str(last))
    assert answer.code == 0
    assert "it will end as failed: ValueError: rain" in answer.err
    assert stuck.trip().code == 1
    states = [effect["state"] for effect in stuck("show", "t1", "--json").json["effects"]]
    assert states == ["undone"] * 3


def test_resume_retries_a_unit_that_could_not_be_undone(trips):
    trips.lose("unflight")
    assert trips("run", "trips.py:picnic", "--id", "p1").code == 5
    answer = trips("show", "p1")
    assert answer.out.startswith("p1  parked\n")
    assert "After fixing the cause, run `outlast resume p1`." in answer.out
    trips.lose()
    assert trips("resume", "p1").code == 0
    assert trips("run", "trips.py:picnic", "--id", "p1").out == '"home"\n'


def test_show_offers_no_retry_while_undoing(unknown):
    unknown("cancel", "t1", "--why", "enough.")
    assert unknown.trip().code == 5
    shown = unknown("show", "t1").out
    assert (
        "If it did not happen, and needs no compensation:\n    outlast decide t1 'book#2' --did-not"
        in shown
    )
    assert "tried again" not in shown
    assert f"It will end as cancelled: enough (by {os_user()}).\n" in shown
    intent = str(unknown("show", "t1", "--json").json["effects"][-1]["intent"])
    assert unknown("decide", "t1", "book#2", "--did-not", "--intent", intent).code == 0
    assert table(unknown("show", "t1"))["book#2"][:3] == ["did", "not", "happen"]
    ended = unknown.trip()
    assert (ended.code, "To run it anyway: `outlast retry t1`" in ended.err) == (6, True)
    assert ".." not in ended.err
    shown = unknown("show", "t1")
    assert table(shown)["book#2"][:3] == ["did", "not", "happen"]
    assert "its children have ended" not in shown.out


def test_runs_can_be_filtered_by_status_undoing(unknown):
    unknown("cancel", "t1")
    assert [run["id"] for run in unknown("runs", "--status", "undoing", "--json").json["runs"]] == [
        "t1"
    ]
    assert unknown("runs", "--status", "undoing", "--status", "parked").code == 2


def test_cancel_of_a_parked_run_with_effects_undoes_it(unknown):
    answer = unknown("cancel", "t1", "--why", "enough")
    assert answer.code == 0
    assert (
        "run t1 has effects, which are being compensated. It will end as cancelled: enough "
        f"(by {os_user()}). No live worker claims the run. To compensate them" in answer.err
    )
    assert unknown("cancel", "t1", "--json").json["error"]["exit_code"] == 4


def test_cancel_of_an_undoing_run_is_refused(stuck):
    answer = stuck("cancel", "t1")
    assert answer.code == 4
    assert (
        "run 't1' is already being compensated, and will end as failed: ValueError: rain."
        in answer.err
    )
    assert "`outlast show t1` shows its progress. It is stuck: `outlast retry t1`." in answer.err
