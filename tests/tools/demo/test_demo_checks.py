"""The checks can fail: what is not so is said, and is never shown as if it were."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from demo_tools import LOSES_AN_ANSWER, POST, agent, played, quick_play, quick_workers

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.rows import RunRow
from outlast.store.sqlite.store import SQLiteStore
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.library import TOPICS
from outlast.tools.demo.model import Call
from outlast.tools.demo.scenario import Scenario
from outlast.tools.demo.state import State
from outlast.tools.demo.summary import document, summary
from outlast.tools.demo.verdict import checks
from outlast.tools.demo.view import View, plain
from outlast.tools.demo.workspace import DemoFailed, address_of
from support.processes import is_running

VERIFY = 'return Happened(str(receipt["number"]))'


def wrong(facts: Facts) -> list[int]:
    """Which of the claims do not hold."""
    return [number for number, check in enumerate(checks(facts)) if check.wrong]


LIES = LOSES_AN_ANSWER, (VERIFY, "return None")
FAULTS = {
    "an outbox that is written twice": ([(POST, f"{POST}\n    {POST}")], 4),
    "a verify that lies": (LIES, 4),
    "an answer that is begun again": (
        [('raise CannotResume("the model has forgotten this answer") from error', "raise"), ("after=cursor", "after=None")], 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        "an outbox that is written twice",
        pytest.param("a verify that lies", marks=pytest.mark.extended),
        pytest.param("an answer that is begun again", marks=pytest.mark.extended),
    ],
)
def test_checks_find_a_faulty_agent(tmp_path, fault):
    changes, claim = FAULTS[fault]
    facts = played(tmp_path, agent(tmp_path, *changes))
    assert claim in wrong(facts)
    text = plain(summary(facts, checks(facts), Path("outlast-demo.db")))
    assert "NOT SO" in text
    assert ("more than once" in text) == (claim == 4)
    assert not document(facts, checks(facts), Path("outlast-demo.db"))["passed"]
    if changes is LIES:
        assert facts.duplicates == {("reader", "I look into glaciers."): 2}


def no_death(facts: Facts) -> Facts:
    bees = facts.runs["bees"]
    return replace(
        facts, runs=facts.runs | {"bees": bees._replace(row=bees.row._replace(deaths=0))}
    )


def other_result(facts: Facts) -> Facts:
    bees = facts.runs["bees"]
    return replace(
        facts, runs=facts.runs | {"bees": bees._replace(row=bees.row._replace(value='"half"'))}
    )


def not_done(facts: Facts) -> Facts:
    bees = facts.runs["tides"]
    return replace(
        facts, runs=facts.runs | {"tides": bees._replace(row=bees.row._replace(status="parked"))}
    )


def not_there(facts: Facts) -> Facts:
    return replace(facts, runs={}, drains={}, messages=())


def early(facts: Facts) -> Facts:
    signals = replace(facts.result.signals, term=facts.result.began)
    return replace(facts, result=replace(facts.result, signals=signals))


def late(facts: Facts) -> Facts:
    signals = replace(facts.result.signals, term=facts.result.began + 1000)
    return replace(facts, result=replace(facts.result, signals=signals))


def crashed(facts: Facts) -> Facts:
    signals = replace(facts.result.signals, exit_codes=facts.result.signals.exit_codes | {"A": 1})
    return replace(facts, result=replace(facts.result, signals=signals))


def asked_twice(facts: Facts) -> Facts:
    calls = [*facts.result.model.calls, Call("search", "tides", "spring and neap tides")]
    return with_model(facts, calls=calls)


def whole(facts: Facts) -> Facts:
    answers = [
        replace(one, sent=108) if one.topic == "bees" else one for one in facts.result.model.answers
    ]
    return with_model(facts, answers=answers)


def nothing_kept(facts: Facts) -> Facts:
    answers = [replace(one, first=0) for one in facts.result.model.answers]
    return with_model(facts, answers=answers)


def with_model(facts: Facts, **changes) -> Facts:
    return replace(
        facts, result=replace(facts.result, model=replace(facts.result.model, **changes))
    )


def lost_message(facts: Facts) -> Facts:
    return replace(facts, messages=facts.messages[:-1])


def foreign_message(facts: Facts) -> Facts:
    extra = facts.messages[0]._replace(text="something else", key="another")
    return replace(facts, messages=(*facts.messages, extra))


def no_report(facts: Facts) -> Facts:
    return replace(facts, drains={})


def surprised(facts: Facts) -> Facts:
    return replace(facts, result=replace(facts.result, surprises=["worker 3 ended by itself"]))


CLAIMS: dict[Callable[[Facts], Facts], list[int]] = {
    not_done: [0], other_result: [0], early: [1], late: [1], crashed: [1], no_report: [1], no_death: [2], whole: [2], nothing_kept: [2],
    asked_twice: [3], lost_message: [4], foreign_message: [4], surprised: [5], not_there: [0, 1, 2, 4],
}  # fmt: skip


def test_lost_answer_and_busy_store_fail_no_check(good):
    assert wrong(good) == []


def test_each_check_fails_on_its_own_facts(good):
    for change, claims in CLAIMS.items():
        changed = change(good)
        assert wrong(changed) == claims, change.__name__
        assert "NOT SO" in plain(summary(changed, checks(changed), Path("outlast-demo.db")))


def test_summary_says_a_worker_where_none_was_seen(good):
    changed = replace(good, result=replace(good.result, executions={}))
    lines = plain(summary(changed, checks(changed), Path("outlast-demo.db"))).splitlines()[1:14]
    assert sorted(line[20:] for line in lines) == sorted(
        [
            *["begins on a worker"] * 3,
            "waits for its editor; no worker holds it",
            "a worker gets SIGTERM during search#2",
            "a worker has recorded search#2, releases the run",
            "continues on a worker, with think#3",
            "a worker gets SIGKILL during write#1",
            "continues on a worker, in the middle of write#1",
            "continues on a worker: approved",
            *["done"] * 3,
        ]
    )


def test_worker_start_failure_ends_the_demo_with_its_output(tmp_path):
    with pytest.raises(DemoFailed, match="no such thing as this module"):
        played(
            tmp_path,
            agent(tmp_path, ("import os\n", 'raise ImportError("no such thing as this module")\n')),
        )


class Impatient(View):
    """Give the demo little time once B works, however long the workers took to start."""

    play: Scenario

    def show(self, state: State) -> None:
        if any(worker.name == "B" and worker.state == "working" for worker in state.workers):
            self.play._until = min(self.play._until, time.monotonic() + 0.2)


def test_unfinished_run_ends_the_demo_at_its_deadline(tmp_path):
    never = agent(tmp_path, ("notes: list[str] = []", "notes: list[str] = await receive('never')"))
    view = Impatient()
    view.play = quick_play(tmp_path, never, view)
    message = r"waited too long for \w+.*Last log lines: A: "
    with quick_workers(), pytest.raises(DemoFailed, match=message):
        view.play.run()
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
        if "failed" in seen.values() and list(TOPICS)[-1] in seen:  # a look has ended with it
            raise StoreUnavailable("it is busy")
        if id == next(iter(TOPICS)):  # a look begins
            seen.clear()
        row = real(store, id)
        seen[id] = "" if row is None else row.status
        return row

    real = SQLiteStore.run
    monkeypatch.setattr(SQLiteStore, "run", run)
    with pytest.raises(DemoFailed, match=r"tides is failed.*there is nothing on it"):
        played(tmp_path, agent(tmp_path, fails))
