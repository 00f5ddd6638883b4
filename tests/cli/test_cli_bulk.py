"""`outlast bulk`."""

import pytest

from outlast.cli.os_user import os_user
from outlast.store.commands import Settle


def statuses(outlast):
    return {run["id"]: run["status"] for run in outlast("runs", "--json").json["runs"]}


def test_without_yes_the_runs_are_counted_and_left_alone(outlast):
    for id in ("a1", "a2", "b1"):
        outlast.submitted(id)
    answer = outlast("bulk", "cancel", "--prefix", "a")
    told = "outlast: 2 runs match: a2, a1. Pass --yes to cancel them.\n"
    assert (answer.code, answer.out, answer.err) == (0, "", told)
    assert set(statuses(outlast).values()) == {"queued"}


def test_with_yes_they_are_cancelled_by_the_user_of_the_system(outlast):
    for id in ("a1", "a2", "b1"):
        outlast.submitted(id)
    answer = outlast("bulk", "cancel", "--prefix", "a", "--why", "enough", "--yes")
    assert answer.err == "outlast: 2 runs match: 2 cancelled or asked to cancel.\n"
    assert statuses(outlast) == {"a1": "cancelled", "a2": "cancelled", "b1": "queued"}
    assert outlast.row("a1").reason == f"enough (by {os_user()})"
    document = outlast("bulk", "prune", "--prefix", "a", "--yes", "--json").json
    assert (document["matched"], document["done"], document["problems"]) == (2, 2, [])
    assert set(statuses(outlast)) == {"b1"}


def test_nothing_matches(outlast):
    outlast.submitted("a1")
    assert outlast("bulk", "resume", "--prefix", "a").err == "outlast: 0 runs match.\n"


def test_filter_without_a_condition_is_refused(outlast):
    outlast.submitted("a1")
    answer = outlast("bulk", "cancel", "--yes")
    assert answer.code != 0
    assert answer.err.startswith(
        "outlast: `bulk cancel` needs at least one filter, such as --workflow, --prefix, --key or "
        "--status."
    )
    assert statuses(outlast) == {"a1": "queued"}


def test_runs_of_one_key_are_listed_and_cancelled(outlast):
    for id, key in (("a1", "ann"), ("b1", "bob"), ("a2", "ann"), ("c1", None)):
        outlast.submitted(id, key=key)
    listed = outlast("runs", "--key", "ann", "--json").json["runs"]
    assert [run["id"] for run in listed] == ["a2", "a1"]
    assert outlast("runs", "--key", "nobody").err == "outlast: no runs match.\n"
    outlast("bulk", "cancel", "--key", "ann", "--yes")
    cancelled = {id for id, status in statuses(outlast).items() if status == "cancelled"}
    assert cancelled == {"a1", "a2"}


def test_retry_counts_only_parked_runs_that_it_can_retry(outlast):
    for id in ("a1", "a2"):
        row = outlast.started(id)
        outlast.commit(Settle(row.pk, row.fence, "parked", reason="diverged: it changed"))
    then = (
        "outlast: Of parked runs, only those whose compensation is stuck can be retried. For the "
        "others, use `outlast bulk resume`.\n"
    )
    assert outlast("bulk", "retry", "--status", "parked").err == f"outlast: 0 runs match.\n{then}"
    answer = outlast("bulk", "retry", "--status", "parked", "--yes")
    assert answer.err == f"outlast: 0 runs match: 0 queued again.\n{then}"
    assert set(statuses(outlast).values()) == {"parked"}


def test_retry_counts_a_stuck_compensation(stuck):
    assert "1 run matches: t1. Pass --yes" in stuck("bulk", "retry", "--status", "parked").err
    assert (
        "1 run matches: 1 queued again."
        in stuck("bulk", "retry", "--status", "parked", "--yes").err
    )


@pytest.mark.parametrize("action", ["retry", "resume", "prune"])
def test_a_reason_that_nothing_records_is_refused(outlast, action):
    outlast.submitted("a1")
    answer = outlast("bulk", action, "--prefix", "a", "--why", "enough", "--yes")
    assert answer.code == 2
    assert f"`bulk {action}` records no reason: only `bulk cancel` takes --why." in answer.err


def test_skipped_runs_are_grouped_by_their_reason(outlast):
    outlast.submitted("p")
    for id in ("a1", "a2", "a3"):
        outlast.submitted(id, parent="p")
    outlast("cancel", "p", "a1", "a2", "a3")
    answer = outlast("bulk", "retry", "--status", "cancelled", "--prefix", "a", "--yes")
    assert "3 runs match: 0 queued again, 3 skipped." in answer.err
    [line] = [line for line in answer.err.splitlines() if "a1" in line]
    assert line.startswith("outlast: a3, a2, a1: ")
