"""`outlast cancel`, `retry`, `resume`, `send`, `prune`."""

from __future__ import annotations

import socket

import pytest

from outlast import Outlast
from outlast.cli.os_user import os_user
from outlast.errors import StoreUnavailable
from outlast.store.commands import ITEM, Claim, RegisterWorker, Release, Settle, SetWaiting, Undo


def settled(outlast, status, **fields):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, status, **fields))


def test_unstarted_run_is_cancelled_immediately(outlast):
    outlast.submitted("r1")
    answer = outlast("cancel", "r1", "--why", "enough")
    assert (answer.code, answer.out, answer.err) == (0, "", "outlast: run r1 is cancelled.\n")
    assert outlast.row("r1").reason == f"enough (by {os_user()})"


def test_running_run_is_asked_to_cancel(outlast):
    outlast.started("r1")
    answer = outlast("cancel", "r1")
    assert answer.code == 0
    assert "The process that executes it ends it" in answer.err
    assert outlast.row("r1").cancel == f"cancelled by its user (by {os_user()})"


@pytest.mark.parametrize("lease", [1e6, 0.0])
def test_cancelled_run_without_worker_ends_at_next_start(outlast, lease):
    row = outlast.started("r1", lease=lease)
    if lease > 0:
        outlast.commit(Release(row.pk, row.fence, "test"))
    answer = outlast("cancel", "r1")
    assert answer.code == 0
    assert (
        "No live worker claims the run. To end it, start its program again, run `outlast run FILE:report --id r1`"
        in answer.err
    )
    assert outlast("run", "agent.py:report", "--id", "r1").code == 6


def test_cancel_json_has_the_run_and_its_holder(outlast):
    outlast.started("r1")
    document = outlast("cancel", "r1", "--json").json
    assert set(document) == {"run", "held"}
    assert document["held"] is True
    assert document["run"]["cancelling"] == f"cancelled by its user (by {os_user()})"


@pytest.mark.parametrize("status", ["failed", "cancelled", "dead"])
def test_retry_queues_a_failed_run_with_a_hint(outlast, status):
    settled(outlast, status, reason="test")
    answer = outlast("retry", "r1")
    assert answer.code == 0
    assert "run r1 is queued again." in answer.err
    assert "`outlast run FILE:report --id r1`" in answer.err
    assert outlast("run", "agent.py:report", "--id", "r1").out == '"notes on tides"\n'


def test_retry_of_a_child_names_its_parent(outlast):
    parent = outlast.started("r1")
    child = outlast.submitted("r1/report#1", worker="living", parent="r1")
    ends = [Settle(row.pk, row.fence, "failed", reason="test") for row in (child, parent)]
    outlast.commit(*ends)
    answer = outlast("retry", "r1/report#1")
    assert answer.code == 4
    assert "run 'r1/report#1' is a child of run 'r1', which is failed." in answer.err
    assert "`outlast retry r1`" in answer.err
    assert outlast.row("r1/report#1").status == "failed"
    assert (
        "After fixing the cause, run `outlast retry r1` (its parent)."
        in outlast("show", "r1/report#1").out
    )


def test_resume_queues_a_parked_run(outlast):
    settled(outlast, "parked", reason="the code changed")
    answer = outlast("resume", "r1", "--json")
    assert answer.code == 0
    assert answer.json["run"]["status"] == "queued"
    assert outlast.row("r1").status == "queued"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["retry", "r1"], "it cannot be retried. Only failed, cancelled and dead runs"),
        (["resume", "r1"], "it cannot be resumed. Only parked runs"),
        (["cancel", "r1"], "it cannot be cancelled. Only runs that have not ended"),
        (["send", "r1", "approval", "1"], "it cannot receive messages. Only runs that have not"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_run_in_the_wrong_status_exits_4(outlast, words, said):
    settled(outlast, "done", value="1")
    answer = outlast(*words)
    assert answer.code == 4
    assert answer.err.startswith(f"outlast: run 'r1' is done: {said}")
    assert outlast(*words, "--json").json["error"]["exit_code"] == 4


@pytest.mark.parametrize(
    "words", [["retry", "no"], ["resume", "no"], ["cancel", "no"], ["send", "no", "approval", "1"]]
)
def test_an_unknown_run_exits_3(outlast, words):
    outlast.commit()
    assert outlast(*words).code == 3
    assert outlast(*words, "--json").json["error"]["type"] == "UnknownRun"


# -- several


def test_an_item_of_a_queue_receives_no_message(outlast):
    outlast.submitted("i1", ITEM)
    answer = outlast("send", "i1", "approval", "true")
    assert answer.code == 4
    assert "'i1' is an item of a queue, not a run: it cannot receive messages." in answer.err


def test_several_runs_are_cancelled_each_with_a_line(outlast):
    for id in ("r1", "r2", "r3"):
        outlast.submitted(id)
    answer = outlast("cancel", "r1", "r3", "--why", "enough")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "outlast: run r1 is cancelled.\noutlast: run r3 is cancelled.\n"
    assert [outlast.row(id).status for id in ("r1", "r2", "r3")] == [
        "cancelled",
        "queued",
        "cancelled",
    ]


def test_refused_id_does_not_stop_the_others(outlast):
    settled(outlast, "failed", reason="test")
    outlast.submitted("r2")
    answer = outlast("retry", "r2", "no", "r1")
    assert answer.code == 4
    refused, unknown, queued, *explained = answer.err.splitlines()
    assert refused.startswith("outlast: r2: run 'r2' is queued")
    assert unknown.startswith("outlast: no: no run has the id 'no'")
    assert queued.startswith("outlast: run r1 is queued again.")
    assert explained == [
        f"outlast: For more, run `outlast explain {name}`."
        for name in ("WrongStatus", "UnknownRun")
    ]
    assert outlast("retry", "no", "r2").code == 3
    assert outlast.row("r1").status == "queued"


def test_several_as_json_are_a_list_in_their_order(outlast):
    settled(outlast, "parked", reason="the code changed")
    answer = outlast("resume", "no", "r1", "--json")
    assert answer.code == 3
    unknown, resumed = answer.json["runs"]
    assert (unknown["id"], unknown["error"]["type"], unknown["error"]["exit_code"]) == (
        "no",
        "UnknownRun",
        3,
    )
    assert (resumed["id"], resumed["run"]["status"]) == ("r1", "queued")
    outlast.submitted("r2")
    assert [set(one) for one in outlast("cancel", "r1", "r2", "--json").json["runs"]] == [
        {"id", "run", "held"}
    ] * 2


def test_the_same_id_twice_is_one(outlast):
    outlast.submitted("r1")
    answer = outlast("cancel", "r1", "r1", "--json")
    assert (answer.code, set(answer.json)) == (0, {"run", "held"})


def test_invalid_id_stops_the_command_before_any_change(outlast):
    outlast.submitted("r1")
    assert outlast("cancel", "r1", "a\nb").code == 2
    assert outlast.row("r1").status == "queued"


def test_lost_store_ends_a_batch_command(outlast, monkeypatch):
    for id in ("r1", "r2", "r3"):
        outlast.submitted(id)
    tried = []

    async def lost(self, id, why, *, by):
        tried.append(id)
        raise StoreUnavailable("it is gone")

    monkeypatch.setattr(Outlast, "cancel", lost)
    answer = outlast("cancel", "r1", "r2", "r3", "--json")
    assert (answer.code, tried) == (75, ["r1"])
    assert [one["error"]["type"] for one in answer.json["runs"]] == ["StoreUnavailable"] * 3


def test_a_message_reaches_the_run(outlast):
    row = outlast.started("r1", "waits", "{}")
    outlast.commit(SetWaiting(row.pk, row.fence, ("approval",)), Release(row.pk, row.fence, "test"))
    answer = outlast("send", "r1", "approval", '"yes"')
    assert (answer.code, answer.out) == (0, "")
    assert outlast("run", "agent.py:waits", "--id", "r1").out == '"yes"\n'


def test_the_same_message_id_is_sent_once(outlast):
    outlast.submitted("r1")
    for already_sent in (False, True):
        answer = outlast("send", "r1", "approval", "1", "--message-id", "m1", "--json")
        assert answer.json == {
            "id": "r1", "name": "approval", "message_id": "m1", "already_sent": already_sent
        }  # fmt: skip
    assert len(outlast("show", "r1", "--json").json["messages"]) == 1


def test_a_repeated_message_id_is_reported_with_the_first_value(outlast):
    outlast.submitted("r1")
    words = ["send", "r1", "approval"]
    assert "sent approval to run r1 (message m1)." in outlast(*words, "1", "--message-id", "m1").err
    again = outlast(*words, "2", "--message-id", "m1")
    assert again.code == 0
    assert "message m1 (approval) was already sent to run r1, with 1. Nothing was" in again.err
    assert "sent approval" in outlast(*words, "2", "--message-id", "m2").err


def test_a_message_is_reported_as_sent_after_the_run_has_ended(outlast):
    outlast.submitted("r1", "waits", "{}")
    outlast("send", "r1", "approval", '"yes"', "--message-id", "m1")
    assert outlast("run", "agent.py:waits", "--id", "r1").out == '"yes"\n'
    again = outlast("send", "r1", "approval", '"yes"', "--message-id", "m1")
    assert (again.code, "was already sent" in again.err) == (0, True)
    assert outlast("send", "r1", "approval", '"yes"', "--message-id", "m2").code == 4


def test_a_message_without_a_value_is_null(outlast):
    outlast.submitted("r1")
    outlast("send", "r1", "go")
    assert outlast("show", "r1", "--json").json["messages"][0]["value"] is None


@pytest.mark.parametrize(
    "words",
    [["r1", "approval", "yes"], ["r1", "approval", "{"], ["r1", "approval", "NaN"], ["r1", "approval", "[-Infinity]"], ["r1", "", "1"], ["r1", "n", "1", "--message-id", "a\nb"], ["r1"]],
)  # fmt: skip
def test_a_message_that_cannot_be_sent_is_a_usage_error(outlast, words):
    outlast.submitted("r1")
    assert outlast("send", *words).code == 2
    assert outlast("show", "r1", "--json").json["messages"] == []


def test_prune_deletes_what_ended_long_ago(outlast):
    settled(outlast, "done", value="1")
    outlast.submitted("r2")
    assert outlast("prune", "--older-than", "7d", "--json").json == {"deleted": 0, "dead_kept": 0}
    assert outlast("prune", "--older-than", "0s").err == "outlast: deleted 1 run.\n"
    assert [run["id"] for run in outlast("runs", "--json").json["runs"]] == ["r2"]


def test_prune_keeps_dead_letters_and_says_what_can_be_done_with_them(outlast):
    settled(outlast, "dead", reason="it kills")
    outlast.dead_item()
    assert outlast("prune", "--older-than", "7d").err == "outlast: deleted 0 runs.\n", (
        "they are not that old"
    )
    answer = outlast("prune", "--older-than", "0s")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == (
        "outlast: deleted 0 runs.\n"
        "outlast: kept 2 dead letters of that age, which `outlast runs --status dead` lists. `outlast cancel ID` compensates one, `outlast retry ID` "
        "tries it again, and --dead deletes them.\n"
    )
    assert outlast("cancel", "r1").code == 0
    assert outlast("prune", "--older-than", "0s", "--json").json == {"deleted": 1, "dead_kept": 1}
    assert outlast("prune", "--older-than", "0s", "--dead", "--json").json == {
        "deleted": 1,
        "dead_kept": 0,
    }
    assert outlast("runs", "--status", "dead").err == "outlast: no runs match.\n"


def test_prune_forgets_no_dead_letter_whose_undoing_has_begun(outlast):
    outlast.commit(RegisterWorker("living", "some-host", 4242, 1e6))
    row = outlast.submitted("r1", worker="living", interruptions_max=1)
    outlast.commit(Undo(row.pk, row.fence, '{"status":"failed"}'))
    ((row,),) = outlast.commit(Claim("living", "token", ids=("r1",)))
    assert outlast.commit(Release(row.pk, row.fence, "deploy")) == ["dead"]
    answer = outlast("prune", "--older-than", "0s", "--dead")
    assert answer.err == (
        "outlast: deleted 0 runs.\n"
        "outlast: kept 1 dead letter of that age, which `outlast runs --status dead` lists. Their effects are not compensated yet. To continue: `outlast retry ID`.\n"
    )


@pytest.mark.parametrize(
    "words",
    [["prune"], ["prune", "--older-than", "long"], ["cancel"], ["cancel", "r1", "--why", "\udcff"]],
)
def test_a_missing_or_bad_option_is_a_usage_error(outlast, words):
    outlast.submitted("r1")
    assert outlast(*words).code == 2


def test_acting_on_a_store_that_cannot_be_used_exits_75(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    monkeypatch.setenv("OUTLAST_STORE", outlast.away)
    assert outlast("retry", "r1").code == 75
    assert outlast("runs", "--json").json["error"]["exit_code"] == 75


@pytest.mark.parametrize(
    "words",
    [
        ["cancel", "queued"],
        ["retry", "failed"],
        ["resume", "parked"],
        ["send", "queued", "approval", "true"],
        ["prune", "--older-than", "7d"],
        ["limit", "default", "--concurrency", "3"],
        ["submit", "agent.py:report", "tides"],
    ],
)
def test_commands_ignore_a_taken_http_port(outlast, words, monkeypatch):
    outlast.submitted("queued")
    for status in ("failed", "parked"):
        row = outlast.started(status)
        outlast.commit(Settle(row.pk, row.fence, status, reason="test"))
    with socket.create_server(("127.0.0.1", 0)) as worker:
        monkeypatch.setenv("OUTLAST_HTTP", f"127.0.0.1:{worker.getsockname()[1]}")
        answer = outlast(*words)
    assert (answer.code, "in use" in answer.err) == (0, False), answer.err
