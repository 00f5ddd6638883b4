"""The demo's checks can fail: a claim that does not hold is reported."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from demo_tools import LOSES_A_REPLY, LOST_REPLY, POST, agent, quick_demo

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.rows import RunRow
from outlast.store.sqlite.store import SQLiteStore
from outlast.tools.demo import monitor
from outlast.tools.demo.claims import check, document, summary
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.fake_services import Call
from outlast.tools.demo.topics import ANSWER_TOKENS, TOPICS
from outlast.tools.demo.view import WIDTH, State
from outlast.tools.demo.workspace import DemoFailed, address_of
from support.processes import is_running

FILE = Path("outlast-demo.db")
FINISHED, STOPPED, KILLED, REPEATED, SENT, WAITED, SIGNALLED = range(7)
"""The claims, by their place in the list."""


def failed(facts: Facts) -> list[int]:
    """Return which of the claims do not hold."""
    return [number for number, claim in enumerate(check(facts)) if claim.problems]


def summary_of(facts: Facts) -> str:
    return "\n".join(line.plain for line in summary(check(facts), FILE))


FAULTS = {
    "an outbox that is written twice": ([(f"return int({POST})", f"{POST}\n    return int({POST})")], SENT),
    "a verify that lies": ([LOSES_A_REPLY, ("return None if number is None else Happened(int(number))", "return None")], SENT),
    "an answer that starts again": ([("after=cursor", "after=None")], KILLED),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        "an outbox that is written twice",
        pytest.param("a verify that lies", marks=pytest.mark.extended),
        pytest.param("an answer that starts again", marks=pytest.mark.extended),
    ],
)
def test_checks_find_a_faulty_agent(tmp_path, fault):
    changes, claim = FAULTS[fault]
    facts = quick_demo(tmp_path, agent(tmp_path, *changes))
    assert claim in failed(facts)
    assert "FAILED" in summary_of(facts)
    twice = "the reader also got 'I am looking into glaciers.'"
    assert (twice in " ".join(check(facts)[SENT].problems)) == (claim == SENT)
    assert not document(facts, check(facts), FILE)["passed"]


def with_row(facts: Facts, topic: str, **changes) -> Facts:
    run = facts.runs[topic]
    return replace(facts, runs=facts.runs | {topic: run._replace(row=run.row._replace(**changes))})


def with_traffic(facts: Facts, **changes) -> Facts:
    return replace(facts, traffic=replace(facts.traffic, **changes))


def with_answers(facts: Facts, **changes) -> Facts:
    calls = facts.traffic.calls
    changed = [
        replace(call, **changes) if (call.path, call.topic) == ("answer", "bees") else call
        for call in calls
    ]
    return with_traffic(facts, calls=changed)


def run_not_done(facts: Facts) -> Facts:
    return with_row(facts, "tides", status="parked")


def other_result(facts: Facts) -> Facts:
    return with_row(facts, "bees", value='"half"')


def not_interrupted(facts: Facts) -> Facts:
    return with_row(facts, "tides", interruptions=0)


def signal_before_the_call(facts: Facts) -> Facts:
    return replace(facts, sigterm_at=facts.sigterm_at - 1000)


def signal_after_the_call(facts: Facts) -> Facts:
    return replace(facts, sigterm_at=facts.sigterm_at + 1000)


def crash_at_exit(facts: Facts) -> Facts:
    return replace(facts, exit_codes=facts.exit_codes | {"A": 1})


def no_drain_report(facts: Facts) -> Facts:
    return replace(facts, drain=None)


def no_death(facts: Facts) -> Facts:
    return with_row(facts, "bees", deaths=0)


def killed_after_the_answer(facts: Facts) -> Facts:
    return with_answers(facts, tokens=ANSWER_TOKENS)


def nothing_kept(facts: Facts) -> Facts:
    return with_answers(facts, first=0)


def searched_twice(facts: Facts) -> Facts:
    calls = [*facts.traffic.calls, Call("search", "tides", "spring and neap tides")]
    return with_traffic(facts, calls=calls)


def lost_message(facts: Facts) -> Facts:
    return with_traffic(facts, messages=facts.traffic.messages[:-1])


def foreign_message(facts: Facts) -> Facts:
    messages = facts.traffic.messages
    extra = messages[0]._replace(text="something else", key="another")
    return with_traffic(facts, messages=[*messages, extra])


def message_with_another_key(facts: Facts) -> Facts:
    first, *others = facts.traffic.messages
    return with_traffic(facts, messages=[first._replace(key="another"), *others])


def held_while_it_waited(facts: Facts) -> Facts:
    run = facts.runs["glaciers"]
    entries = tuple(entry for entry in run.entries if entry.kind != "message")
    return replace(facts, runs=facts.runs | {"glaciers": run._replace(entries=entries)})


def unexpected_exit(facts: Facts) -> Facts:
    return replace(facts, surprises=["worker 3 ended by itself"])


def nothing_at_all(facts: Facts) -> Facts:
    return with_traffic(replace(facts, runs={}, drain=None), messages=[])


CHANGES: dict[Callable[[Facts], Facts], list[int]] = {
    run_not_done: [FINISHED], other_result: [FINISHED],
    not_interrupted: [STOPPED], signal_before_the_call: [STOPPED], signal_after_the_call: [STOPPED], crash_at_exit: [STOPPED], no_drain_report: [STOPPED],
    no_death: [KILLED], killed_after_the_answer: [KILLED], nothing_kept: [KILLED],
    searched_twice: [REPEATED],
    lost_message: [SENT], foreign_message: [SENT], message_with_another_key: [SENT],
    held_while_it_waited: [WAITED],
    unexpected_exit: [SIGNALLED],
    nothing_at_all: [FINISHED, STOPPED, KILLED, SENT, WAITED],
}  # fmt: skip


def test_lost_reply_and_busy_store_fail_no_check(good):
    assert failed(good) == []


def test_each_check_fails_on_its_own_facts(good):
    for change, claims in CHANGES.items():
        changed = change(good)
        assert failed(changed) == claims, change.__name__
        assert summary_of(changed).count("FAILED") == len(claims)


def test_summary_lists_every_claim_with_its_evidence(good):
    lines = summary_of(good).split("\n")
    assert lines[0] == "The demo checked 7 claims: all of them hold."
    for line, claim in zip(lines[1:8], check(good), strict=True):
        assert line.strip() == f"ok  {claim.claim}: {claim.evidence}"
    assert lines[8] == ""


def test_summary_counts_the_claims_that_failed_and_wraps_their_problems(good):
    changed = replace(other_result(good), surprises=["worker 3 ended by itself " * 9])
    lines = summary_of(changed).split("\n")
    assert lines[0] == "The demo checked 7 claims: 2 of them failed."
    assert all(len(line) <= WIDTH for line in lines[:-1])


class ReportedWaiting(Exception):
    """The demo reported that a run waits for its editor, after this many messages were sent."""


def test_run_that_waits_to_verify_a_message_does_not_wait_for_its_editor(tmp_path):
    """No worker holds it either, but approving it then would prove nothing."""

    def show(state: State) -> None:
        if state.events[-1].text.startswith("glaciers waits for its editor"):
            raise ReportedWaiting(state.messages)

    with pytest.raises(ReportedWaiting) as raised:
        quick_demo(tmp_path, agent(tmp_path, *LOST_REPLY), show)
    assert raised.value.args == (2,), "one to the reader, one to the editor"


def test_worker_start_failure_ends_the_demo_with_its_output(tmp_path):
    fails = ("import os\n", 'raise ImportError("no such thing as this module")\n')
    with pytest.raises(DemoFailed, match="no such thing as this module"):
        quick_demo(tmp_path, agent(tmp_path, fails))


def test_unfinished_run_ends_the_demo_at_its_deadline(tmp_path, monkeypatch):
    never = agent(tmp_path, ("notes: list[str] = []", "notes: list[str] = await receive('never')"))

    def end_the_time_once_b_works(state: State) -> None:
        if any("B  working" in line.plain for line in state.workers):
            monkeypatch.setattr(monitor, "DEADLINE_SECONDS", float("-inf"))

    message = r"waited too long for \w+.*Last log lines: A: "
    with pytest.raises(DemoFailed, match=message):
        quick_demo(tmp_path, never, end_the_time_once_b_works)
    store = store_at(address_of(tmp_path / "outlast-demo.db"))
    store.open()
    with closing(store):
        pids = [row.pid for row in store.workers()]
    assert len(pids) == 2
    assert not any(map(is_running, pids))


def test_failed_run_ends_the_demo_with_the_reason_although_the_store_is_busy(tmp_path, monkeypatch):
    fails = ("notes: list[str] = []", "raise LookupError('there is nothing on it')")
    seen: dict[str, str] = {}

    def run(store: SQLiteStore, id: str) -> RunRow | None:
        # A whole poll saw the failure.
        if "failed" in seen.values() and list(TOPICS)[-1] in seen:
            raise StoreUnavailable("it is busy")
        # A poll begins.
        if id == next(iter(TOPICS)):
            seen.clear()
        row = real(store, id)
        seen[id] = "" if row is None else row.status
        return row

    real = SQLiteStore.run
    monkeypatch.setattr(SQLiteStore, "run", run)
    with pytest.raises(DemoFailed, match=r"tides is failed: .*there is nothing on it"):
        quick_demo(tmp_path, agent(tmp_path, fails))
