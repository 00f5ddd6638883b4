"""What the commands say while a queue or a workflow is paused."""

import pytest

from outlast.store.commands import Claim, Release

QUEUE = "Queue default is paused, so no worker claims the run. To resume it, run `outlast limit default {}`."
WORKFLOW = "Workflow report is paused, so no worker claims the run. To resume it, run `outlast workflow resume report`."
TAKEN = "A live worker has this workflow and will claim the run."


@pytest.fixture
def ready(outlast):
    """A run that is ready, and a live worker that would claim it."""
    outlast.registered()
    outlast.submitted("r1")
    return outlast


def test_show_says_that_a_live_worker_will_claim_the_run(ready):
    assert TAKEN in ready("show", "r1").out


@pytest.mark.parametrize(
    ("options", "resume"),
    [
        ([["--pause"]], "--resume"),
        ([["--concurrency", "0"]], "--no-concurrency"),
        ([["--pause"], ["--concurrency", "0"]], "--resume --no-concurrency"),
    ],
)
def test_show_names_the_pause_of_the_queue(ready, options, resume):
    for words in options:
        ready("limit", "default", *words)
    out = ready("show", "r1").out
    assert QUEUE.format(resume) in out
    assert "live worker" not in out


def test_show_names_both_pauses(ready):
    ready("workflow", "pause", "report")
    assert WORKFLOW in ready("show", "r1").out
    ready("limit", "default", "--pause")
    out = ready("show", "r1").out
    assert f"{QUEUE.format('--resume')} {WORKFLOW}" in out
    assert "live worker" not in out


def test_show_names_a_pause_although_no_worker_claims(outlast):
    outlast.submitted("r1")
    outlast("workflow", "pause", "report")
    assert f"{WORKFLOW} No live worker claims the run." in outlast("show", "r1").out


def test_show_ignores_pauses_of_others(ready):
    ready("limit", "mail", "--pause")
    ready("workflow", "pause", "other")
    assert TAKEN in ready("show", "r1").out


def test_show_names_the_pause_of_an_items_queue(outlast):
    outlast.item("i1")
    outlast("limit", "mail", "--pause")
    said = "Queue mail is paused, so no worker claims the item. To resume it, run `outlast limit mail --resume`."
    assert said in outlast("show", "mail/i1").out


def test_cancel_names_the_pause(ready):
    row = ready.started("r2")
    ready.commit(Release(row.pk, row.fence, "the program closed Outlast"))
    ready("limit", "default", "--pause")
    assert QUEUE.format("--resume") in ready("cancel", "r2").err


def test_a_pause_and_a_limit_of_none_are_lifted_together(ready):
    resume = "`outlast limit default --resume --no-concurrency`"
    ready("limit", "default", "--pause")
    answer = ready("limit", "default", "--concurrency", "0")
    assert answer.err.splitlines() == [
        "outlast: queue default: no depth limit of its own, at most 0 executing, paused.",
        f"outlast: Nothing more is claimed from it. To resume: {resume}.",
    ]
    assert f"default: paused. To resume: {resume}." in ready("queues").out
    assert f"To resume it, run {resume}." in ready("doctor").out
    ready("limit", "default", "--resume", "--no-concurrency")
    ((row,),) = ready.commit(Claim("w1", "t"))
    assert row.id == "r1"


def test_doctor_names_a_paused_queue_with_runs(ready):
    ready("limit", "default", "--pause")
    findings = ready("doctor", "--json").json["findings"]
    [found] = [one for one in findings if one["what"].startswith("the queue is paused")]
    assert (found["level"], found["what"], found["fix"], found["where"]) == (
        "note",
        "the queue is paused, and 1 run waits in it.",
        "To resume it, run `outlast limit default --resume`.",
        "queue default",
    )


def test_resuming_a_workflow_that_is_not_paused_changes_nothing(ready):
    said = "outlast: workflow report was not paused; nothing changed.\n"
    assert ready("workflow", "resume", "report").err == said
