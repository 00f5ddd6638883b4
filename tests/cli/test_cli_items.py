"""Plain work items, dead letters, and how a run that nobody holds goes on."""

from __future__ import annotations

import re

from outlast.store.commands import Claim, Release, Settle, Sweep


def test_runs_lists_no_items_unless_asked_for(outlast):
    outlast.submitted("r1")
    outlast.item("i1")
    assert [run["id"] for run in outlast("runs", "--json").json["runs"]] == ["r1"]
    [only] = outlast("runs", "--items", "--json").json["runs"]
    assert (only["id"], only["item"], only["workflow"]) == ("mail/i1", True, "")
    assert "(item)" in outlast("runs", "--items").out


def test_empty_list_of_items_is_reported(outlast):
    outlast.submitted("r1")
    assert outlast("runs", "--items").err == "outlast: no items.\n"
    assert outlast("runs", "--items", "--status", "dead").err == "outlast: no items match.\n"


def test_dead_letters_are_listed_of_both_kinds(outlast):
    outlast.dead_item()
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, "dead", reason="it kills"))
    answer = outlast("runs", "--status", "dead", "--json")
    assert [run["id"] for run in answer.json["runs"]] == ["r1", "mail/i1"]
    answer = outlast("runs", "--status", "dead", "--items", "--json")
    assert [run["id"] for run in answer.json["runs"]] == ["mail/i1"]


def test_an_item_is_shown_with_its_payload_and_failures(outlast):
    outlast.dead_item()
    out = outlast("show", "mail/i1").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "mail/i1 dead"
    assert 'payload {"to": "ann"}' in lines
    assert "queue mail" in lines
    assert "incidents 1 failure of at most 1" in lines
    assert "Dead letter: no such address" in lines
    assert (
        "After fixing the cause, run `outlast retry mail/i1`. To give it up, run `outlast cancel mail/i1`."
        in lines
    )
    document = outlast("show", "mail/i1", "--json").json["run"]
    assert (document["item"], document["args"], document["failures"]) == (True, {"to": "ann"}, 1)


def test_an_item_that_waits_goes_to_whoever_consumes_its_queue(outlast):
    outlast.item("i1")
    assert (
        "Not started yet.\nThe next consumer of queue mail takes it."
        in outlast("show", "mail/i1").out
    )


def test_a_dead_item_is_retried_or_cancelled(outlast):
    outlast.dead_item()
    answer = outlast("retry", "mail/i1")
    assert (answer.code, answer.err) == (
        0,
        "outlast: item mail/i1 is queued again. The next consumer of queue mail takes it.\n",
    )
    assert outlast("cancel", "mail/i1").err == "outlast: item mail/i1 is cancelled.\n"
    assert outlast.row("mail/i1").status == "cancelled"


def test_a_dead_run_is_retried_or_cancelled(outlast):
    row = outlast.started("r1")
    outlast.commit(Settle(row.pk, row.fence, "dead", reason="it kills"))
    assert (
        "run r1 is queued again. No live worker claims the run. To continue, start its program again"
        in outlast("retry", "r1").err
    )
    row = outlast.started("r2")
    outlast.commit(Settle(row.pk, row.fence, "dead", reason="it kills"))
    assert outlast("cancel", "r2").err == "outlast: run r2 is cancelled.\n"


def test_where_a_living_worker_knows_the_run_nothing_is_left_to_do(outlast):
    outlast.registered()
    row = outlast.started("r1")
    outlast.commit(Release(row.pk, row.fence, "the program closed Outlast"))
    taken = "A live worker has this workflow and will claim the run."
    assert taken in outlast("show", "r1").out
    assert "A live worker claims it and ends it." in outlast("cancel", "r1").err


def test_a_worker_for_another_queue_is_hinted_at(outlast):
    outlast.submitted("r1", queue="two words")
    assert "`outlast worker FILE --queue 'two words'`" in outlast("show", "r1").out


def test_show_says_how_close_a_run_is_to_being_a_dead_letter(outlast):
    outlast.started("r1", lease=0.0)
    outlast.commit(Sweep())
    out = outlast("show", "r1").out
    assert (
        "1 death (1 in a row with nothing recorded; it becomes a dead letter after 5 to 20, "
        "depending on how many other workers are dying)\n" in out
    )
    assert "alone" not in out
    outlast.registered("w2", lease=0.0)
    outlast.commit(Claim("w2", "t", ids=("r1",)), Sweep(backoff=0.0))
    out = outlast("show", "r1").out
    assert (
        "2 deaths (2 in a row with nothing recorded; it becomes a dead letter after 5 to 20, "
        "depending on how many other workers are dying)\n" in out
    )
    assert "It died more than once with nothing recorded, so a worker executes it alone." in out


def test_show_says_that_a_run_sleeps(outlast):
    row = outlast.started("r1")
    outlast.commit(Release(row.pk, row.fence, "asleep", waiting=True, due=row.created + 3600.0))
    out = outlast("show", "r1").out
    assert re.search(
        r"Waiting\. No worker holds the run\. Its next timer fires in (1 h|59 min)", out
    )
    assert re.search(r"due in (1 h|59 min)", outlast("runs").out)
