"""The fold of the ledger's log: what must be seen in it, and what must not be taken for a fault."""

import asyncio
import json
from contextlib import closing

import pytest

from outlast.tools.chaos.ledger import LOG, Ledger, LogTorn, lines
from outlast.tools.chaos.ledger_summary import LedgerSummary


def line(what, key="k", run="r", fence=1, **more):
    return {"n": 0, "what": what, "key": key, "run": run, "fence": fence, **more}


def test_act_that_is_done_twice_is_seen_even_if_it_is_undone_once():
    summary = LedgerSummary([line("act"), line("act"), line("undo", "u", undoes="k")])
    assert summary.balance["k"] == 1
    assert len(summary.twice) == 1 and "k of r was done once more" in summary.twice[0]


def test_undoing_that_is_done_twice_or_of_nothing_is_seen():
    assert (
        len(
            LedgerSummary(
                [line("act"), line("undo", "u", undoes="k"), line("undo", "v", undoes="k")]
            ).twice
        )
        == 1
    )
    assert len(LedgerSummary([line("undo", "u", undoes="never")]).twice) == 1


def test_what_is_done_undone_and_done_again_is_in_order():
    summary = LedgerSummary([line("act"), line("undo", "u", undoes="k"), line("act", fence=2)])
    assert summary.twice == [] and summary.stale == []


def test_repeats_and_refusals_are_counted_and_no_faults():
    summary = LedgerSummary(
        [line("act"), line("repeat"), line("act", "j", fence=3), line("refused", fence=1)]
    )
    assert summary.twice == [] and summary.stale == []
    assert (summary.counts["repeat"], summary.counts["refused"]) == (1, 1)


def test_act_under_an_older_fence_of_its_run_is_seen():
    summary = LedgerSummary(
        [line("asked", fence=5), line("act", fence=4), line("act", "other", run="s", fence=1)]
    )
    assert len(summary.stale) == 1 and "under fence 4, after 5" in summary.stale[0]


def test_bodies_that_begin_again_in_the_same_attempt_are_counted():
    begun = [
        line("began", "a", fence=fence, attempt=attempt)
        for fence, attempt in ((1, 1), (2, 1), (2, 2))
    ]
    assert LedgerSummary(begun).redone == 1


# The ledger itself


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / LOG)) as one:
        yield one


def ask(ledger, do, key="k", run="r", fence=1, **more):
    return asyncio.run(ledger.answer({"do": do, "key": key, "run": run, "fence": fence, **more}))


def test_ledger_counts_acts_and_does_what_is_idempotent_once(ledger, tmp_path):
    ask(ledger, "act"), ask(ledger, "act")
    first = ask(ledger, "once", "j")
    assert ask(ledger, "once", "j") == first
    assert [one["what"] for one in lines(tmp_path / LOG)] == ["act", "act", "act", "repeat"]


def test_ledger_refuses_an_old_fence_after_a_question_with_a_newer_one(ledger):
    assert ask(ledger, "asked", fence=2) == {"n": None}
    assert ask(ledger, "act", fence=1) == {"stale": 2}
    assert ask(ledger, "act", fence=2)["n"] is not None
    assert ask(ledger, "act", run="another", fence=1)["n"] is not None


def test_fault_meets_the_first_request_of_a_key_only(ledger, tmp_path):
    assert ask(ledger, "act", "a", fault="refuse") == {"refused": True}
    assert ask(ledger, "act", "b", fault="cut") is None
    assert [one["key"] for one in lines(tmp_path / LOG)] == ["b"], (
        "the answer was withheld, the act was not"
    )
    assert "n" in ask(ledger, "act", "a", fault="refuse")


def test_line_that_is_not_whole_is_passed_over(tmp_path):
    path = tmp_path / LOG
    path.write_text(json.dumps({"n": 0}) + "\n" + '{"n": ')
    assert list(lines(path)) == [{"n": 0}]


def test_log_that_lacks_a_line_is_no_witness(tmp_path):
    path = tmp_path / LOG
    path.write_text("".join(json.dumps({"n": number}) + "\n" for number in (0, 2)))
    with pytest.raises(LogTorn, match=r"line 1 of .* is missing"):
        list(lines(path))
    path.write_text('{"n": 0}\n{"n": \n{"n": 2}\n')
    with pytest.raises(LogTorn, match=r"line 1 of .* cannot be read"):
        list(lines(path))
