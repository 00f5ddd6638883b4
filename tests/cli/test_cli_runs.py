"""`outlast runs`, and commands about a store or a run that does not exist."""

from __future__ import annotations

import json
import re

import pytest

from outlast.errors import Diverged
from outlast.store.commands import Cancel, Release, Settle, SetWaiting

RUN_KEYS = {
    "id", "workflow", "status", "delayed", "queue", "priority", "created", "started", "ended", "due", "worker", "fence", "deaths",
    "interruptions", "failures", "item", "parent", "by", "key", "waiting_for", "cancelling", "reason", "error", "explain", "undoing",
}  # fmt: skip


def ids(answer):
    return [run["id"] for run in answer.json["runs"]]


@pytest.mark.parametrize(
    "words",
    [
        ["runs"],
        ["show", "r1"],
        ["cancel", "r1"],
        ["retry", "r1"],
        ["resume", "r1"],
        ["send", "r1", "n"],
        ["prune", "--older-than", "1d"],
        ["workers"],
        ["queues", "--watch"],
        ["limit", "default", "--depth", "1"],
    ],
)
def test_a_missing_store_is_reported_and_not_created(outlast, words):
    answer = outlast(*words)
    assert (answer.code, answer.out) == (1, "")
    assert "there is no store at sqlite:///outlast.db" in answer.err
    assert {file.name for file in outlast.folder.iterdir()} == {"agent.py"}


def test_a_store_in_a_missing_folder_is_not_created(outlast):
    assert outlast("runs", "--store", "sqlite:///no/such/outlast.db").code == 1
    assert outlast("runs", "--store", "sqlite:///agent.py/outlast.db").code == 2
    assert not (outlast.folder / "no").exists()


def test_an_empty_file_does_not_become_a_store(outlast):
    outlast.db.touch()
    assert outlast("runs").code == 1
    assert outlast.db.stat().st_size == 0


def test_a_file_that_is_not_a_store_is_reported_in_one_line(outlast):
    answer = outlast("runs", "--store", "sqlite:///agent.py")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 2  # the second says where it is explained


def test_reading_registers_no_worker(outlast, monkeypatch):
    outlast.submitted("r1")
    fence = outlast.row("r1").fence
    monkeypatch.setattr("outlast.engine.engine.Engine.open", None)
    assert outlast("runs").code == outlast("show", "r1").code == 0
    assert outlast.row("r1").fence == fence


def test_runs_are_listed_newest_first_one_line_each(outlast):
    outlast.submitted("r1")
    outlast.started("r2")
    lines = outlast("runs").out.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "WORKFLOW", "AGE", "DETAIL"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["r2", "running", "report"],
        ["r1", "queued", "report"],
    ]


def test_an_empty_list_is_reported_on_stderr(outlast):
    outlast.commit()
    answer = outlast("runs")
    assert (answer.code, answer.out, answer.err) == (0, "", "outlast: no runs.\n")
    assert outlast("runs", "--json").json == {"runs": [], "more": False}


def test_runs_as_json_have_stable_keys(outlast):
    row = outlast.started("r1")
    outlast.commit(SetWaiting(row.pk, row.fence, ("approval", "veto")))
    document = outlast("runs", "--json").json
    assert set(document) == {"runs", "more"}
    assert set(document["runs"][0]) == RUN_KEYS
    assert document["runs"][0]["waiting_for"] == ["approval", "veto"]
    assert document["runs"][0]["created"].endswith("Z")


def test_runs_are_filtered_by_status_workflow_and_message(outlast):
    outlast.submitted("queued")
    outlast.submitted("other", workflow="echo", args="{}")
    waiting = outlast.started("held")
    outlast.commit(SetWaiting(waiting.pk, waiting.fence, ("approval",)))
    assert ids(outlast("runs", "--status", "queued", "--json")) == ["other", "queued"]
    assert ids(outlast("runs", "--status", "queued", "--status", "running", "--json")) == [
        "held",
        "other",
        "queued",
    ]
    assert ids(outlast("runs", "--workflow", "echo", "--json")) == ["other"]
    assert ids(outlast("runs", "--waiting-for", "approval", "--json")) == ["held"]
    assert ids(outlast("runs", "--waiting-for", "appro", "--json")) == []
    assert outlast("runs", "--status", "dead").err == "outlast: no runs match.\n"


def test_runs_are_filtered_by_queue_and_by_the_beginning_of_the_id(outlast):
    outlast.submitted("order-1", queue="mail")
    outlast.submitted("order-2")
    outlast.submitted("refund-1", queue="mail")
    assert ids(outlast("runs", "--queue", "mail", "--json")) == ["refund-1", "order-1"]
    assert ids(outlast("runs", "--prefix", "order-", "--json")) == ["order-2", "order-1"]
    both = outlast("runs", "--queue", "mail", "--prefix", "order-", "--limit", "1", "--json")
    assert ids(both) == ["order-1"]
    assert both.json["more"] is False
    assert outlast("runs", "--queue", "post").err == "outlast: no runs match.\n"
    assert outlast("runs", "--prefix", "rder").err == "outlast: no runs match.\n"


def test_runs_are_filtered_by_age(outlast):
    outlast.submitted("r1")
    assert ids(outlast("runs", "--older-than", "1h", "--json")) == []
    assert ids(outlast("runs", "--newer-than", "1h30m", "--json")) == ["r1"]
    assert ids(outlast("runs", "--older-than", "0s", "--json")) == ["r1"]


def test_a_limit_says_that_there_is_more(outlast):
    for number in range(3):
        outlast.submitted(f"r{number}")
    answer = outlast("runs", "--limit", "2", "--json")
    assert ids(answer) == ["r2", "r1"]
    assert answer.json["more"] is True
    assert "Showing 2 runs;" in outlast("runs", "--limit", "2").err
    assert outlast("runs", "--limit", "3", "--json").json["more"] is False


@pytest.mark.parametrize(
    "words",
    [["--older-than", "soon"], ["--newer-than", "5"], ["--older-than", "-5s"], ["--older-than", "٣s"], ["--status", "nope"], ["--limit", "0"], ["--prefix", "\udcff"], ["extra"]],
)  # fmt: skip
def test_a_bad_filter_is_a_usage_error(outlast, words):
    outlast.commit()
    assert outlast("runs", *words).code == 2


@pytest.mark.parametrize(
    "typed, hint", [("faild", " Did you mean failed?"), ("unknown-word", ""), ("Done", " Did you mean done?")]
)  # fmt: skip
def test_a_misspelt_status_is_answered_with_the_statuses_and_the_closest(outlast, typed, hint):
    outlast.submitted("r1")
    answer = outlast("runs", "--status", typed)
    assert answer.code == 2
    assert f"'{typed}' is not one of queued, delayed, running, waiting, parked, done" in answer.err
    assert answer.err.rstrip().endswith(f"dead, undoing.{hint}")


def test_an_unknown_run_exits_3(outlast):
    outlast.commit()
    answer = outlast("show", "absent")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("outlast: no run has the id 'absent'.")
    assert outlast("show", "absent", "--json").json["error"] == {
        "type": "UnknownRun",
        "message": "no run has the id 'absent'. `outlast runs` lists the existing ones.",
        "exit_code": 3,
        "explain": "UnknownRun",
    }


def test_an_invalid_id_is_a_usage_error(outlast):
    outlast.commit()
    assert outlast("show", "a\nb").code == 2
    assert outlast("show", "a\udcffb").code == 2
    assert outlast("show", "").code == 2


def test_a_listed_run_names_what_it_waits_for_until_it_arrives(outlast):
    row = outlast.started("r1")
    outlast.commit(
        Release(row.pk, row.fence, "waits", waiting=True, interrupted=False, waits=("approval",))
    )
    assert outlast("runs").out.endswith("  waits for approval\n")
    outlast("send", "r1", "approval", "true")
    assert outlast("runs").out.endswith("  ready to continue\n")


def test_runs_can_be_watched(outlast, watched):
    outlast.submitted("r1")
    outlast.submitted("r2")
    watched(2)
    answer = outlast("runs", "--watch", "--limit", "1")
    assert answer.code == 130
    frame = answer.out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in frame] == ["ID", "r2", "Showing"]
    assert answer.out.count("r2") == 2
    watched(2)
    lines = outlast("runs", "--watch", "--json").out.splitlines()
    assert [[run["id"] for run in json.loads(line)["runs"]] for line in lines] == [["r2", "r1"]] * 2


def test_a_memory_store_has_nothing_to_show(outlast):
    answer = outlast("runs", "--store", "memory:", "--json")
    assert answer.code == 1
    assert answer.json["error"]["exit_code"] == 1


def test_a_parked_run_with_a_cancel_request_shows_why_it_is_parked(outlast):
    row = outlast.started("r1")
    outlast.commit(
        Cancel("r1", "enough"), Settle(row.pk, row.fence, "parked", reason="the code changed")
    )
    line = outlast("runs").out.splitlines()[1]
    assert "the code changed; cancellation requested: enough" in line


def test_a_run_that_is_due_later_is_listed_as_delayed(outlast):
    outlast.submitted("ready")
    outlast.submitted("later", delay=3600.0)
    lines = outlast("runs").out.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [["later", "delayed"], ["ready", "queued"]]
    assert "due in" in lines[0]
    assert ids(outlast("runs", "--status", "delayed", "--json")) == ["later"]
    assert ids(outlast("runs", "--status", "queued", "--json")) == ["later", "ready"]
    listed = {
        run["id"]: (run["status"], run["delayed"]) for run in outlast("runs", "--json").json["runs"]
    }
    assert listed == {"later": ("queued", True), "ready": ("queued", False)}
    assert "delayed" in outlast("show", "later").out.splitlines()[0]
    assert outlast("show", "later", "--json").json["run"]["delayed"] is True


def test_runs_prints_only_ids_for_another_command(outlast):
    outlast.submitted("r1")
    settled = outlast.started("r 2")
    outlast.commit(Settle(settled.pk, settled.fence, "parked", reason="code"))
    assert outlast("runs", "--ids").out == "r 2\nr1\n"
    assert outlast("runs", "--status", "parked", "--ids").out == "r 2\n"
    limited = outlast("runs", "--ids", "--limit", "1")
    assert (limited.out, limited.err) == (
        "r 2\n",
        "outlast: Showing 1 run; use --limit for more.\n",
    )
    assert outlast("runs", "--ids", "--json").code == 2


def test_a_run_that_diverged_is_listed_as_such(outlast):
    row = outlast.started("r1")
    reason = str(Diverged("step a#1()", "step b#1()", run="r1"))
    outlast.commit(Settle(row.pk, row.fence, "parked", reason=reason))
    assert (
        " diverged: the journal recorded step a#1(), the code asked"
        in outlast("runs", "--wide").out
    )
    shown = outlast("show", "r1").out
    assert shown.count("`outlast resume r1`") == 1
    assert "stop the workers whose code does not match. Then run `outlast resume r1`." in shown


def test_a_delayed_run_shows_its_reason_and_when_it_is_due(outlast):
    row = outlast.started("r1")
    outlast.commit(Release(row.pk, row.fence, "its worker died", delay=100.0))
    assert re.search(r"its worker died; due in 1 min [34]\d s", outlast("runs").out)
