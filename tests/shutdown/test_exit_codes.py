"""Exit codes of processes that are asked to end.

Kubernetes counts a Job whose pod exits with 0 as done and never starts it again. So an interrupted run exits
with 75, "try again".
"""

import signal
import sys
import time

import pytest
from kubelet import (
    LONG,
    PASSING,
    PROGRAMS,
    Node,
    Pod,
    assert_deadline_ended,
    at_the_gate,
    flows,
    gated,
    get,
    passing_grace,
)

from outlast.shutdown.signal_thread import SAME_SECONDS


def outlast_run(node: Node, flow: str = "gated", *arguments: str, **settings: object) -> Pod:
    target = f"{PROGRAMS / 'drain_flows.py'}:{flow}"
    return node.outlast(
        "run", target, *arguments, "--id", "r0", "--store", node.address, **settings
    )


def run_of_gated(node: Node) -> Pod:
    return outlast_run(node, "gated", "gate")


def run_of_a_program(node: Node) -> Pod:
    return node.pod(
        [sys.executable, "-W", "error", str(PROGRAMS / "drain_alone.py"), node.address, "r0"]
    )


both = pytest.mark.parametrize(
    "start",
    [pytest.param(run_of_gated, id="outlast-run"), pytest.param(run_of_a_program, id="run()")],
)


def interrupt_twice(node: Node, pod: Pod) -> None:
    """Send SIGINT, wait until it has begun a drain, and send another one, which leaves at once."""
    pod.send_signal(signal.SIGINT)
    node.wait_until_draining(pod)
    time.sleep(2 * SAME_SECONDS)  # two signals in less time are one
    assert not pod.has_ended
    pod.send_signal(signal.SIGINT)
    assert_deadline_ended(pod.wait(), 130)
    assert "SIGINT again: stopping the steps in flight. They will run again." in pod.errors


@pytest.mark.parametrize(
    ("start", "number", "code"),
    [
        pytest.param(start, number, code, id=f"{start.__name__}-{code}")
        for start in (run_of_gated, run_of_a_program)
        for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130))
        if LONG or (start is run_of_gated) == (code == 75)
    ],
)
def test_an_interrupted_job_exits_with_its_code_and_the_next_pod_continues(
    node, start, number, code
):
    first = start(node)
    node.wait_until_begun(*at_the_gate(1))
    first.send_signal(number)
    node.wait_until_draining(first)
    node.open_gate()
    assert first.wait() == code, first.errors
    second = start(node)
    assert second.wait() == 0, second.errors
    assert second.output.strip().strip('"') == "gate"
    assert node.redone() == {}
    assert len(node.lines()) == 3
    assert len(node.lines(pid=second.pid)) == 1
    node.assert_no_deaths()


@both
def test_a_second_sigterm_says_that_it_changes_nothing(node, start):
    pod = start(node)
    node.wait_until_begun(*at_the_gate(1))
    pod.send_signal(signal.SIGTERM)
    node.wait_until_draining(pod)
    time.sleep(2 * SAME_SECONDS)  # two signals in less time are one
    pod.send_signal(signal.SIGTERM)
    pod.wait_until(lambda: "SIGTERM while draining changes nothing: steps have " in pod.errors)
    assert "To exit at once, press Ctrl-C or send SIGINT twice." in pod.errors
    time.sleep(2 * SAME_SECONDS)
    pod.send_signal(signal.SIGINT)
    pod.wait_until(lambda: "press Ctrl-C or send SIGINT once more." in pod.errors)
    assert not pod.has_ended
    node.open_gate()
    assert pod.wait() == 75, pod.errors


@both
def test_a_finished_job_exits_with_0(node, start):
    node.open_gate()
    pod = start(node)
    assert pod.wait() == 0, pod.errors
    assert pod.output.strip().strip('"') == "gate"


def test_a_job_terminated_after_its_run_has_ended_exits_with_0(node):
    """As ever after the beginning of a drain, a second SIGTERM does not change the exit code."""
    program = str(PROGRAMS / "drain_at_the_end.py")
    pod = node.pod([sys.executable, "-W", "error", program, node.address], http=True)
    assert pod.wait() == 0, pod.errors
    assert pod.output.strip() == "1"


def test_a_second_sigint_leaves_at_once_and_the_next_pod_continues(node):
    first = run_of_gated(node)
    node.wait_until_begun(*at_the_gate(1))
    interrupt_twice(node, first)
    node.open_gate()
    second = run_of_gated(node)
    assert second.wait() == 0, second.errors
    node.assert_no_deaths()


def test_a_terminated_worker_exits_with_0(node):
    pod = node.worker().up()
    assert pod.end() == 0, pod.errors


def test_a_worker_terminated_before_it_has_started_exits_with_0_and_claims_nothing(node):
    node.submit({"r": flows.chain(0, 1, 0.0)})
    pod = node.worker(module="drain_app.py", http=True)  # its lifespan waits for a file
    pod.wait_until(lambda: get(pod.port, "/ready") == 503)
    node.open_gate("clean")
    assert pod.end() == 0, pod.errors
    assert node.snapshot().runs["r"]["lives"] == 0


def test_a_second_sigint_to_a_worker_leaves_at_once(node):
    pod = node.worker().up()
    node.submit(gated(1))
    node.wait_until_begun(*at_the_gate(1))
    interrupt_twice(node, pod)
    second = node.worker().up()
    node.wait_until(lambda: node.worker_of("r0") == second.pid)
    node.assert_no_deaths()


def test_a_worker_interrupted_once_exits_with_130(node):
    pod = node.worker().up()
    pod.send_signal(signal.SIGINT)
    assert pod.wait() == 130, pod.errors


def test_a_terminated_job_with_a_hung_step_exits_with_75(node):
    first = outlast_run(node, "hangs", **PASSING)
    node.wait_until_begun(("r0", "hang_in_a_thread#1"))
    first.terminate()
    node.wait_until_draining(first)
    first.let_pass(passing_grace.UNTIL_STEPS_ARE_LEFT)
    assert first.wait() == 75, first.errors
    second = outlast_run(node, "hangs")
    assert second.wait() == 0, second.errors
    node.assert_no_deaths()
