"""What a process that was told to end says to whoever started it. A Kubernetes Job whose pod exits 0 counts as done and is never started
again: so a run that was interrupted ends with 75, "try again"."""

import signal
import sys
import time

import pytest
from kubelet import PROGRAMS, SLACK, Ended, Node, Pod, flows, get, until

from outlast.drain.process import HURRY_SECONDS_MAX

STEPS = 6


def outlast_run(node: Node, pause: float, **settings: object) -> Pod:
    command = [
        "-m", "outlast", "run", f"{PROGRAMS / 'drain_flows.py'}:chain", "0", str(STEPS), str(pause),
        "--id", "job", "--store", node.address,
    ]  # fmt: skip
    return node.pod([sys.executable, "-W", "error", *command], **settings)


def run_of_a_program(node: Node, pause: float, **settings: object) -> Pod:
    words = [str(PROGRAMS / "drain_alone.py"), node.address, "job", str(STEPS), str(pause)]
    return node.pod([sys.executable, "-W", "error", *words], **settings)


def assert_left_at_once(pod: Pod, ended: Ended) -> None:
    """With 130; an interpreter that a busy machine gives no turn for so long is ended by its timer."""
    by_timer = ended.code == -signal.SIGALRM and ended.seconds > HURRY_SECONDS_MAX
    assert ended.code == 130 or by_timer, pod.errors()
    assert ended.seconds < 15, "half of the grace"


both = pytest.mark.parametrize(
    "start", [pytest.param(outlast_run, id="outlast-run"), pytest.param(run_of_a_program, id="run()")]
)


@both
def test_a_job_that_is_terminated_ends_with_75_and_its_next_pod_goes_on(node, start):
    first = start(node, 0.3, grace=5)
    until(lambda: len(node.lines("after")) >= 2)
    ended = first.delete(8)
    assert (ended.code, ended.killed) == (75, False), first.errors()
    assert ended.seconds < 4.5, "the end of a step is all there is to wait for"
    second = start(node, 0.3)
    assert second.process.wait(30) == 0, second.errors()
    assert second.out.read_text().strip() == str(STEPS)
    assert node.redone() == {}
    assert len(node.lines()) == STEPS
    assert node.lines(pid=first.pid)
    node.assert_no_deaths()


@both
def test_a_job_that_has_ended_ends_with_0(node, start):
    pod = start(node, 0.0)
    assert pod.process.wait(30) == 0, pod.errors()
    assert pod.out.read_text().strip() == str(STEPS)


@both
def test_interrupted_at_the_terminal_it_ends_with_130_and_goes_on_later(node, start):
    first = start(node, 0.3, grace=5)
    until(lambda: len(node.lines("after")) >= 2)
    ended = first.wait(first.signal(signal.SIGINT))
    assert ended.code == 130, first.errors()
    second = start(node, 0.3)
    assert second.process.wait(30) == 0, second.errors()
    assert node.redone() == {}


@both
def test_a_second_interrupt_leaves_at_once_and_the_run_goes_on_later(node, start):
    first = start(node, 60.0, grace=30)
    until(node.lines)
    first.signal(signal.SIGINT)
    time.sleep(1.0)  # a person's two, and a machine that is slow to hear the first
    assert not first.ended
    ended = first.wait(first.signal(signal.SIGINT))
    print(f"gone {ended.seconds:.2f} s after the second")
    assert_left_at_once(first, ended)
    run = node.image().runs["job"]
    assert (run["status"], run["worker"], run["deaths"]) == ("queued", None, 0), "it was released"
    second = start(node, 60.0)
    until(lambda: node.lines(pid=second.pid))


def test_a_worker_that_is_terminated_ends_with_0(node):
    pod = node.worker().up()
    ended = pod.wait(pod.signal(signal.SIGTERM))
    assert ended.code == 0, pod.errors()
    assert ended.seconds < 7, "there was nothing to wait for"


def test_a_worker_that_is_terminated_before_it_has_started_ends_with_0_in_its_grace_and_claims_nothing(node):
    node.submit({"r": flows.chain(0, 1, 0.0)})
    pod = node.worker(module="drain_app.py", http=True, grace=2)  # its lifespan waits for a file
    until(lambda: get(pod.port, "/ready") == 503)
    at = pod.signal(signal.SIGTERM)
    (node.folder / "clean").touch()
    ended = pod.wait(at)
    assert ended.code == 0, pod.errors()
    assert ended.seconds < 2 + SLACK
    assert node.image().runs["r"]["lives"] == 0


def test_a_worker_that_is_interrupted_ends_with_130_and_a_second_interrupt_leaves_at_once(node):
    pod = node.worker(grace=30).up()
    node.submit({"long": flows.chain(0, 2, 60.0), "short": flows.chain(0, 1, 0.0)})
    node.until_begun("long")
    pod.signal(signal.SIGINT)
    until(lambda: node.ask("SELECT 1 FROM workers WHERE draining"))
    time.sleep(0.3)
    assert not pod.ended
    ended = pod.wait(pod.signal(signal.SIGINT))
    assert_left_at_once(pod, ended)
    run = node.image().runs["long"]
    assert (run["status"], run["deaths"]) == ("queued", 0)
    second = node.worker().up()
    until(lambda: node.worker_of("long") == second.pid)


def test_a_terminated_job_whose_step_hangs_ends_with_75_too(node):
    command = [
        "-m",
        "outlast",
        "run",
        f"{PROGRAMS / 'drain_flows.py'}:hangs",
        "--id",
        "job",
        "--store",
        node.address,
    ]
    first = node.pod([sys.executable, "-W", "error", *command], grace=2)
    until(lambda: any(line.key.startswith("hang") for line in node.lines()))
    ended = first.wait(first.signal(signal.SIGTERM))
    assert ended.code == 75, first.errors()
    assert ended.seconds < 2 + SLACK
    second = node.pod([sys.executable, "-W", "error", *command])
    assert second.process.wait(30) == 0, second.errors()
    node.assert_no_deaths()
