"""`outlast submit`."""

from __future__ import annotations

import threading

import pytest

from outlast.store.commands import (
    Cancel,
    SetQueueLimits,
)


def test_submit_queues_a_run_and_prints_its_id(outlast):
    answer = outlast("submit", "agent.py:report", "tides", "--id", "r1")
    assert (answer.code, answer.out, answer.err) == (0, "r1\n", "")
    row = outlast.row("r1")
    assert (row.status, row.workflow, row.queue, row.args) == (
        "queued",
        "report",
        "default",
        '{"topic":"tides"}',
    )
    assert row.worker is None


def test_submit_prints_its_generated_id(outlast):
    id = outlast("submit", "agent.py:echo", "1").out.strip()
    assert outlast.row(id).workflow == "echo"
    assert outlast("submit", "agent.py:echo", "1").out.strip() != id


def test_submit_as_json_is_one_document(outlast):
    answer = outlast("submit", "agent.py:report", "tides", "--id", "r1", "--json")
    assert set(answer.json) == {"id", "run"}
    assert answer.json["id"] == answer.json["run"]["id"] == "r1"
    assert answer.json["run"]["status"] == "queued"


def test_queue_priority_and_delay_are_kept(outlast):
    outlast(
        *"submit agent.py:echo 1 --id r1 --queue mail --priority -3 --delay 5m".split(),
    )
    row = outlast.row("r1")
    assert (row.queue, row.priority, row.ready) == ("mail", -3, 0)
    assert 299 < row.due - row.created < 301
    outlast(*"submit agent.py:echo 1 --id r2 --delay 1.5".split())
    row = outlast.row("r2")
    assert row.due - row.created == pytest.approx(1.5)


def test_arguments_by_name_are_taken_like_those_of_run(outlast):
    outlast(
        "submit", "agent.py:dated", '{"name": "x", "when": "2024-01-02"}', "1", "--kwargs", '{"flag": true}', "--id", "r1"
    )  # fmt: skip
    assert outlast("run", "agent.py:dated", "--id", "r1").json == ["x", 2024, [1], True]


def test_output_of_the_submitted_program_goes_to_stderr(outlast):
    (outlast.folder / "loud.py").write_text(
        "from outlast import workflow\nprint('hello')\n\n@workflow\nasync def w() -> None: ...\n"
    )
    answer = outlast("submit", "loud.py:w", "--id", "r1")
    assert (answer.out, answer.err) == ("r1\n", "hello\n")


def test_the_same_submission_again_is_harmless(outlast):
    for _ in range(2):
        assert outlast("submit", "agent.py:report", "tides", "--id", "r1").out == "r1\n"
    assert len(outlast("runs", "--json").json["runs"]) == 1


def test_the_same_id_with_other_arguments_is_a_conflict(outlast):
    outlast("submit", "agent.py:report", "tides", "--id", "r1")
    answer = outlast("submit", "agent.py:report", "winds", "--id", "r1", "--json")
    assert answer.code == 1
    assert answer.json["error"]["type"] == "Conflict"
    assert outlast.row("r1").args == '{"topic":"tides"}'


def test_join_accepts_a_run_with_other_arguments_and_leaves_it_as_it_is(outlast):
    outlast("submit", "agent.py:report", "tides", "--id", "r1")
    answer = outlast("submit", "agent.py:report", "winds", "--id", "r1", "--join")
    assert (answer.code, answer.out) == (0, "r1\n")
    assert "tides" in outlast("show", "r1").out


def test_a_full_queue_refuses_with_its_depth_and_its_limit(outlast):
    outlast.commit(SetQueueLimits("mail", 1, None))
    assert outlast("submit", "agent.py:echo", "1", "--id", "r1", "--queue", "mail").code == 0
    answer = outlast("submit", "agent.py:echo", "1", "--id", "r2", "--queue", "mail", "--json")
    assert answer.code == 75
    error = answer.json["error"]
    assert (error["type"], error["queue"], error["depth"], error["limit"]) == (
        "Backpressure",
        "mail",
        1,
        1,
    )
    assert "1 queued, at most 1" in answer.err
    again = outlast("submit", "agent.py:echo", "1", "--id", "r1", "--queue", "mail")
    assert again.code == 0, "what is there already needs no room"


def test_submit_wait_ends_at_its_limit(outlast):
    outlast.commit(SetQueueLimits("default", 1, None))
    outlast.submitted("r1")
    assert outlast("submit", "agent.py:echo", "1", "--wait", "0.2").code == 75


def test_submit_wait_queues_when_there_is_room(outlast):
    outlast.commit(SetQueueLimits("default", 1, None))
    outlast.submitted("r1")
    later = threading.Timer(0.3, outlast.commit, [Cancel("r1", "enough")])
    later.start()
    assert outlast("submit", "agent.py:echo", "1", "--id", "r2", "--wait", "inf").out == "r2\n"
    later.join()
    assert outlast.row("r2").status == "queued"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agent.py"], "is not FILE:WORKFLOW"),
        (["absent.py:report"], "there is no file"),
        (["agent.py:report"], "missing a required argument: 'topic'"),
        (["agent.py:echo", "--id", ""], "run id must be a non-empty string"),
        (["agent.py:echo", "--queue", ""], "queue name must be a non-empty string"),
        (["agent.py:echo", "--queue", "a/b"], "contains '/' or '#'"),
        (["agent.py:echo", "--delay", "-1"], "is not a duration"),
        (["agent.py:echo", "--delay", "soon"], "is not an age"),
        (["agent.py:echo", "--delay", "inf"], "must be a finite number"),
        (["agent.py:echo", "--wait", "nan"], "is not a duration"),
        (["agent.py:echo", "--priority", "high"], "valid integer"),
        (["agent.py:echo", "--priority", "9999999999999999999"], "1000000"),
        (["agent.py:echo", "--store", "mysql://x"], "is not the address of a store"),
    ],
)
def test_a_wrong_submission_exits_2_and_makes_no_store(outlast, words, message):
    answer = outlast("submit", *words)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    assert not outlast.db.exists()


def test_nothing_can_be_submitted_to_a_store_that_ends_with_this_process(outlast):
    answer = outlast("submit", "agent.py:echo", "--store", "memory:")
    assert answer.code == 1
    assert "exists only in the process" in answer.err


def test_a_store_that_cannot_be_used_says_how_to_submit_only_once(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    monkeypatch.setenv("OUTLAST_STORE", outlast.away)
    answer = outlast("submit", "agent.py:echo", "--id", "r1")
    assert answer.code == 75
    assert "Submit it again with --id r1: it is queued once." in answer.err
