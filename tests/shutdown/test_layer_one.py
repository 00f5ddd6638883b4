"""Layer 1: a worker that gets SIGTERM is not ready, says so in the store, and releases what has not begun.

`python -m bench.drain` measures how soon. Here it happens whatever the worker is busy with.
"""

import sys

from kubelet import (
    LONG,
    PASSING,
    PROGRAMS,
    assert_deadline_ended,
    at_the_gate,
    flows,
    gated,
    get,
    passing_grace,
)

RUNS = 1000 if LONG else 40


def test_a_worker_with_many_runs_drains_and_claims_no_more(node):
    pod = node.worker(concurrency=RUNS, http=True).up()
    node.submit(gated(RUNS))
    node.wait_until_begun(*at_the_gate(RUNS))
    assert len(node.runs_of(pod)) == RUNS
    pod.terminate()
    node.wait_until_draining(pod)
    assert get(pod.port, "/ready") == 503
    node.submit({f"late{n}": flows.chain(n, 1, 0.0) for n in range(5)})
    node.open_gate()
    assert pod.wait() == 0, pod.errors
    assert {line.run for line in node.lines() if line.run.startswith("late")} == set()
    late = {run["lives"] for id, run in node.snapshot().runs.items() if id.startswith("late")}
    assert late == {0}
    (report,) = node.drains()
    assert (report.released, report.left) == (RUNS, [])
    assert node.redone() == {}
    assert node.under_way(pod.pid) == set()


def test_a_worker_with_a_blocked_loop_drains(node):
    pod = node.worker(http=True).up()
    node.submit({"blocks": flows.blocks("gate")})
    node.wait_until_begun(("blocks", "block_the_loop#1"))
    pod.terminate()
    node.wait_until_draining(pod)
    assert get(pod.port, "/ready") == 503
    assert node.under_way(pod.pid) == {("blocks", "block_the_loop#1")}, "the loop is still blocked"
    node.open_gate()
    assert pod.wait() == 0, pod.errors


def test_a_worker_drains_beside_busy_writers_of_other_processes(node):
    pod = node.worker(http=True).up()
    node.submit(gated(5))
    node.wait_until_begun(*at_the_gate(5))
    writers = [
        node.pod([sys.executable, str(PROGRAMS / "drain_writer.py"), node.address])
        for _ in range(3 if LONG else 2)
    ]
    for writer in writers:
        writer.wait_for_line("")
    pod.terminate()
    node.wait_until_draining(pod)
    for writer in writers:
        writer.kill()
    node.open_gate()
    assert pod.wait() == 0, pod.errors


def test_claimed_runs_that_have_not_begun_are_given_back_and_not_charged(node):
    """A run's second life begins when its journal is read, which a blocked loop cannot do."""
    count = 10
    ids = {f"r{n}" for n in range(count)}
    before = node.worker(**PASSING).up()
    node.submit(gated(count))
    node.wait_until_begun(*at_the_gate(count))
    before.terminate()
    node.wait_until_draining(before)
    before.let_pass(passing_grace.UNTIL_STEPS_STOP)
    assert before.wait() == 0, before.errors
    node.submit({"blocks": flows.blocks_itself("unblock")})
    pod = node.worker().up()
    pod.wait_until(lambda: node.lines("blocked"))
    pod.wait_until(lambda: len(node.runs_of(pod)) == count + 1)
    begun = node.keys(pid=pod.pid)
    pod.terminate()
    node.wait_until_draining(pod)
    runs = node.snapshot().runs
    back = {id for id in ids if runs[id]["status"] == "queued" and runs[id]["worker"] is None}
    assert back == ids - {id for id, _ in begun}
    assert back
    assert runs["blocks"]["worker"] is not None
    assert {(runs[id]["deaths"], runs[id]["interruptions"]) for id in back} == {(0, 1)}
    assert node.keys(pid=pod.pid) == begun
    other = node.worker().up()
    node.wait_until(lambda: node.runs_of(other) == back)
    node.open_gate()
    node.open_gate("unblock")
    assert pod.wait() == 0, pod.errors
    node.wait_until_all_done()
    node.assert_nothing_recorded_was_redone()
    node.assert_no_deaths()
    reports = {report.pid: report for report in node.drains()}
    assert reports[pod.pid].not_started == len(back)


def test_a_worker_without_a_thread_for_layer_1_ends_in_time_while_its_loop_is_blocked(node):
    """Neither the store nor the loop learns of the drain. Only the deadline is left."""
    pod = node.worker(module="drain_no_thread.py", **PASSING).up()
    node.submit({"bad": flows.blocks()})
    node.wait_until_begun(("bad", "block_the_loop#1"))
    pod.terminate()
    pod.wait_until(lambda: "No thread could be started" in pod.errors)
    pod.let_pass(passing_grace.UNTIL_THE_END)
    assert_deadline_ended(pod.wait(), 0)
