"""`outlast workflows` and `outlast workflow`."""

from outlast.cli.os_user import os_user
from outlast.store.commands import RegisterWorker


def registered(outlast, *workflows):
    outlast.commit(
        RegisterWorker("w", "host", 1, 1e6, queues=("mail",), workflows=workflows, concurrency=1)
    )


def test_a_workflow_is_paused_and_resumed(outlast):
    registered(outlast, "report")
    answer = outlast("workflow", "pause", "report")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == (
        "outlast: workflow report is paused: no more of its runs are claimed.\n"
        "outlast: To resume it: `outlast workflow resume report`.\n"
    )
    [row] = outlast("workflows", "--json").json["workflows"]
    assert row.pop("paused_since").endswith("Z")
    assert row == {
        "name": "report",
        "workers": 1,
        "queues": ["mail"],
        "paused": True,
        "paused_by": os_user(),
    }
    assert "workflow report is paused" in outlast("queues").err
    assert outlast("workflow", "resume", "report").err == (
        "outlast: workflow report is resumed: its runs are claimed again.\n"
    )
    answer = outlast("workflow", "resume", "report", "--json")
    assert answer.json["workflow"]["paused"] is False
    assert "paused" not in outlast("queues").err


def test_workflows_are_listed_with_those_that_no_worker_knows(outlast):
    registered(outlast, "report")
    answer = outlast("workflow", "pause", "gone")
    assert "no live worker knows a workflow named gone." in answer.err
    lines = outlast("workflows").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["gone", "0"], ["report", "1"]]


def test_doctor_names_paused_workflows(outlast):
    registered(outlast, "report")
    outlast("workflow", "pause", "report")
    assert "workflow report is paused" in outlast("doctor").out


def test_name_that_no_workflow_can_have_is_refused(outlast):
    outlast.commit()
    assert outlast("workflow", "pause", "x" * 300).code != 0
