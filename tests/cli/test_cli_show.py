"""`outlast show`: the timeline of one run."""

from __future__ import annotations

import json
import re

import pytest

from outlast.store.commands import (
    Cancel,
    Claim,
    RegisterWorker,
    Release,
    Resume,
    Retry,
    Send,
    Settle,
    SetWaiting,
    Sweep,
)

RUN_KEYS = {
    "id", "workflow", "status", "delayed", "queue", "priority", "created", "started", "ended", "due", "worker", "fence", "deaths",
    "interruptions", "failures", "item", "parent", "by", "key", "waiting_for", "cancelling", "reason", "error", "explain", "undoing",
}  # fmt: skip


def test_show_lists_the_events_of_a_run_in_order(outlast):
    row = outlast.started("r1")
    error = json.dumps({"type": "builtins:ValueError", "message": "no luck", "args": []})
    outlast.entry(
        row,
        1,
        "attempt",
        "research#1",
        attempt=1,
        error=error,
        value=str(row.created + 1.5),
        seconds=0.5,
    )
    outlast.entry(row, 2, "step", "research#1", attempt=2, value='"notes"', seconds=0.25)
    outlast.entry(row, 3, "fired", "(timer)#1")
    outlast.commit(Send("r1", "approval", "m1", '"yes"'))
    outlast.entry(row, 4, "message", "approval", value="1")
    outlast.entry(row, 5, "inner", "research#1/fetch({})#1", value="[1]", seconds=90.0)
    outlast.entry(row, 6, "child", "report#1", error=error)
    outlast.entry(row, 7, "cancel", value='{"why": "enough"}')
    answer = outlast("show", "r1")
    assert answer.code == 0
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == "r1 running"
    assert "workflow report" in lines
    assert 'args {"topic": "tides"}' in lines
    assert "worker living (process 4242 on some-host)" in lines
    assert "fence 1 (writes with a lower fence are rejected)" in lines
    story = [line for line in lines if line.startswith("+")]
    assert story == [
        "+1.0 s 1 attempt research#1 attempt 1 failed after 500 ms: ValueError: no luck; retry at +1.5 s",
        '+2.0 s 2 step research#1 attempt 2, 250 ms "notes"',
        "+3.0 s 3 fired (timer)#1 a timer fired",
        '+4.0 s 4 message approval received "yes"',
        "+5.0 s 5 inner research#1/fetch({})#1 1 min 30 s [1]",
        "+6.0 s 6 child report#1 run r1/report#1 ended with ValueError: no luck",
        "+7.0 s 7 cancel cancellation requested: enough",
    ]


def test_show_lists_deaths_interruptions_and_retries(outlast):
    row = outlast.started("r1", lease=0.0)
    outlast.commit(Sweep())
    outlast.commit(Cancel("r1", "enough"))
    assert outlast("run", "agent.py:report", "--id", "r1").code == 6
    outlast.commit(Retry("r1", "t1"))
    answer = outlast("show", "r1")
    assert "worker gone's lease ran out; worker " in answer.out
    assert "cancellation requested: enough  (void since the retry)" in answer.out
    assert "queued again (was cancelled); entries from 2 on are void" in answer.out
    assert "1 death" not in answer.out  # a retry forgives them
    assert "outlast run FILE:report --id r1" in answer.out
    journal = outlast("show", "r1", "--json").json["journal"]
    assert [(entry["kind"], entry["void"]) for entry in journal] == [
        ("death", False),
        ("cancel", True),
        ("step", True),  # what the cancellation had not let start
        ("retry", False),
    ]
    assert row.fence > 0


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ({"status": "done", "value": '{"a":1}'}, 'Done: {"a": 1}'),
        (
            {"status": "failed", "error": '{"type":"m:Bad","message":"oh"}', "failed_at": 3},
            "Failed (entry 3): m.Bad: oh",
        ),
        ({"status": "cancelled", "reason": "enough"}, "Cancelled: enough"),
        ({"status": "dead", "reason": "it kills"}, "Dead letter: it kills"),
        ({"status": "parked", "reason": "the code changed"}, "`outlast resume r1`"),
    ],
)
def test_show_says_how_it_ended(outlast, ending, expected):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, **ending))
    assert expected in outlast("show", "r1").out


def test_show_says_what_a_run_waits_for(outlast):
    row = outlast.started("r1")
    outlast.commit(SetWaiting(row.pk, row.fence, ("approval",)), Send("r1", "other", "m1", "1"))
    out = outlast("show", "r1").out
    assert "Running." in out
    assert "`outlast send r1 approval JSON`" in out
    assert "1 message not received yet: other." in out


def test_show_does_not_ask_for_a_message_that_was_sent(outlast):
    row = outlast.started("r1")
    outlast.commit(
        SetWaiting(row.pk, row.fence, ("approval",)), Send("r1", "approval", "m1", "true")
    )
    out = outlast("show", "r1").out
    assert "The message that the run waits for has arrived: approval." in out
    assert "outlast send" not in out


def test_show_says_that_its_process_died(outlast):
    outlast.started("r1", lease=0.0)
    assert (
        "Its process died. No live worker claims the run. To continue from the last recorded step, start its program again"
        in outlast("show", "r1").out
    )
    assert "its process died" in outlast("runs").out


def test_show_says_that_a_run_was_released_or_never_started(outlast):
    row = outlast.started("r1")
    outlast.commit(Release(row.pk, row.fence, "the program closed Outlast"))
    out = outlast("show", "r1").out
    assert "No worker is executing this run: the program closed Outlast." in out
    assert "interruption" in out
    outlast.submitted("r2", delay=3600.0)
    assert "Not started yet. The run is due in " in outlast("show", "r2").out


def test_show_lists_a_resumption(outlast):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, "parked", reason="code"), Resume("r1", "t1"))
    assert "queued again (was parked)" in outlast("show", "r1").out


def test_show_as_json_has_stable_keys(outlast):
    row = outlast.started("r1")
    outlast.commit(Send("r1", "approval", "m1", '{"ok": true}'))
    outlast.entry(
        row, 1, "step", "research#1", value='"notes"', seconds=0.25, attempt=1, args='{"n":0}'
    )
    document = outlast("show", "r1", "--json").json
    assert set(document) == {
        "run",
        "cost",
        "effects",
        "undecided",
        "questions",
        "executing",
        "executions",
        "journal",
        "messages",
    }
    assert set(document["run"]) == RUN_KEYS | {
        "args", "result", "deadline", "failed_at", "deaths_in_a_row", "attempts_max", "suspect"
    }  # fmt: skip
    assert document["run"]["args"] == {"topic": "tides"}
    [entry] = document["journal"]
    assert set(entry) == {
        "seq", "kind", "key", "at", "args", "value", "error", "seconds", "attempt", "asked", "cost", "fence", "void"
    }  # fmt: skip
    assert (entry["args"], entry["value"]) == ({"n": 0}, "notes")
    assert entry["fence"] == document["run"]["fence"] == row.fence
    [message] = document["messages"]
    assert set(message) == {"number", "name", "id", "value", "at", "by", "received"}
    assert message["value"] == {"ok": True}
    assert message["received"] is False


def test_long_values_are_cut_unless_shown_in_full(outlast):
    row = outlast.started("r1")
    outlast.entry(row, 1, "step", "research#1", value=json.dumps("x" * 50_000))
    assert max(map(len, outlast("show", "r1").out.splitlines())) < 250
    assert "x" * 50_000 in outlast("show", "r1", "--full").out


def test_the_traceback_of_a_failure_is_shown_in_full(outlast):
    outlast("run", "agent.py:report", "bad", "--id", "r1")
    assert "Traceback" not in outlast("show", "r1").out
    shown = outlast("show", "r1", "--full").out
    trace = [line.strip() for line in shown[shown.index("Traceback") :].splitlines()]
    cause = "The above exception was the direct cause of the following exception:"
    assert [line for line in trace if not line.startswith("^")] == [
        "Traceback (most recent call last):",
        f'File "{outlast.folder}/agent.py", line 19, in research',
        'raise RuntimeError("boom")',
        "RuntimeError: boom",
        "",
        cause,
        "",
        "Traceback (most recent call last):",
        f'File "{outlast.folder}/agent.py", line 26, in report',
        "return await research(topic)",
        "RuntimeError: boom",
    ]


@pytest.mark.parametrize(
    ("status", "code"), [("done", 0), ("failed", 1), ("dead", 1), ("cancelled", 6)]
)
def test_show_watches_a_run_until_it_has_ended(outlast, monkeypatch, status, code):
    """It shows a parked run too, and goes on."""
    row = outlast.started("r1")
    ends = iter(["parked", status])

    def sleep(_):
        nonlocal row
        if row.status == "parked":
            outlast.commit(Resume("r1", "token"), Claim("living", "t2", ids=("r1",)))
            row = outlast.row("r1")
        outlast.commit(Settle(row.pk, row.fence, next(ends), value="1", reason="the code changed"))
        row = outlast.row("r1")

    monkeypatch.setattr("outlast.cli.watch.time.sleep", sleep)
    answer = outlast("show", "r1", "--watch", "--json")
    assert [json.loads(line)["run"]["status"] for line in answer.out.splitlines()] == [
        "running",
        "parked",
        status,
    ]
    assert answer.code == code
    assert outlast("show", "r1", "--watch").code == code
    assert outlast("show", "r1").code == 0


def test_show_cannot_watch_a_run_that_does_not_exist(outlast):
    outlast.commit()
    assert outlast("show", "r1", "--watch").code == 3


def test_a_small_screen_shows_the_last_lines_of_a_watched_run(outlast, watched, monkeypatch):
    row = outlast.started("r1")
    for seq in range(1, 31):
        outlast.entry(row, seq, "step", f"research#{seq}", value='"notes"', seconds=1.0)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in {"COLUMNS": "60", "LINES": "10", "NO_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    watched(1)
    frame = outlast("show", "r1", "--watch").out.split("\x1b[H")[1]
    lines = frame.removesuffix("\x1b[J").split("\x1b[K\n")
    assert len(lines) == 10
    assert "running" in lines[0]
    assert lines[1].endswith(" more lines")
    assert "research#30" in lines[-4]
    assert lines[-2:] == ["Running.", ""]


def test_show_says_which_worker_died_and_which_took_over(outlast):
    row = outlast.started("r1", lease=0.0)
    outlast.entry(row, 1, "intent", "book#1", value='{"key": "k1"}')
    outlast.commit(Sweep())
    assert "worker gone's lease ran out; not resumed yet" in outlast("show", "r1").out
    outlast.registered("w2")
    ((row,),) = outlast.commit(Claim("w2", "t1", ids=("r1",)))
    lines = outlast("show", "r1").out.splitlines()
    story = [" ".join(line.split()[2:]) for line in lines if line.lstrip().startswith("+")]
    assert story == [
        "1 intent book#1 key k1; worker gone died before its outcome was recorded",
        "2 death worker gone's lease ran out; worker w2 took over",
    ]
    outlast.commit(Release(row.pk, row.fence, "drain: SIGTERM", interrupted=True))
    assert "none now; the last was w2 (process " in outlast("show", "r1").out
    outlast.registered("w3")
    ((row,),) = outlast.commit(Claim("w3", "t2", ids=("r1",)))
    outlast.commit(Settle(row.pk, row.fence, "done", value="1"))
    out = outlast("show", "r1").out
    assert "worker gone's lease ran out; worker w2 took over" in out
    assert "drain: SIGTERM (worker w2); worker w3 took over" in out
    assert "  worker     w3 (process " in out
    executions = outlast("show", "r1", "--json").json["executions"]
    assert [(one["worker"], one["status"]) for one in executions] == [
        ("gone", "queued"),
        ("w2", "queued"),
        ("w3", "done"),
    ]
    assert "fence" not in out


def test_show_names_children_by_id(outlast):
    row = outlast.started("r1")
    outlast.entry(row, 1, "child", "report#1", value="[1]")
    assert "run r1/report#1 returned [1]" in outlast("show", "r1").out


LONG = "x" * 40


def _eventful(outlast) -> None:
    row = outlast.started("r1", lease=0.0)
    outlast.entry(row, 1, "step", "research#1", value=f'"{LONG} {LONG}"', seconds=1.0)
    outlast.entry(row, 2, "intent", "book#1", value='{"key": "0123456789abcdef0123456789abcdef"}')
    outlast.commit(Sweep())


def test_show_wraps_its_lines_on_a_terminal(outlast, monkeypatch):
    _eventful(outlast)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", outlast("show", "r1").out).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    (number,) = [number for number, line in enumerate(lines) if " intent " in line]
    column = lines[number].index("key ")
    assert lines[number + 1][:column].isspace()
    assert lines[number + 1].endswith("before its outcome was recorded")
    assert any("`outlast run FILE:report --id r1`" in line for line in lines)


@pytest.mark.parametrize("options", [(), ("--wide",)])
def test_show_prints_one_line_per_entry_into_a_pipe(outlast, options):
    _eventful(outlast)
    lines = outlast("show", "r1", *options).out.splitlines()
    assert len([line for line in lines if line.lstrip().startswith("+")]) == 3
    assert any(line.endswith("worker gone's lease ran out; not resumed yet") for line in lines)


def test_show_says_how_long_a_decision_took(outlast):
    row = outlast.started("r1")
    outlast.entry(row, 1, "intent", "book#1", value='{"key": "k1"}')
    outlast.entry(row, 2, "attempt", "book#1", attempt=1, error='{"type": "x"}')
    outlast.entry(row, 5402, "decision", "book#1", value='{"what": "did_not", "intent": 1}')
    assert (
        "decided by hand after being unknown for 1 h 30 min: it did not happen"
        in outlast("show", "r1").out
    )


def test_show_says_that_the_last_death_made_a_dead_letter(outlast):
    outlast.commit(RegisterWorker("gone", "some-host", 4242, 0.0))
    outlast.submitted("r1", worker="gone", attempts_max=1)
    outlast.commit(Sweep())
    assert outlast.row("r1").status == "dead"
    out = outlast("show", "r1").out
    assert "; the run became a dead letter" in out
    assert "not resumed yet" not in out
