"""Many runs in flight, and a rolling restart under them: 0 lost, 0 redone.

OUTLAST_TEST_KILLS=200 is the full form: 500 runs under way, also with the settings as they are by default, and the time to recovery is held to a
second. The figures are printed (`pytest -s`).
"""

import time

import pytest
from kubelet import LONG, Node, flows, until

WORKERS = 4
RUNS = 500 if LONG else 160
STEPS = 20
PRODUCTION = {"ramp": 5, "returned_rate": 100, "heartbeat": 0.2, "lease": 30, "linger": 1, "grace": 30}
"""As they are without being set. A worker starts gently (`ramp`): where each is to take up at once what the next one leaves, a rolling update
waits so long between two of them (minReadySeconds)."""
SLOTS = RUNS * 3 // 2 // WORKERS
"""Of each worker. A fifth of them is left to new work, so with none to spare returned runs wait until others end."""


def pause(n: int) -> float:
    """Steps of 0.2 to 0.5 s."""
    return 0.2 + n % 7 * 0.05


def submit(node: Node, count: int, steps: int) -> None:
    node.submit({f"r{n}": flows.chain(n, steps, pause(n)) for n in range(count)})


def assert_nothing_lost_or_redone(node: Node, count: int, steps: int) -> None:
    runs = node.until_all_done(seconds=100).runs
    assert {id: run["value"] for id, run in runs.items()} == {f"r{n}": str(n + steps) for n in range(count)}
    assert node.redone() == {}
    assert len(node.lines()) == count * steps
    node.assert_no_deaths()


def tell_recoveries(node: Node) -> float:
    """Print them; the 95th percentile of all."""
    seconds = sorted(seconds for (seconds,) in node.ask("SELECT seconds FROM recoveries"))
    p50, p95 = (seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.95))
    print(f"{len(seconds)} recoveries: median {p50:.3f} s, p95 {p95:.3f} s, most {seconds[-1]:.3f} s")
    reports = node.drains()
    for report in reversed(reports):
        print(f"drained in {report.seconds:.2f} s, layers {report.layers}, {report.recoveries}")
    assert sum(report.recoveries.get("count", 0) for report in reports) == len(seconds)
    return p95


def test_two_hundred_runs_in_flight_are_handed_over(node):
    count, steps = 200, 8
    first = node.worker(concurrency=count, grace=10).up()
    submit(node, count, steps)
    until(lambda: len({line.run for line in node.lines()}) == count)
    second = node.worker(concurrency=count).up()
    assert {line.run for line in node.lines() if line.pid == second.pid} == set()
    ended = first.delete(15)
    assert (ended.code, ended.killed) == (0, False), first.errors()
    (report,) = node.drains()
    print(
        f"gone {ended.seconds:.2f} s after SIGTERM: {report.released} released, {report.completed} completed"
    )
    # On a busy machine some were done before the signal, and some after it, before the store was told.
    ((held,),) = node.ask("SELECT held FROM drains")
    assert held <= report.released + report.completed <= count
    assert (report.left, report.checkpointed) == ([], 0)
    assert_nothing_lost_or_redone(node, count, steps)
    tell_recoveries(node)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("settings", "steps", "min_ready_seconds"),
    [
        pytest.param({}, STEPS, 0, id="at-once"),
        *([pytest.param(PRODUCTION, 5 * STEPS, 5, id="as-they-are-by-default")] if LONG else []),
    ],
)
def test_a_rolling_restart_loses_and_redoes_nothing(node, settings, steps, min_ready_seconds):
    """Each worker is replaced in turn, the new one first, as with maxSurge."""
    options = {"concurrency": SLOTS, "grace": 10, **settings}
    old = [node.worker(**options) for _ in range(WORKERS)]
    for pod in old:
        pod.up()
    submit(node, RUNS, steps)
    until(lambda: node.statuses() == {"running": RUNS}, pause=0.05)
    began = time.monotonic()
    for pod in old:
        node.worker(**options).up()
        time.sleep(min_ready_seconds)
        ended = pod.delete(options["grace"] + 5)
        assert (ended.code, ended.killed) == (0, False), pod.errors()
        print(f"gone {ended.seconds:.2f} s after SIGTERM")
    print(f"rolled in {time.monotonic() - began:.1f} s: {node.statuses()}")
    assert node.statuses()["done"] < RUNS, "it was over before the restart was: make the runs longer"
    assert_nothing_lost_or_redone(node, RUNS, steps)
    p95 = tell_recoveries(node)
    if LONG:
        assert p95 < 1.0


def test_runs_of_every_kind_go_through_restart_after_restart(node):
    """Steps side by side, in threads, within steps and at their second attempt, children, sleeps: each once, but for a step that has
    steps within it: it stops where the next of them would begin, and is done again without those that have ended."""
    count, rounds, restarts = (150, 6, 12) if LONG else (40, 2, 6)
    node.submit({f"r{n}": flows.mixed(n, rounds) for n in range(count)})
    node.submit({f"s{n}": flows.in_a_thread(n, 2 * rounds) for n in range(count // 4)})
    pod = node.worker(concurrency=2 * count, grace=8).up()
    for _ in range(restarts):
        time.sleep(0.15)
        following = node.worker(concurrency=2 * count, grace=8).up()
        ended = pod.delete(12)
        assert (ended.code, ended.killed) == (0, False), pod.errors()
        pod = following
    runs = node.until_all_done().runs
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
        assert "checkpoint" not in report.layers, "all came to a boundary by themselves, and were seen to"
