"""Layer 1: not ready, marked in the store, no more claims, and what has not begun goes back; whatever the worker is busy with.

It is promised within 50 ms of the signal. These tests hold what a busy machine can; the figures are printed (`pytest -s`), and measured
by `python -m bench.drain`.
"""

import signal
import sys
import time
from contextlib import closing

from kubelet import LONG, PROGRAMS, Node, Pod, flows, get, until

from outlast.store.address import store_at

SECONDS_MAX = 1.0
RUNS = 1000 if LONG else 300


def until_draining(node: Node, pod: Pod) -> float:
    """Send SIGTERM; seconds until the store says that this worker drains."""
    store = store_at(node.address)
    store.open()
    with closing(store):
        at = pod.signal(signal.SIGTERM)
        while not any(worker.draining for worker in store.workers() if worker.pid == pod.pid):
            assert time.monotonic() - at < 10, pod.errors()
            time.sleep(0.001)
        seconds = time.monotonic() - at
    print(f"marked as draining {seconds * 1000:.1f} ms after the signal")
    assert seconds < SECONDS_MAX
    return seconds


def held(node: Node, pod: Pod) -> int:
    sql = "SELECT count(*) FROM runs JOIN workers ON workers.id = runs.worker WHERE workers.pid = ?"
    ((count,),) = node.ask(sql, pod.pid)
    return count


def test_with_many_runs_in_hand(node):
    pod = node.worker(concurrency=RUNS, http=True, grace=20).up()
    node.submit({f"r{n}": flows.chain(n, 3, 2.0) for n in range(RUNS)})
    until(lambda: held(node, pod) == RUNS)
    until(lambda: len(node.lines()) >= RUNS)
    until_draining(node, pod)
    assert get(pod.port, "/ready") == 503
    node.submit({f"late{n}": flows.chain(n, 1, 0.0) for n in range(20)})
    ended = pod.wait(time.monotonic())
    assert ended.code == 0, pod.errors()
    assert {line.run for line in node.lines() if line.run.startswith("late")} == set()
    assert {run["lives"] for id, run in node.image().runs.items() if id.startswith("late")} == {0}
    (report,) = node.drains()
    assert (report.released, report.left) == (RUNS, [])
    assert node.redone() == {}
    assert node.under_way(pod.pid) == set()


def test_with_a_loop_that_stands_still(node):
    pod = node.worker(http=True, grace=20).up()
    node.submit({"blocks": flows.blocks(1.5)})
    until(lambda: any(line.key.startswith("block") for line in node.lines()))
    until_draining(node, pod)
    assert get(pod.port, "/ready") == 503
    assert pod.wait(time.monotonic()).code == 0, pod.errors()


def test_beside_busy_writers_of_other_processes(node):
    pod = node.worker(http=True, grace=20).up()
    node.submit({f"r{n}": flows.chain(n, 1, 3.0) for n in range(20)})
    node.until_begun(*(f"r{n}" for n in range(20)))
    program = [sys.executable, str(PROGRAMS / "drain_writer.py"), node.address]
    writers = [node.pod(program) for _ in range(3)]
    until(lambda: all(writer.out.read_text() for writer in writers))
    until_draining(node, pod)
    for writer in writers:
        writer.kill()
    assert pod.wait(time.monotonic()).code == 0, pod.errors()


def test_what_was_claimed_and_has_not_begun_goes_back_at_once_and_is_not_charged(node):
    """A run's second life begins when its journal is read; a loop that is blocked meanwhile cannot begin it."""
    count = 30
    ids = {f"r{n}" for n in range(count)}
    before = node.worker(grace=2).up()
    node.submit({id: flows.gated("gate") for id in ids})
    until(lambda: {line.run for line in node.lines() if line.key.startswith("wait_for")} == ids)
    assert before.delete(5).code == 0, before.errors()
    node.submit({"blocks": flows.blocks_itself(4.0)})
    pod = node.worker(grace=20).up()
    until(lambda: node.lines("blocked"))
    until(lambda: held(node, pod) == count + 1)
    until_draining(node, pod)
    runs = node.image().runs
    assert {(run["status"], run["worker"]) for id, run in runs.items() if id in ids} == {("queued", None)}
    assert runs["blocks"]["worker"] is not None
    assert {(run["deaths"], run["interruptions"]) for id, run in runs.items() if id in ids} == {(0, 1)}
    assert node.lines(pid=pod.pid) == []
    other = node.worker().up()
    until(lambda: held(node, other) == count)
    (node.folder / "gate").touch()
    assert pod.wait(time.monotonic()).code == 0, pod.errors()
    node.until_all_done()
    node.assert_nothing_recorded_was_redone()
    node.assert_no_deaths()
    reports = {report.pid: report for report in node.drains()}
    assert reports[pod.pid].given_back == count
