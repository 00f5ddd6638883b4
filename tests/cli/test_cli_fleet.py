"""`outlast workers`, `queues` and `limit`."""

from __future__ import annotations

import json
import re
import time

import pytest

from outlast.store.commands import (
    Claim,
    RegisterWorker,
    Release,
    Renew,
    SetQueueLimits,
    Settle,
    Submit,
    Undo,
    UpdateSession,
    verdict,
)
from outlast.store.fleet import STALLS

HOSTILE = "\x1b[2J\x07 [red]\u202e\x9b31m\r\n\x7f"
FORBIDDEN = set("\x1b\x07\x9b\r\x7f\u202e")

WORKER_KEYS = {
    "id", "state", "host", "pid", "started", "renewed", "lease_until", "lease_left", "draining", "queues", "workflows",
    "held", "concurrency",
}  # fmt: skip
QUEUE_KEYS = {
    "name", "queued", "ready", "delayed", "running", "waiting", "parked", "dead", "oldest", "oldest_seconds", "submitted_last_minute",
    "ended_last_minute", "depth_max", "concurrency_max", "per_key_concurrency", "per_key_rate", "paused", "returned", "returned_since", "returned_seconds", "undoing",
    "stuck", "unknown_workflows",
}  # fmt: skip


# -- workers


def test_workers_are_listed_with_what_they_take_and_hold(outlast):
    outlast.registered(queues=("default", "mail"), workflows=("report", "echo"))
    outlast.submitted("r1", worker="w1")
    outlast.registered("w2", queues=(), workflows=(), concurrency=0)
    lines = outlast("workers", "--wide").out.splitlines()
    assert re.split(r"  +", lines[0]) == [
        "WORKER", "STATE", "HOST", "PID", "SINCE", "RENEWED", "LEASE LEFT", "SLOTS", "WORKFLOWS", "QUEUES",
    ]  # fmt: skip
    rows = {cells[0]: cells for cells in (re.split(r"  +", line) for line in lines[1:])}
    assert rows["w1"][1:4] == ["alive", "some-host", "4242"]
    assert rows["w1"][5].endswith(" ago")
    assert rows["w1"][6] == "11 d 13 h"
    assert rows["w1"][7:] == ["1/4", "2", "default, mail"]
    assert rows["w2"][7:] == ["0/-", "-", "- (claims nothing)"]


def test_a_worker_whose_lease_ran_out_is_said_to_be_dead(outlast):
    outlast.registered(lease=0.0)
    line = outlast("workers").out.splitlines()[1]
    assert "seems dead" in line
    assert "ran out" in line
    assert outlast("workers", "--json").json["workers"][0]["state"] == "dead"


def test_a_worker_that_drains_is_said_to(outlast):
    outlast.registered()
    outlast.commit(Renew("w1", 1e6, draining=True))
    assert "draining" in outlast("workers").out
    [worker] = outlast("workers", "--json").json["workers"]
    assert (worker["state"], worker["draining"]) == ("draining", True)


def test_a_step_that_blocked_a_workers_event_loop_is_shown(outlast):
    outlast.registered()
    said = json.dumps({"count": 3, "seconds": 12.04, "at": time.time() - 60, "line": "flows.py:12"})
    outlast.commit(UpdateSession("w1", "t1", {"fetch": said, "torn": "{"}, 1e6, space=STALLS))
    [line] = [line for line in outlast("workers").out.splitlines() if "blocked" in line]
    assert line.startswith(
        "worker w1: `fetch` blocked the event loop 3 times, the last time for 12.0 s"
    )
    assert "at flows.py:12" in line
    assert "call it with `await NAME.aio(...)`" in line
    [stall] = outlast("workers", "--json").json["stalls"]
    assert (stall["worker"], stall["step"], stall["times"], stall["seconds"]) == (
        "w1",
        "fetch",
        3,
        12.04,
    )


def test_workers_as_json_have_stable_keys(outlast):
    outlast.registered()
    document = outlast("workers", "--json").json
    assert set(document) == {"workers", "deregistered", "stalls"}
    [worker] = document["workers"]
    assert set(worker) == WORKER_KEYS
    assert worker["queues"] == ["default"]
    assert worker["workflows"] == ["report"]
    assert worker["lease_left"] > 900_000


def test_fleet_without_live_workers_is_reported_on_stderr(outlast):
    outlast.commit()
    answer = outlast("workers")
    assert (answer.code, answer.out, answer.err) == (
        0,
        "",
        "outlast: no process has this store open.\n",
    )
    assert outlast("queues").err == "outlast: no queues.\n"
    assert outlast("workers", "--json").json == {"workers": [], "deregistered": [], "stalls": []}
    assert outlast("queues", "--json").json == {"queues": []}


def test_looking_at_the_fleet_registers_no_worker(outlast, monkeypatch):
    outlast.submitted("r1")
    monkeypatch.setattr("outlast.engine.engine.Engine.open", None)
    assert outlast("workers", "--json").json["workers"] == []
    assert outlast("queues").code == 0


# -- queues


def test_queues_are_listed_with_what_is_in_them(outlast):
    outlast.registered()
    outlast.commit(SetQueueLimits("mail", 100, 2))
    outlast.submitted("r1")
    outlast.submitted("later", delay=3600.0)
    outlast.submitted("even later", delay=7200.0)
    outlast.submitted("r2", worker="w1")
    parked = outlast.submitted("r3", worker="w1")
    outlast.commit(Settle(parked.pk, parked.fence, "parked", reason="code"))
    waiting = outlast.submitted("r4", worker="w1")
    outlast.commit(Release(waiting.pk, waiting.fence, "it waits", waiting=True))
    outlast.dead_item()
    lines = outlast("queues", "--wide").out.splitlines()
    assert re.split(r"  +", lines[0]) == [
        "QUEUE", "READY", "DELAYED", "RUNNING", "WAITING", "PARKED", "DEAD", "OLDEST", "IN/MIN", "OUT/MIN", "DEPTH MAX",
        "CONCURRENCY MAX",
    ]  # fmt: skip
    default, mail = (re.split(r"  +", line) for line in lines[1:])
    assert default[:7] == ["default", "1", "2", "1", "1", "1", "0"]
    assert re.fullmatch(r"\d.* m?s", default[7])
    assert default[8:] == ["6", "0", "-", "-"]
    assert mail == ["mail", "0", "0", "0", "0", "0", "1", "-", "1", "1", "100", "2"]


def test_queues_as_json_have_stable_keys(outlast):
    outlast.submitted("r1")
    outlast.submitted("later", delay=3600.0)
    [queue] = outlast("queues", "--json").json["queues"]
    assert set(queue) == QUEUE_KEYS
    assert (queue["queued"], queue["ready"], queue["delayed"]) == (2, 1, 1)
    assert (queue["name"], queue["submitted_last_minute"]) == ("default", 2)
    assert queue["oldest"].endswith("Z")
    assert queue["oldest_seconds"] >= 0
    assert queue["unknown_workflows"] == ["report"]


def test_what_came_back_and_what_is_being_undone_have_a_line(outlast):
    outlast.registered()
    back, undone, stuck = (outlast.submitted(id, worker="w1") for id in ("back", "undone", "stuck"))
    outlast.commit(Release(back.pk, back.fence, "drain"))
    for row in (undone, stuck):
        outlast.commit(Undo(row.pk, row.fence, verdict("failed")))
    ((held,),) = outlast.commit(Claim("w1", "t", ids=("stuck",)))
    outlast.commit(Settle(held.pk, held.fence, "parked", reason="its effect is open"))
    lines = outlast("queues").out.splitlines()[2:]
    assert re.fullmatch(
        r"default: 2 queued again after an interruption or a death; the longest wait is \d.* m?s\.",
        lines[0],
    )
    assert lines[1:3] == ["default: 1 being compensated.", "default: 1 parked during compensation."]
    [queue] = outlast("queues", "--json").json["queues"]
    assert (queue["returned"], queue["undoing"], queue["stuck"]) == (2, 1, 1)
    assert queue["returned_since"].endswith("Z")
    assert queue["returned_seconds"] >= 0


def test_a_workflow_that_no_living_worker_knows_has_a_line(outlast):
    def lines():
        return [line for line in outlast("queues").out.splitlines() if "no live worker" in line]

    outlast.submitted("r1")
    outlast.submitted("r2", workflow="echo", args="{}", queue="mail")
    outlast.submitted("r3", workflow="waits", args="{}", queue="mail", delay=3600.0)
    unclaimed = "{}: runs of {} are ready, and no live worker claims from this queue."
    assert lines() == [unclaimed.format("default", "report"), unclaimed.format("mail", "echo")]
    outlast.registered(workflows=("report", "echo"))
    assert lines() == [unclaimed.format("mail", "echo")], "it does not claim from mail"
    outlast.registered("w2", queues=("mail",), workflows=())
    unknown = "mail: runs of echo are ready, and no live worker of this queue knows the workflow."
    assert lines() == [unknown]
    outlast.registered("w2", queues=("mail",), workflows=("report", "echo"))
    assert lines() == []
    outlast.commit(Renew("w2", 1e6, draining=True))
    outlast.registered("w1", lease=0.0)
    assert lines() == [unclaimed.format("default", "report"), unclaimed.format("mail", "echo")]


def test_queue_that_is_paused_or_limited_has_a_line(outlast):
    def lines():
        return outlast("queues").out.splitlines()[2:]

    outlast.registered()
    outlast.submitted("r1", worker="w1")
    for id in ("r2", "r3"):
        outlast.submitted(id)
    assert lines() == []
    outlast("limit", "default", "--concurrency", "2")
    assert lines() == []
    outlast("limit", "default", "--concurrency", "1")
    assert lines() == ["default: 2 held back by its concurrency limit of 1."]
    outlast("limit", "default", "--concurrency", "0")
    resume = "outlast limit default --no-concurrency"
    assert lines() == [f"default: paused. To resume: `{resume}`."]
    assert (
        f"`{resume} --store {outlast.address}`" in outlast("queues", "--store", outlast.address).out
    )


def test_items_need_no_worker_that_knows_them(outlast):
    outlast.item("i1")
    assert outlast("queues", "--json").json["queues"][0]["unknown_workflows"] == []


# -- watching


@pytest.mark.parametrize("command", ["workers", "queues"])
def test_watching_looks_again_until_it_is_interrupted(outlast, watched, command):
    outlast.registered()
    outlast.submitted("r1")
    watched(3)
    answer = outlast(command, "--watch")
    assert answer.code == 130
    assert "\x1b" not in answer.out
    once = "WORKER" if command == "workers" else "QUEUE "
    assert answer.out.count(once) == 3


def test_watching_as_json_is_one_document_a_line(outlast, watched):
    outlast.submitted("r1")
    watched(2)
    lines = outlast("queues", "--watch", "--json").out.splitlines()
    assert [json.loads(line)["queues"][0]["queued"] for line in lines] == [1, 1]


def test_watching_an_empty_store_waits_for_something_to_come(outlast, watched):
    outlast.commit()
    watched(1)
    assert outlast("queues", "--watch").out == "no queues.\n\n"


def test_on_a_terminal_each_look_is_drawn_over_the_last_and_fits_it(
    outlast, watched, monkeypatch, capsys
):
    for number in range(40):
        outlast.registered(f"worker-{number:02}")
    watched(2)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = outlast("workers", "--watch").out
    frames = out.split("\x1b[H")[1:]
    assert len(frames) == 2
    for frame in frames:
        lines = frame.removesuffix("\x1b[J").split("\x1b[K\n")
        assert len(lines) == 10
        assert lines[-1] == ""
        assert lines[-2] == "… and 33 more lines"
        assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 60 for line in lines)


# -- names of others


def test_fleet_output_escapes_control_characters(outlast, watched):
    outlast.commit(
        RegisterWorker(HOSTILE, HOSTILE, 1, 1e6, (HOSTILE,), (HOSTILE,), 1),
        Submit("r1", f"w{HOSTILE}", HOSTILE, "t", "00" * 16, queue=f"q{HOSTILE}"),
        Submit(f"i{HOSTILE}", "", HOSTILE, "t2", "00" * 16, queue=f"q{HOSTILE}"),
    )
    watched(1)
    for words in (
        ["workers"],
        ["workers", "--json"],
        ["workers", "--watch"],
        ["queues"],
        ["queues", "--json"],
        ["queues", "--watch"],
        ["runs", "--items"],
        ["show", "r1"],
        ["cancel", "r1"],
        ["retry", "r1"],
    ):
        answer = outlast(*words)
        assert answer.code in (0, 130)
        assert not FORBIDDEN & set(answer.out + answer.err)
        assert answer.out or answer.err
    assert outlast("workers", "--json").json["workers"][0]["host"] == HOSTILE
    assert len(outlast("workers").out.splitlines()) == 2, "and a command leaves no worker behind"


# -- the width of tables


def test_tables_fit_80_columns_unless_wide(outlast):
    queues = tuple(f"queue-{number}" for number in range(20))
    outlast.commit(
        RegisterWorker("0123456789abcdef", "pod-" * 12, 4242, 1e6, queues, ("report",), 4)
    )
    row = outlast.submitted("3f2a9c1e-7b64-4a51-9c1e-7b644a519c1e", worker="0123456789abcdef")
    outlast.commit(Settle(row.pk, row.fence, "parked", reason="the code changed " * 20))
    for words in (["workers"], ["queues"], ["runs"]):
        narrow = outlast(*words).out.splitlines()
        assert len(narrow) == 2
        assert all(len(line) <= 80 for line in narrow)
        wide = outlast(*words, "--wide").out.splitlines()
        assert all(len(line) > 80 for line in wide[1:])
        assert "…" not in wide[1]
    assert row.id in outlast("runs").out
    assert "0123456789abcdef" in outlast("workers").out


def test_a_wider_terminal_is_used(outlast, monkeypatch):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, "parked", reason="the code changed " * 20))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in outlast("runs").out.splitlines()]
    assert len(lines[1]) == 120
