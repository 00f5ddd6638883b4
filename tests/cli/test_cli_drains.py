"""`outlast drains`: the reports of drains."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from drain_rows import FORBIDDEN, HERE, HOSTILE, REPORT, drained, registered

from outlast import effect, workflow
from outlast.store.commands import Claim, DeregisterWorker, Drain, Release, StoreDrainReport, Sweep

REPORT_KEYS = {
    "worker", "reason", "host", "pid", "began", "seconds", "layers", "completed", "released", "waiting", "checkpointed",
    "not_started", "compensations", "cost", "left", "not_checkpointed", "blocked", "units", "cleanup", "cut_short", "recoveries",
}  # fmt: skip


def test_drains_of_an_empty_store_says_so(outlast):
    outlast.submitted("r1")
    answer = outlast("drains")
    assert (answer.code, answer.out, answer.err) == (
        0,
        "",
        "outlast: no worker has drained here yet.\n",
    )
    assert outlast("drains", "--json").json == {"drains": []}


def test_drains_lists_the_last_ones_newest_first(outlast):
    for number in range(3):
        drained(outlast, f"w{number}", reason=f"deploy {number}")
    answer = outlast("drains", "--limit", "2", "--wide")
    head, *lines = answer.out.splitlines()
    assert head.split()[:3] == ["BEGAN", "WORKER", "HOST"]
    assert [line.split()[3] for line in lines] == ["w2", "w1"]
    assert "drained  3.2 s" in lines[0]
    assert "deploy 2" in lines[0]
    assert all(len(line) <= 80 for line in outlast("drains").out.splitlines())
    assert [one["worker"] for one in outlast("drains", "--json").json["drains"]] == [
        "w2",
        "w1",
        "w0",
    ]
    assert outlast("drains", "--limit", "0").code == 2


def test_drains_leaves_the_room_of_a_reason_to_the_reason(outlast):
    drained(outlast, reason="bad release (by os:root)")
    [_, line] = outlast("drains").out.splitlines()
    assert line.endswith("  bad release")
    assert outlast("drains", "--wide").out.rstrip().endswith("bad release (by os:root)")
    drained(outlast, "w2", reason="(by nobody)")
    assert outlast("drains").out.splitlines()[1].endswith("  (by nobody)")


def test_drain_json_is_the_whole_report(outlast):
    drained(outlast)
    (one,) = outlast("drains", "--json").json["drains"]
    assert set(one) == REPORT_KEYS
    assert one["began"].endswith("Z")
    assert one["left"] == REPORT["left"]
    assert one["cleanup"] == REPORT["cleanup"]
    assert outlast("drains", "w", "--json").json == {"drain": one}


def test_one_drain_is_shown_in_full(outlast):
    drained(outlast)
    shown = outlast("drains", "w1").out
    for words in (
        "worker w1  drained", f"{HERE}, pid 4242", "SIGTERM", "coordinate at 4 ms", "exit at 3.2 s",
        "4 completed, 3 released, 2 waiting, 1 checkpointed, 5 not started, 1 left", "2 committed, 1 rolled back",
        "run r9 at crunch#1, for 12.5 s: it was asked to stop and did not", "did not stop  r9 crunch#1",
        "the event loop was blocked", "flush: 100 ms", "close: 200 ms, failed: OSError()",
    ):  # fmt: skip
        assert words in shown


@effect(timeout=1000, undo=None)
async def long_act() -> None:
    await asyncio.sleep(500)


@workflow
async def acting() -> None:
    await long_act()


def test_effect_under_way_at_the_deadline_is_open(world):
    async def main(app):
        await app.start(acting(), id="r1")
        await asyncio.sleep(1)
        return await app.drain("test", grace=10)

    report = world.do(main)
    [left] = report.left
    assert (left.step, left.why) == (
        "long_act#1",
        "an effect is in flight and is not interrupted: its outcome is open",
    )
    assert report.not_checkpointed == []


def test_a_drain_that_is_not_on_record_or_not_clear_is_an_error(outlast):
    drained(outlast, "abc")
    drained(outlast, "abd")
    assert outlast("drains", "nobody").code == 1
    assert outlast("drains", "").code == 1
    answer = outlast("drains", "ab")
    assert answer.code == 2
    assert "abc" in answer.err
    assert outlast("drains", "abc").code == 0


def test_drain_without_a_report_shows_its_state(outlast):
    registered(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    assert " draining " in outlast("drains").out
    assert " draining " in outlast("workers").out
    outlast.commit(DeregisterWorker("w1"))
    assert " no report " in outlast("drains").out


def test_a_drain_that_was_cut_short_says_what_was_left(outlast):
    registered(outlast)
    outlast.submitted("r1")
    ((row,),) = outlast.commit(Claim("w1", "t1", queues=("default",), limit=1))
    outlast.commit(Drain("w1", "SIGTERM", keep=(row.fence,)))
    with closing(sqlite3.connect(outlast.db)) as db, db:
        db.execute("UPDATE workers SET lease_until = 0, lease = 0")
    outlast.commit(Sweep())
    assert " cut short " in outlast("drains").out
    shown = outlast("drains", "w1").out
    assert "worker w1  cut short" in shown
    assert "run r1" in shown
    (one,) = outlast("drains", "--json").json["drains"]
    assert (one["cut_short"], [left["id"] for left in one["left"]]) == (True, ["r1"])
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "ended before it could report" in answer.err


def test_recoveries_are_counted(outlast):
    registered(outlast, "w1")
    outlast.submitted("r1")
    (claimed,) = outlast.commit(Claim("w1", "t1", queues=("default",), limit=1))
    (row,) = claimed
    outlast.commit(Drain("w1", "SIGTERM", keep=(row.fence,)))
    outlast.commit(Release(row.pk, row.fence, "drain: SIGTERM", interrupted=True))
    outlast.commit(
        StoreDrainReport("w1", json.dumps({"seconds": 1.0, "released": 1})), DeregisterWorker("w1")
    )
    registered(outlast, "w2")
    outlast.commit(Claim("w2", "t2", queues=("default",), limit=1))
    (one,) = outlast("drains", "--json").json["drains"]
    assert one["recoveries"]["count"] == 1
    assert "recovered     1, after p50" in outlast("drains", "w1").out


def test_drain_output_escapes_control_characters(outlast):
    report = {
        "left": [{"what": HOSTILE, "id": HOSTILE, "step": HOSTILE, "why": HOSTILE}], "not_checkpointed": [HOSTILE],
        "blocked": [HOSTILE], "cleanup": [{"name": HOSTILE, "seconds": 1, "error": HOSTILE}], "layers": {HOSTILE: 1.0},
        "units": {HOSTILE: 1},
    }  # fmt: skip
    registered(outlast, HOSTILE, host=HOSTILE)
    outlast.commit(Drain(HOSTILE, HOSTILE), StoreDrainReport(HOSTILE, json.dumps(report)))
    for words in (
        ["drains"],
        ["drains", HOSTILE],
        ["drain"],
        ["drain", "--worker", HOSTILE],
        ["workers"],
    ):
        answer = outlast(*words)
        assert not FORBIDDEN & set(answer.out + answer.err), words
    assert outlast("drains", "--json").json["drains"][0]["reason"] == HOSTILE


@pytest.mark.parametrize(
    "text", ["not json", "[]", '"x"', '{"left": 3}', '{"cleanup": [1]}', "[" * 5000]
)
def test_unreadable_drain_report_is_shown_partly(outlast, text):
    registered(outlast)
    outlast.commit(Drain("w1", "SIGTERM"), StoreDrainReport("w1", text))
    answer = outlast("drains", "w1")
    assert answer.code == 0
    assert "SIGTERM" in answer.out
    assert "cannot be read by this version" in answer.out
    assert "w1" in outlast("drains").out


def test_newer_drain_report_is_shown_partly(outlast):
    registered(outlast)
    outlast.commit(
        Drain("w1", "SIGTERM"),
        StoreDrainReport("w1", '{"left": [{"id": "r1", "new": 1}], "newer": 2}'),
    )
    answer = outlast("drains", "w1")
    assert (answer.code, "r1" in answer.out) == (0, True)


def test_drains_can_be_watched(outlast, monkeypatch):
    def sleep(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("outlast.cli.watch.time.sleep", sleep)
    drained(outlast)
    answer = outlast("drains", "--watch", "--json")
    assert answer.code == 130
    assert json.loads(answer.out)["drains"][0]["worker"] == "w1"
