"""Steps that do not stop, and a store that does not answer.

The process is gone before its grace ends, other runs lose nothing, and the hung run is claimable at once.
"""

import signal
import sqlite3

import pytest
from kubelet import LONG, PASSING, Node, Pod, flows, get, passing_grace

NEIGHBOURS = 2


def start_workers(node: Node, call: object, **settings: object) -> tuple[Pod, Pod]:
    """Start a worker with a bad run and other runs under way, and an idle worker."""
    first = node.worker(**settings).up()
    node.submit({f"n{n}": flows.beats(0.1) for n in range(NEIGHBOURS)})
    node.wait_until(lambda: len(node.lines("after")) >= NEIGHBOURS)
    node.submit({"bad": call})
    node.wait_until(lambda: len([line for line in node.lines() if line.run == "bad"]) >= 2)
    assert node.worker_of("bad") == first.pid
    return first, node.worker().up()


def assert_others_continue(node: Node, second: Pod) -> None:
    node.wait_until(lambda: {f"n{n}" for n in range(NEIGHBOURS)} <= node.runs_of(second))
    node.assert_nothing_recorded_was_redone()


def assert_bad_run_continues(node: Node, second: Pod, value: str) -> None:
    node.wait_until(lambda: node.snapshot().runs["bad"]["status"] == "done")
    assert node.snapshot().runs["bad"]["value"] == value
    assert_others_continue(node, second)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        pytest.param(flows.swallows(), '"swallowed"', id="swallows-cancellation"),
        pytest.param(flows.hangs(), '"hung"', id="hangs-in-a-thread"),
    ],
)
def test_a_hung_step_is_left_behind_as_interrupted_and_other_runs_lose_nothing(node, call, value):
    first, second = start_workers(node, call, http=True, **PASSING)
    first.terminate()
    assert_others_continue(node, second)
    first.let_pass(passing_grace.UNTIL_STEPS_STOP)
    first.wait_for_layer("checkpoint")
    first.let_pass(passing_grace.UNTIL_STEPS_ARE_LEFT)
    assert first.wait() == 0, first.errors
    assert_bad_run_continues(node, second, value)
    node.assert_no_deaths()
    bad = node.snapshot().runs["bad"]
    assert (bad["deaths"], bad["interruptions"]) == (0, 1)
    assert {run for run, _ in node.redone()} == {"bad"}, "no other run has a step redone"
    assert len(node.redone()) == 1, "only the hung step is redone"
    (report,) = node.drains()
    assert report.released == NEIGHBOURS
    assert [one.id for one in report.left] == ["bad"]
    assert not report.cut_short


def test_a_worker_with_a_blocked_loop_and_hung_steps_fails_its_liveness_probe_and_ends_in_time(
    node,
):
    """No run can end or be released while the loop is blocked. All of them are swept, as interrupted."""
    hung = {"swallows": flows.swallows(), "hangs": flows.hangs()}
    node.submit(hung)
    first, second = start_workers(node, flows.blocks(), http=True, health_stall=0.6, **PASSING)
    assert node.runs_of(first) >= set(hung)
    recorded = node.snapshot().recorded()
    first.wait_until(lambda: get(first.port, "/health") == 503)
    first.terminate()
    node.wait_until_draining(first)
    first.let_pass(passing_grace.UNTIL_THE_END)
    assert first.wait() == 0, first.errors
    assert_bad_run_continues(node, second, '"blocked"')
    node.wait_until(lambda: {node.snapshot().runs[id]["status"] for id in hung} == {"done"})
    node.assert_no_deaths()
    runs = node.snapshot().runs
    assert {id: run["interruptions"] for id, run in runs.items()} == dict.fromkeys(runs, 1)
    assert not recorded & set(node.redone())
    (report,) = node.drains()
    assert report.cut_short
    assert {one.id for one in report.left} == set(runs)


def test_a_loop_that_was_blocked_for_a_while_drains_when_it_moves_again(node):
    first, second = start_workers(node, flows.blocks("gate"), **PASSING)
    first.terminate()
    node.wait_until_draining(first)
    first.let_pass(2)  # a loop that is blocked for less than a second is not reported
    node.open_gate()
    assert first.wait() == 0, first.errors
    assert_bad_run_continues(node, second, '"blocked"')
    assert node.redone() == {}
    node.assert_no_deaths()
    (report,) = node.drains()
    assert any("was blocked" in what for what in report.blocked)
    assert report.left == []


@pytest.mark.parametrize(
    ("call", "value"),
    [
        pytest.param(flows.matches(), '"matched"', id="catastrophic-regex"),
        *([pytest.param(flows.sums(), '"summed"', id="sum-of-a-trillion")] if LONG else []),
    ],
)
def test_the_guard_kills_c_code_that_holds_the_gil(node, call, value):
    """Nothing in Python can announce this drain, so it counts as a death, for which no run is suspected."""
    first, second = start_workers(node, call, grace=1)
    recorded = node.snapshot().recorded()
    assert first.end() == -signal.SIGKILL
    assert_bad_run_continues(node, second, value)
    runs = node.snapshot().runs
    assert {run["deaths"] for run in runs.values()} == {1}
    assert {run["deaths_in_a_row"] for run in runs.values()} == {0}
    assert not recorded & set(node.redone())
    assert node.drains() == []


def test_a_worker_ends_in_time_when_its_store_does_not_answer(file_node):
    first, second = start_workers(file_node, flows.beats(0.1), http=True, **PASSING)
    lock = sqlite3.connect(file_node.folder / "outlast.db", timeout=60, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    recorded = file_node.snapshot().recorded()
    try:
        first.terminate()
        first.wait_until(lambda: get(first.port, "/ready") == 503)
        first.let_pass(passing_grace.UNTIL_THE_END)
        assert first.wait() == 0, first.errors
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    file_node.wait_until(lambda: file_node.worker_of("bad") == second.pid)
    assert_others_continue(file_node, second)
    assert not recorded & set(file_node.redone())
    assert {run["deaths_in_a_row"] for run in file_node.snapshot().runs.values()} == {0}


def test_a_drain_goes_on_when_its_store_answers_again(file_node):
    first, second = start_workers(file_node, flows.beats(0.1), http=True)
    lock = sqlite3.connect(file_node.folder / "outlast.db", timeout=60, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    first.terminate()
    first.wait_until(lambda: get(first.port, "/ready") == 503)
    first.wait_until(lambda: not file_node.under_way(first.pid))  # their results wait for the store
    lock.execute("ROLLBACK")
    lock.close()
    assert first.wait() == 0, first.errors
    file_node.wait_until(lambda: file_node.worker_of("bad") == second.pid)
    assert_others_continue(file_node, second)
    assert file_node.redone() == {}
    file_node.assert_no_deaths()
    (report,) = file_node.drains()
    assert report.released == 1 + NEIGHBOURS
