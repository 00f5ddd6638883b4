"""Rolling restarts with many runs under way: none is lost, and no step is redone.

`make soak` has 500 runs under way, also with the default settings. `pytest -s` prints the figures.
"""

import time

import pytest
from kubelet import LONG, Node, flows

WORKERS = 4 if LONG else 2
RUNS = 500 if LONG else 16
PRODUCTION = {
    "ramp": 5,
    "returned_rate": 100,
    "heartbeat": 0.2,
    "lease": 30,
    "linger": 1,
    "grace": 30,
}
"""The default settings. A worker starts gently (`ramp`), so a rolling update waits between two of them."""
SLOTS = RUNS * 3 // 2 // WORKERS
"""Of each worker. A fifth of them is left to new work, so with none to spare returned runs wait until others end."""


def print_recoveries(node: Node) -> None:
    """Print how long runs were without a worker, and check that the drain reports count all of them."""
    seconds = sorted(seconds for (seconds,) in node.ask("SELECT seconds FROM recoveries"))
    p50, p95 = (seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.95))
    print(
        f"{len(seconds)} recoveries: median {p50:.3f} s, p95 {p95:.3f} s, most {seconds[-1]:.3f} s"
    )
    reports = node.drains()
    for report in reversed(reports):
        print(f"drained in {report.seconds:.2f} s, layers {report.layers}, {report.recoveries}")
    assert sum(report.recoveries.get("count", 0) for report in reports) == len(seconds)


@pytest.mark.parametrize(
    ("settings", "min_ready_seconds"),
    [
        pytest.param({}, 0, id="at-once"),
        *([pytest.param(PRODUCTION, 5, id="default-settings")] if LONG else []),
    ],
)
def test_a_rolling_restart_loses_and_redoes_nothing(node, settings, min_ready_seconds):
    """Each worker is replaced in turn, the new one first, as with maxSurge. The runs go on until it is over."""
    options = {"concurrency": SLOTS, **settings}
    old = [node.worker(**options) for _ in range(WORKERS)]
    for pod in old:
        pod.up()
    node.submit({f"r{n}": flows.beats(0.2 + n % 7 * 0.05) for n in range(RUNS)})
    node.wait_until(lambda: node.statuses() == {"running": RUNS})
    for pod in old:
        node.worker(**options).up()
        time.sleep(min_ready_seconds)
        assert pod.end() == 0, pod.errors
    node.open_gate("enough")
    runs = node.wait_until_all_done().runs
    assert set(runs) == {f"r{n}" for n in range(RUNS)}
    assert node.redone() == {}
    assert len(node.lines()) == sum(int(run["value"]) for run in runs.values())
    node.assert_no_deaths()
    print_recoveries(node)


def test_runs_of_every_kind_survive_restart_after_restart(node):
    """Only a step with steps within it is redone: it stops where the next of them would begin."""
    count, rounds, restarts = (150, 6, 12) if LONG else (8, 1, 2)
    node.submit({f"r{n}": flows.mixed(n, rounds) for n in range(count)})
    node.submit({f"s{n}": flows.in_a_thread(n, 2 * rounds) for n in range(count // 4)})
    pod = node.worker(concurrency=2 * count).up()
    for _ in range(restarts):
        begun = len(node.lines())
        node.wait_until(
            lambda begun=begun: len(node.lines()) > begun or not set(node.statuses()) - {"done"}
        )
        following = node.worker(concurrency=2 * count).up()
        assert pod.end() == 0, pod.errors
        pod = following
    runs = node.wait_until_all_done().runs
    assert {id: run["value"] for id, run in runs.items() if run["parent"] is None} == {
        **{f"r{n}": str(n + 10 * rounds) for n in range(count)},
        **{f"s{n}": str(n + 6 * rounds) for n in range(count // 4)},
    }
    assert {key for _, key in node.redone()} <= {f"outer#{n + 1}" for n in range(rounds)}
    node.assert_no_deaths()
    node.assert_nothing_recorded_was_redone()
    for report in node.drains():
        print(f"drained in {report.seconds:.2f} s: {report.document()}")
        assert (report.left, report.checkpointed) == ([], 0)
        assert "checkpoint" not in report.layers, "all runs came to a boundary by themselves"
