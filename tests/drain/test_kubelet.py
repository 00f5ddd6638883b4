"""Kubernetes, faithfully: real workers in pods that a kubelet starts, probes and ends. See kubelet.py."""

import signal
import sys
import threading

from kubelet import MINIMUM_GRACE, PROPAGATION, SLACK, Node, Service, flows, get, until


def chains(count: int, steps: int, pause: float) -> dict:
    return {f"r{n}": flows.chain(n, steps, pause) for n in range(count)}


def assert_results(node: Node, count: int, steps: int) -> None:
    """Nothing is lost, and nothing is added."""
    runs = node.until_all_done().runs
    assert {id: run["value"] for id, run in runs.items()} == {f"r{n}": str(n + steps) for n in range(count)}


def test_with_grace_enough_no_step_is_redone(node):
    first = node.worker(http=True, grace=6).up()
    node.submit(chains(30, 6, 0.3))
    until(lambda: len(node.lines("after")) >= 20)
    ended = first.delete(8)
    assert (ended.code, ended.killed) == (0, False), first.errors()
    assert node.under_way(first.pid) == set(), "what had begun has ended"
    second = node.worker(http=True).up()
    assert_results(node, 30, 6)
    assert node.lines(pid=second.pid), "some of it was handed over"
    assert node.redone() == {}
    node.assert_no_deaths()
    assert len(node.lines()) == 30 * 6
    assert first.liveness_failures == 0


def test_steps_in_threads_are_not_redone_either(node):
    first = node.worker(grace=6).up()
    node.submit({f"r{n}": flows.chain_in_threads(n, 3, 0.4) for n in range(8)})
    until(lambda: len(node.lines()) >= 8)
    node.worker().up()
    assert first.delete(8).code == 0, first.errors()
    assert_results(node, 8, 3)
    assert node.redone() == {}


def test_with_no_grace_only_the_steps_under_way_are_redone(node):
    first = node.worker().up()
    node.submit(chains(20, 4, 0.3))
    until(lambda: len(node.lines("after")) >= 40 and len(node.under_way(first.pid)) >= 10)
    ended = first.delete(0)
    assert (ended.code, ended.killed) == (-signal.SIGKILL, True)
    assert node.under_way(first.pid)
    node.worker().up()
    assert_results(node, 20, 4)
    # A body that has just ended may be killed before its entry is durable: one step a run, and none that was recorded.
    redone = [run for run, _ in node.redone()]
    assert len(redone) == len(set(redone))
    assert set(node.redone().values()) <= {2}
    node.assert_nothing_recorded_was_redone()


def test_a_step_that_outlasts_the_grace_is_told_to_stop_and_only_it_is_redone(node):
    first = node.worker(grace=3).up()
    node.submit({"long": flows.chain(0, 2, 6.0), **chains(5, 3, 0.2)})
    node.until_begun("long", "r0", "r4")
    node.worker().up()
    ended = first.delete(3 + SLACK)
    assert (ended.code, ended.killed) == (0, False), first.errors()
    until(lambda: node.worker_of("long") == node.pods[1].pid)
    assert set(node.redone()) <= {("long", "add#1")}
    runs = node.image().runs
    assert (runs["long"]["deaths"], runs["long"]["interruptions"]) == (0, 1)
    (report,) = node.drains()
    assert report.checkpointed == 1
    assert report.left == []


def test_the_time_of_a_pre_stop_command_counts_into_the_grace(node):
    """Two seconds are left for SIGTERM even so; the worker, which believes in its own grace, must fit in."""
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    first = node.worker(grace=MINIMUM_GRACE, pre_stop=slow).up()
    node.submit(chains(10, 24, 0.2))
    node.until_begun(*(f"r{n}" for n in range(10)))
    second = node.worker().up()
    ended = first.delete(0.5)
    assert first.pre_stop_code is None, "it was cut off"
    assert (ended.code, ended.killed) == (0, False), first.errors()
    assert_results(node, 10, 24)
    assert node.redone() == {}
    assert node.lines(pid=second.pid), "some of it was handed over"


def test_no_request_reaches_a_worker_that_is_not_ready(node):
    """With a preStop that lasts until its endpoint is gone everywhere: it is ready until SIGTERM."""
    wait = ["sleep", str(PROPAGATION * 3)]
    node.submit(chains(20, 6, 0.2))
    pods = [node.worker(http=True, grace=5, pre_stop=wait).up() for _ in range(2)]
    with Service(lambda: node.pods) as service:
        until(lambda: all(service.answers[pod.pid, 200] for pod in pods))
        third = node.worker(http=True, pre_stop=wait)
        until(lambda: service.answers[third.pid, 200])
        for pod in pods:
            ended = pod.delete(8)
            assert (ended.code, ended.killed) == (0, False), pod.errors()
        assert service.astray == {}
    assert_results(node, 20, 6)
    assert node.redone() == {}


def test_without_a_pre_stop_requests_go_astray_until_the_endpoint_is_gone(node):
    """What the test above would see: nothing in the pod can make up for endpoints that travel."""
    pod = node.worker(http=True, grace=5).up()
    node.submit(chains(1, 1, 1.5))
    node.until_begun("r0")
    with Service(lambda: node.pods) as service:
        until(lambda: service.answers[pod.pid, 200])
        assert pod.delete(8).code == 0, pod.errors()
        assert set(service.astray) == {(pod.pid, 503)}


def test_a_drained_process_leaves_the_collector_nothing_to_go_through(node):
    """On its way out no thread can end it: what is left to do there must be short."""
    pod = node.worker(module="drain_frozen.py", grace=5).up()
    assert pod.delete(8).code == 0, pod.errors()
    assert int((node.folder / "collected").read_text()) < 2_000


def test_a_pod_is_not_ready_before_it_can_work_nor_from_the_moment_it_drains(node):
    pod = node.worker(module="drain_app.py", http=True, grace=6)
    until(lambda: get(pod.port, "/ready") == 503)
    assert get(pod.port, "/health") == 200, "it starts: that is no reason to restart it"
    (node.folder / "may-start").touch()
    pod.up()
    node.submit(chains(1, 1, 1.5))
    node.until_begun("r0")
    at = pod.signal(signal.SIGTERM)
    until(lambda: get(pod.port, "/ready") == 503, seconds=1.0)
    assert get(pod.port, "/health") == 200, "it drains: that is no reason to restart it"
    (node.folder / "clean").touch()
    assert pod.wait(at).code == 0, pod.errors()
    assert_results(node, 1, 1)


def test_post_shutdown_as_pre_stop_begins_the_one_drain_that_sigterm_then_joins(node):
    first = node.worker(http=True, grace=6).up()
    code = (
        f"import urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:{first.port}/shutdown', method='POST'))"
        "; import time; time.sleep(0.3)"
    )
    first._pre_stop = [sys.executable, "-c", code]
    node.submit(chains(10, 3, 0.6))
    node.until_begun("r9")
    node.worker().up()
    ended = first.delete(8)
    assert (first.pre_stop_code, ended.code, ended.killed) == (0, 0, False), first.errors()
    assert_results(node, 10, 3)
    assert node.redone() == {}
    (report,) = node.drains()
    assert "shutdown" in report.reason.lower() or "http" in report.reason.lower(), report.reason


def test_outlast_drain_as_pre_stop_returns_when_the_worker_is_gone(node):
    drain = [sys.executable, "-W", "error", "-m", "outlast", "drain", "--wait", "--store", node.address]
    first = node.worker(http=True, grace=6, pre_stop=drain).up()
    node.submit(chains(10, 3, 1.5))  # longer than a busy machine takes to start the command
    node.until_begun("r9")
    ended = first.delete(8)
    said = (node.folder / "pre_stop").read_text()
    assert (first.pre_stop_code, ended.code, ended.killed) == (0, 0, False), said + first.errors()
    assert ended.seconds < 1.5, "SIGTERM found nobody"
    (report,) = node.drains()
    assert (report.reason, report.released) == ("outlast drain", 10), report
    node.worker().up()
    assert_results(node, 10, 3)
    assert node.redone() == {}


def test_a_worker_whose_loop_stands_still_is_restarted_for_its_liveness_and_its_run_goes_on(node):
    first = node.worker(http=True, grace=2, health_stall=0.6).up()
    node.submit({"r": flows.blocks()})
    node.worker().up()
    until(lambda: any("block" in line.key for line in node.lines()))
    assert node.worker_of("r") == first.pid
    ended = first.restart_if_dead(2 + SLACK)
    assert not ended.killed, "the worker's own deadline came before the kubelet's"
    assert node.until_all_done().runs["r"]["value"] == '"blocked"'
    node.assert_no_deaths()
    assert node.redone() == {("r", "block_the_loop#1"): 2}


def test_sleepers_are_handed_over_without_an_interruption(node):
    first = node.worker(grace=6, linger=60).up()
    node.submit({f"s{n}": flows.sleeper(n, 10.0) for n in range(5)})
    until(lambda: len(node.lines("after")) == 5)
    second = node.worker().up()
    ended = first.delete(8)
    assert ended.code == 0, first.errors()
    assert ended.seconds < 5, "there was nothing to wait for"
    runs = node.until_all_done().runs
    assert {run["interruptions"] for run in runs.values()} == {0}
    assert node.redone() == {}
    assert len(node.lines(pid=second.pid)) == 5


def test_two_signals_and_a_request_at_once_are_one_drain(node):
    first = node.worker(http=True, grace=6).up()
    node.submit(chains(5, 2, 0.8))
    node.until_begun("r4")
    asks = [threading.Thread(target=get, args=(first.port, "/shutdown", "POST")) for _ in range(3)]
    at = first.signal(signal.SIGTERM)
    for ask in asks:
        ask.start()
    first.signal(signal.SIGTERM)
    for ask in asks:
        ask.join()
    assert first.wait(at).code == 0, first.errors()
    assert len(node.drains()) == 1
    node.worker().up()
    assert_results(node, 5, 2)
    assert node.redone() == {}
