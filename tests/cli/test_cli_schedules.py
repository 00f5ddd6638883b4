"""`outlast schedules` and `outlast schedule`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest

from outlast.cli.os_user import os_user
from outlast.engine.schedule_rows import (
    DEFINITION,
    SCHEDULES,
    STATE,
    Definition,
    Firing,
    Overlap,
    State,
)
from outlast.store.commands import UpdateSession

NOON = 1_900_000_800.0  # 2030-03-17 20:00 UTC
KEYS = {
    "name", "workflow", "args", "cron", "every", "tz", "overlap", "catch_up", "jitter", "queue", "priority", "key", "paused",
    "next", "last", "last_run", "waiting", "skipped", "by",
}  # fmt: skip


@pytest.fixture
def nightly(outlast):
    """Set a schedule that fires at two in the morning, Berlin time."""
    definition = Definition(
        workflow="report",
        args='{"topic":"tides"}',
        cron="0 2 * * *",
        every=None,
        tz="Europe/Berlin",
        overlap=Overlap.SKIP,
        catch_up=1,
        jitter=0.0,
        queue="reports",
        priority=0,
        timeout=None,
        abandon_after=None,
    )
    last = Firing("nightly@2030-03-17T01:00:00Z", NOON - 19 * 3600)
    state = State(start=NOON, fired=NOON, last=last, skipped=2)
    fields = {DEFINITION: json.dumps(asdict(definition)), STATE: json.dumps(asdict(state))}
    outlast.commit(UpdateSession("nightly", "t", fields, space=SCHEDULES))
    return outlast


def test_schedules_are_listed_with_their_next_time_in_their_zone(nightly):
    header, line = nightly("schedules").out.splitlines()
    assert re.split(r"  +", header) == ["SCHEDULE", "WORKFLOW", "WHEN", "NEXT", "IN", "LAST RUN"]
    assert len(line) <= 80
    cells = re.split(r"  +", nightly("schedules", "--wide").out.splitlines()[1])
    assert cells[:5] == ["nightly", "report", "0 2 * * *", "Europe/Berlin", "2030-03-18 02:00 CET"]
    assert cells[6:] == ["nightly@2030-03-17T01:00:00Z", "reports", "skip", "0", "2"]


def test_schedules_as_json(nightly):
    (schedule,) = nightly("schedules", "--json").json["schedules"]
    assert schedule.keys() == KEYS
    assert schedule["args"] == {"topic": "tides"}
    assert schedule["next"].startswith("2030-03-18T01:00:00")
    assert schedule["last_run"] == "nightly@2030-03-17T01:00:00Z"


def test_store_without_schedules(outlast):
    outlast.submitted("r1")
    assert outlast("schedules").err == "outlast: no schedules.\n"
    assert outlast("schedules", "--json").json == {"schedules": []}


def test_damaged_schedule_is_reported_beside_the_others(nightly):
    nightly.commit(UpdateSession("broken", "t", {STATE: "[]"}, space=SCHEDULES))
    answer = nightly("schedules")
    assert "nightly" in answer.out
    assert "schedule 'broken' is damaged in the store" in answer.err
    assert nightly("schedule", "delete", "broken").err == "outlast: deleted schedule broken.\n"
    assert "broken" not in nightly("schedules").err


def test_schedule_is_paused_and_resumed(nightly):
    assert nightly("schedule", "pause", "nightly").err == (
        "outlast: schedule nightly is paused. To resume it: `outlast schedule resume nightly`.\n"
    )
    assert " paused " in nightly("schedules").out
    assert nightly("schedule", "resume", "nightly", "--json").json["schedule"]["paused"] is False
    assert re.search(
        r"fires next at \d{4}-\d\d-\d\d 02:00 CES?T", nightly("schedule", "resume", "nightly").err
    )


def test_schedule_and_triggered_run_name_the_user_of_the_system(nightly):
    paused = nightly("schedule", "pause", "nightly", "--json").json["schedule"]
    assert paused["by"] == os_user()
    run = nightly("schedule", "trigger", "nightly", "--json").json["run"]
    assert nightly("show", run, "--json").json["run"]["by"] == os_user()


def test_triggered_run_is_named(nightly):
    answer = nightly("schedule", "trigger", "nightly")
    id = re.fullmatch(r"(nightly@\S+Z)\n", answer.out)[1]
    assert f"outlast show {id}" in answer.err
    row = nightly.row(id)
    assert (row.workflow, row.args, row.queue) == ("report", '{"topic":"tides"}', "reports")


def test_range_is_backfilled_in_the_zone_that_is_given(nightly):
    words = ("schedule", "backfill", "nightly", "2026-11-01", "2026-11-03T02:00")
    runs = nightly(*words, "--tz", "Europe/Berlin", "--json").json["runs"]
    assert runs == ["nightly@2026-11-01T01:00:00Z", "nightly@2026-11-02T01:00:00Z"]
    assert nightly.row(runs[0]).status == "queued"
    assert nightly(*words).err == (
        "outlast: 3 runs submitted or already there, nightly@2026-11-01T01:00:00Z to "
        "nightly@2026-11-03T01:00:00Z.\n"
    )
    nothing = nightly("schedule", "backfill", "nightly", "2026-11-01T03:00", "2026-11-01T04:00")
    assert "has no times from" in nothing.err


def test_wrong_time_is_refused(nightly):
    answer = nightly("schedule", "backfill", "nightly", "yesterday", "2026-11-03")
    assert answer.code == 2
    assert "'yesterday' is not a time: write 2026-11-01T00:00" in answer.err


def test_schedule_is_deleted(nightly):
    assert nightly("schedule", "delete", "nightly").err == "outlast: deleted schedule nightly.\n"
    assert nightly("schedules").err == "outlast: no schedules.\n"


@pytest.mark.parametrize("action", ["pause", "resume", "trigger", "delete"])
def test_unknown_schedule_exits_with_3(nightly, action):
    answer = nightly("schedule", action, "nihgtly", "--json")
    assert answer.code == 3
    assert answer.json["error"]["explain"] == "UnknownSchedule"
