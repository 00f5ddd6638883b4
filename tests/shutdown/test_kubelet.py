"""Rolling updates as Kubernetes does them: probes, preStop hooks, SIGTERM and SIGKILL for real workers."""

import signal
import threading

from kubelet import (
    LONG,
    PASSING,
    Node,
    Service,
    at_the_gate,
    flows,
    gated,
    get,
    passing_grace,
    wait_until,
)

from outlast.cli.os_user import os_user
from support.waiting import WAIT_SECONDS


def assert_results(node: Node, count: int) -> None:
    """Check that nothing was lost or added, of runs that `gated` made."""
    runs = node.wait_until_all_done().runs
    assert {id: run["value"] for id, run in runs.items()} == {
        f"r{n}": '"gate"' for n in range(count)
    }


def test_no_step_is_redone_after_sigterm_with_enough_grace(node):
    count = 200 if LONG else 16
    first = node.worker(concurrency=count).up()
    node.submit(gated(count))
    node.wait_until_begun(*at_the_gate(count))
    second = node.worker(concurrency=count).up()
    first.terminate()
    node.wait_until_draining(first)
    node.open_gate()
    assert first.wait() == 0, first.errors
    assert node.under_way(first.pid) == set()
    assert_results(node, count)
    assert node.keys(pid=second.pid) == {(f"r{n}", "add#2") for n in range(count)}
    assert node.redone() == {}
    assert len(node.lines()) == 3 * count
    node.assert_no_deaths()
    (report,) = node.drains()
    assert (report.released, report.left, report.checkpointed) == (count, [], 0)
    assert report.recoveries["count"] == count


def test_no_step_in_a_thread_is_redone_after_sigterm(node):
    first = node.worker().up()
    node.submit({f"r{n}": flows.gated_in_thread("gate") for n in range(8)})
    node.wait_until_begun(*((f"r{n}", "wait_in_thread#1") for n in range(8)))
    second = node.worker().up()
    first.terminate()
    node.wait_until_draining(first)
    node.open_gate()
    assert first.wait() == 0, first.errors
    assert_results(node, 8)
    assert node.redone() == {}
    assert len(node.lines(pid=second.pid)) == 8


def test_only_steps_under_way_are_redone_after_sigkill(node):
    first = node.worker().up()
    node.submit(gated(8))
    node.wait_until_begun(*at_the_gate(8))
    first.kill()
    node.open_gate()
    node.worker().up()
    assert_results(node, 8)
    assert node.redone() == dict.fromkeys(at_the_gate(8), 2)
    node.assert_nothing_recorded_was_redone()


def test_only_the_step_that_outlasts_the_grace_is_stopped_and_redone(node):
    first = node.worker(**PASSING).up()
    node.submit(gated(1))
    node.wait_until_begun(*at_the_gate(1))
    second = node.worker().up()
    first.terminate()
    node.wait_until_draining(first)
    first.let_pass(passing_grace.UNTIL_STEPS_STOP)
    assert first.wait() == 0, first.errors
    node.wait_until(lambda: node.worker_of("r0") == second.pid)
    run = node.snapshot().runs["r0"]
    assert (run["deaths"], run["interruptions"]) == (0, 1)
    (report,) = node.drains()
    assert (report.checkpointed, report.left) == (1, [])
    node.open_gate()
    assert_results(node, 1)
    assert node.redone() == {("r0", "wait_for#1"): 2}


def test_no_request_reaches_a_worker_that_is_not_ready(node):
    """A preStop hook waits until no request is sent to the pod. Until SIGTERM the worker stays ready."""
    node.submit(gated(8))
    pods = [node.worker(http=True).up() for _ in range(2)]
    with Service(node.pods) as service:
        wait_until(lambda: all(service.answers[pod.pid, 200] for pod in pods))
        third = node.worker(http=True)
        wait_until(lambda: service.answers[third.pid, 200])
        for pod in pods:
            service.remove(pod)
            assert pod.is_ready
            pod.terminate()
        node.open_gate()
        assert [pod.wait() for pod in pods] == [0, 0]
        assert service.failures == {}
    assert_results(node, 8)
    assert node.redone() == {}


def test_a_drained_process_leaves_the_garbage_collector_little_to_do(node):
    """No thread can end a process whose interpreter exits, so what is left to do there must be short."""
    pod = node.worker(module="drain_frozen.py").up()
    assert pod.end() == 0, pod.errors
    assert int((node.folder / "collected").read_text()) < 2_000


def test_a_pod_is_not_ready_before_it_works_and_while_it_drains(node):
    pod = node.worker(module="drain_app.py", http=True)
    pod.wait_until(lambda: get(pod.port, "/ready") == 503)
    assert get(pod.port, "/health") == 200, "a worker that starts is alive"
    node.open_gate("may-start")
    pod.up()
    node.submit(gated(1))
    node.wait_until_begun(*at_the_gate(1))
    pod.terminate()
    pod.wait_until(lambda: get(pod.port, "/ready") == 503)
    assert get(pod.port, "/health") == 200, "a worker that drains is alive"
    node.open_gate("clean")
    node.open_gate()
    assert pod.wait() == 0, pod.errors
    node.worker().up()
    assert_results(node, 1)


def test_sigterm_joins_the_drain_that_post_shutdown_began(node):
    first = node.worker(http=True).up()
    node.submit(gated(4))
    node.wait_until_begun(*at_the_gate(4))
    assert get(first.port, "/shutdown", "POST") == 202
    node.wait_until_draining(first)
    first.terminate()
    node.open_gate()
    assert first.wait() == 0, first.errors
    node.worker().up()
    assert_results(node, 4)
    assert node.redone() == {}
    (report,) = node.drains()
    assert report.reason.startswith("POST /shutdown")


def test_outlast_drain_wait_returns_when_the_worker_is_gone(node):
    first = node.worker(http=True).up()
    node.submit(gated(4))
    node.wait_until_begun(*at_the_gate(4))
    hook = node.outlast("drain", "--wait", "--store", node.address)
    node.wait_until_draining(first)
    node.open_gate()
    assert hook.wait() == 0, hook.describe()
    assert node.ask("SELECT id FROM workers WHERE pid = ?", first.pid) == []
    assert first.end() == 0, first.errors
    (report,) = node.drains()
    assert (report.reason, report.released) == (f"outlast drain (by {os_user()})", 4), report
    node.worker().up()
    assert_results(node, 4)
    assert node.redone() == {}


def test_waiting_runs_are_handed_over_without_an_interruption(node):
    first = node.worker(linger=60).up()
    node.submit({f"s{n}": flows.receiver(n) for n in range(5)})
    node.wait_until(lambda: len(node.lines("after")) == 5)
    second = node.worker().up()
    assert first.end() == 0, first.errors

    async def send(app):
        for n in range(5):
            await app.send(f"s{n}", "go", 10)

    node.do(send)
    runs = node.wait_until_all_done().runs
    assert {id: run["value"] for id, run in runs.items()} == {
        f"s{n}": str(n + 12) for n in range(5)
    }
    assert {run["interruptions"] for run in runs.values()} == {0}
    assert node.redone() == {}
    assert len(node.lines(pid=second.pid)) == 5


def test_two_signals_and_three_requests_at_once_are_one_drain(node):
    first = node.worker(http=True).up()
    node.submit(gated(5))
    node.wait_until_begun(*at_the_gate(5))
    requests = [
        threading.Thread(target=get, args=(first.port, "/shutdown", "POST")) for _ in range(3)
    ]
    first.send_signal(signal.SIGTERM)
    for request in requests:
        request.start()
    first.send_signal(signal.SIGTERM)
    for request in requests:
        request.join(WAIT_SECONDS)
    node.open_gate()
    assert first.wait() == 0, first.errors
    assert len(node.drains()) == 1
    node.worker().up()
    assert_results(node, 5)
    assert node.redone() == {}
