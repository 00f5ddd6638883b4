"""Steps that do not stop, and a store that does not answer: the process is gone before its grace ends, its neighbours' work is kept,
and what hung is claimable the moment it is gone."""

import signal
import sqlite3
import time

import pytest
from kubelet import LEASE, LONG, SLACK, Ended, Node, Pod, flows, until

GRACE = 4.0
NEIGHBOURS = 5


def beside(node: Node, call, *, grace: float = GRACE) -> tuple[Pod, Pod]:
    """A worker with neighbours under way and a run that misbehaves; and an idle one that waits for what comes back."""
    first = node.worker(grace=grace).up()
    node.submit({f"n{n}": flows.chain(n, 200, 0.1) for n in range(NEIGHBOURS)})
    until(lambda: len(node.lines("after")) >= 2 * NEIGHBOURS)
    node.submit({"bad": call})
    until(lambda: len([line for line in node.lines() if line.run == "bad"]) == 2)
    assert node.worker_of("bad") == first.pid
    time.sleep(0.1)  # it is where it misbehaves
    return first, node.worker().up()


def end(first: Pod, *, grace: float = GRACE) -> Ended:
    ended = first.wait(first.signal(signal.SIGTERM))
    print(f"gone {ended.seconds:.2f} s after SIGTERM, exit code {ended.code}")
    assert ended.seconds < grace + SLACK, first.errors()
    return ended


def taken_up(node: Node, second: Pod) -> float:
    """Seconds from now until the run that misbehaved is in the hands of the other worker."""
    began = time.monotonic()
    until(lambda: node.worker_of("bad") == second.pid or node.statuses()["done"], seconds=30)
    return time.monotonic() - began


def assert_goes_on(node: Node, value: str) -> None:
    until(lambda: node.image().runs["bad"]["status"] == "done")
    assert node.image().runs["bad"]["value"] == value
    ids = [f"n{n}" for n in range(NEIGHBOURS)]
    until(lambda: all(node.worker_of(id) == node.pods[1].pid for id in ids))
    node.assert_nothing_recorded_was_redone()


@pytest.mark.parametrize(
    ("call", "value"),
    [
        pytest.param(flows.swallows(), '"swallowed"', id="swallows-cancellation"),
        pytest.param(flows.hangs(), '"hung"', id="hangs-in-a-thread"),
    ],
)
def test_a_step_that_cannot_be_stopped_is_left_behind_as_interrupted_and_costs_its_neighbours_nothing(
    node, call, value
):
    first, second = beside(node, call)
    ended = end(first)
    assert ended.code == 0, first.errors()
    took = taken_up(node, second)
    print(f"taken up {took:.2f} s after that")
    assert took < LEASE
    assert_goes_on(node, value)
    node.assert_no_deaths()
    bad = node.image().runs["bad"]
    assert (bad["deaths"], bad["interruptions"]) == (0, 1)
    assert {run for run, _ in node.redone()} == {"bad"}, "no step of a neighbour is redone"
    assert len(node.redone()) == 1, "and of its own only the one that hung"
    (report,) = node.drains()
    assert report.released == NEIGHBOURS
    assert [one.id for one in report.left] == ["bad"]
    assert not report.cut_short


def test_a_blocked_loop_is_gone_in_time_and_what_it_held_is_interrupted_and_not_dead(node):
    """Nothing of the worker's neighbours can end or be released while the loop stands still: they are swept, as interrupted."""
    first, second = beside(node, flows.blocks())
    recorded = node.image().recorded()
    ended = end(first)
    assert ended.code == 0, first.errors()
    assert taken_up(node, second) < LEASE
    assert_goes_on(node, '"blocked"')
    node.assert_no_deaths()
    runs = node.image().runs
    assert {id: run["interruptions"] for id, run in runs.items()} == dict.fromkeys(runs, 1)
    assert not recorded & set(node.redone())
    (report,) = node.drains()
    assert report.cut_short
    assert {one.id for one in report.left} == set(runs)


def test_a_loop_that_is_blocked_for_a_while_drains_when_it_moves_again(node):
    first, _ = beside(node, flows.blocks(6.0), grace=15)
    ended = end(first, grace=15)
    assert ended.code == 0, first.errors()
    assert_goes_on(node, '"blocked"')
    assert node.redone() == {}
    node.assert_no_deaths()
    (report,) = node.drains()
    assert any("stood still" in what for what in report.blocked)
    assert report.left == []


@pytest.mark.parametrize(
    ("call", "value"),
    [
        pytest.param(flows.matches(), '"matched"', id="catastrophic-regex"),
        *([pytest.param(flows.sums(), '"summed"', id="sum-of-a-trillion")] if LONG else []),
    ],
)
def test_c_code_that_holds_the_gil_is_killed_by_the_guard_in_time(node, call, value):
    """Nothing in Python could say that this worker drains, so its runs count as a death; but one that had recorded something is not
    at fault for it, and none of these is."""
    first, second = beside(node, call, grace=2.0)
    recorded = node.image().recorded()
    ended = end(first, grace=2.0)
    assert ended.code == -signal.SIGKILL
    assert taken_up(node, second) < LEASE
    assert_goes_on(node, value)
    runs = node.image().runs
    assert {run["deaths"] for run in runs.values()} == {1}
    assert {run["deaths_in_a_row"] for run in runs.values()} == {0}, "nobody is suspected"
    assert not recorded & set(node.redone())
    assert node.drains() == []


def test_a_store_that_does_not_answer_holds_nobody_up(file_node):
    first, second = beside(file_node, flows.chain(0, 200, 0.1))
    lock = sqlite3.connect(file_node.folder / "outlast.db", timeout=10, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    recorded = file_node.image().recorded()
    try:
        ended = end(first)
        assert ended.code == 0, first.errors()
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    took = taken_up(file_node, second)
    print(f"taken up {took:.2f} s after that")
    assert took < LEASE, "it need not wait for the lease to run out: the process is gone"
    ids = ["bad", *(f"n{n}" for n in range(NEIGHBOURS))]
    until(lambda: all(file_node.worker_of(id) == second.pid for id in ids))
    file_node.assert_nothing_recorded_was_redone()
    assert not recorded & set(file_node.redone())
    assert {run["deaths_in_a_row"] for run in file_node.image().runs.values()} == {0}


def test_a_store_that_does_not_answer_for_a_while_is_told_when_it_does(file_node):
    first, second = beside(file_node, flows.chain(0, 200, 0.1))
    lock = sqlite3.connect(file_node.folder / "outlast.db", timeout=10, isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    at = first.signal(signal.SIGTERM)
    time.sleep(1.0)
    lock.execute("ROLLBACK")
    lock.close()
    ended = first.wait(at)
    assert ended.code == 0, first.errors()
    assert ended.seconds < GRACE + SLACK
    ids = ["bad", *(f"n{n}" for n in range(NEIGHBOURS))]
    until(lambda: all(file_node.worker_of(id) == second.pid for id in ids))
    assert file_node.redone() == {}
    file_node.assert_no_deaths()
    (report,) = file_node.drains()
    assert report.released == 1 + NEIGHBOURS


def test_all_of_them_at_once_are_gone_in_time_too(node):
    first, second = beside(node, flows.hangs())
    second.kill()
    node.submit({"swallows": flows.swallows(), "hangs": flows.hangs()})
    until(lambda: any(line.key.startswith("swallow") for line in node.lines()))
    node.submit({"blocks": flows.blocks()})
    until(lambda: any(line.key.startswith("block") for line in node.lines()))
    end(first)
    node.worker().up()
    more = ("swallows", "hangs", "blocks")
    until(lambda: all(node.image().runs[id]["status"] == "done" for id in ("bad", *more)))
    node.assert_no_deaths()
    node.assert_nothing_recorded_was_redone()
