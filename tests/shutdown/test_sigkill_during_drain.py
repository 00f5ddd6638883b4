"""SIGKILL in each layer of a drain.

Another worker finishes everything, nothing recorded is redone, no run is charged with a death, and the worker
that sweeps writes the report.
"""

import json
import signal
import time
import urllib.request

from kubelet import LONG, PASSING, Node, Pod, flows, passing_grace

from support.seeds import seeded_random
from support.waiting import WAIT_SECONDS

RUNS = 4


def start_workers(node: Node, *, bad: object = None, **pod: object) -> tuple[Pod, Pod]:
    """Start a worker with runs under way, and an idle one."""
    first = node.worker(**pod).up()
    node.submit({f"r{n}": flows.gated(f"gate-{n}") for n in range(RUNS)})
    node.submit({"s": flows.receiver(0), "g": flows.gated("gate"), **({"bad": bad} if bad else {})})
    node.wait_until_begun(("g", "wait_for#1"), *((f"r{n}", "wait_for#1") for n in range(RUNS)))
    if bad:
        node.wait_until_begun(("bad", "swallow_cancellation#1"))
    return first, node.worker().up()


def open_gates(node: Node, *names: str) -> None:
    for name in names or ("gate", *(f"gate-{n}" for n in range(RUNS))):
        node.open_gate(name)


def kill_and_check(node: Node, first: Pod, *, deaths: bool = False, reported: bool = False) -> None:
    """Kill the first worker and check what the second one makes of it."""
    first.kill()
    assert first.wait() == -signal.SIGKILL
    recorded = node.snapshot().recorded()
    executing = node.under_way(first.pid)
    open_gates(node)
    node.do(lambda app: app.send("s", "go", 10))
    runs = node.wait_until_all_done().runs
    assert {id: run["value"] for id, run in runs.items() if id.startswith("r")} == {
        f"r{n}": f'"gate-{n}"' for n in range(RUNS)
    }
    assert (runs["s"]["value"], runs["g"]["value"]) == ("12", '"gate"')
    assert not recorded & set(node.redone()), "recorded steps were redone"
    assert set(node.redone()) <= executing | unrecorded(node, first)
    node.assert_nothing_recorded_was_redone()
    if not deaths:
        node.assert_no_deaths()
        # The second worker closes the report of the first when it sweeps it.
        node.wait_until(lambda: [report.seconds for report in node.drains()] != [None])
        (report,) = node.drains()
        assert report.pid == first.pid
        assert report.cut_short or reported


def unrecorded(node: Node, first: Pod) -> set[tuple[str, str]]:
    """Return the steps that ended in the first worker and were recorded by another one."""
    fences = {(line.run, line.key): line.fence for line in node.lines("after", first.pid)}
    return {
        step for step, fence in node.snapshot().fences().items() if fences.get(step, fence) < fence
    }


def test_runs_continue_after_sigkill_together_with_sigterm(node):
    """The store may not know of the drain yet. Then it is a death of runs that have recorded something."""
    first, _ = start_workers(node)
    node.wait_until(lambda: len({id for id, _ in node.snapshot().recorded()}) == RUNS + 2)
    first.terminate()
    kill_and_check(node, first, deaths=True)


def test_runs_continue_after_sigkill_after_layer_1(node):
    first, _ = start_workers(node)
    first.terminate()
    node.wait_until_draining(first)
    kill_and_check(node, first)


def test_runs_continue_after_sigkill_in_layer_2_with_some_released(node):
    first, second = start_workers(node, http=True)
    first.terminate()
    node.wait_until_draining(first)
    open_gates(node, "gate-0", "gate-1")
    node.wait_until(lambda: node.keys(pid=second.pid) >= {("r0", "add#2"), ("r1", "add#2")})
    with urllib.request.urlopen(
        f"http://127.0.0.1:{first.port}/drain", timeout=WAIT_SECONDS
    ) as answer:
        view = json.load(answer)
    assert (view["draining"], view["layer"]) == (True, "boundary"), view
    assert {"g", "r2"} <= {one["id"] for one in view["under_way"]}, view
    kill_and_check(node, first)


def test_step_told_to_stop_continues_after_sigkill_in_layer_3(node):
    first, _ = start_workers(node, bad=flows.swallows(), **PASSING)
    first.terminate()
    node.wait_until_draining(first)
    first.let_pass(passing_grace.UNTIL_STEPS_STOP)
    first.wait_until(lambda: node.lines("swallowed", first.pid))
    kill_and_check(node, first)
    assert node.snapshot().runs["bad"]["value"] == '"swallowed"'


def test_nothing_is_charged_after_sigkill_in_clean_up(node):
    node.open_gate("may-start")
    first, _ = start_workers(node, module="drain_app.py")
    first.terminate()
    node.wait_until_draining(first)
    open_gates(node)
    first.wait_until(lambda: node.lines("clean-up", first.pid))
    assert node.under_way(first.pid) == set()
    kill_and_check(node, first, reported=True)  # the report was stored before the clean-up
    assert node.redone() == {}
    (report,) = node.drains()
    assert report.left == []


def test_runs_continue_after_sigkill_at_any_moment_after_layer_1(node):
    kills, count, rounds = (25, 60, 6) if LONG else (2, 8, 1)
    moments = seeded_random("when to kill")
    node.submit({f"r{n}": flows.mixed(n, rounds) for n in range(count)})
    pod = node.worker(concurrency=100).up()
    for _ in range(kills):
        following = node.worker(concurrency=100).up()
        pod.terminate()
        node.wait_until(lambda pid=pod.pid: node.ask("SELECT 1 FROM drains WHERE pid = ?", pid))
        time.sleep(moments.choice((0.0, 0.02, 0.1, 0.3)) * moments.random() * 2)
        pod.kill()
        pod = following
    runs = node.wait_until_all_done().runs
    assert {id: run["value"] for id, run in runs.items() if run["parent"] is None} == {
        f"r{n}": str(n + 10 * rounds) for n in range(count)
    }
    node.assert_nothing_recorded_was_redone()
    node.assert_no_deaths()
    reports = node.drains()
    print(f"{kills} kills: {sum(report.cut_short for report in reports)} drains were cut short")
    assert len(reports) == kills
    assert all(report.cut_short or report.seconds is not None for report in reports), (
        "none stays open"
    )
