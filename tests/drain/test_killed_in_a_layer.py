"""SIGKILL in the middle of a drain, in each of its layers: another worker finishes everything, nothing recorded is redone, nobody is charged
with a death, and whoever sweeps writes the report."""

import json
import signal
import time
import urllib.request

from kubelet import LONG, Node, Pod, chance, flows, until

RUNS = 8


def under_way(node: Node, grace: float = 20.0, bad: object = None, **pod) -> tuple[Pod, Pod]:
    """A worker with runs under way, and an idle one."""
    first = node.worker(grace=grace, **pod).up()
    node.submit({f"r{n}": flows.chain(n, 4, 0.5) for n in range(RUNS)})
    node.submit({"s": flows.sleeper(0, 2.0), "g": flows.gated("gate"), **({"bad": bad} if bad else {})})
    until(lambda: any(line.key.startswith("wait_for") for line in node.lines()))
    until(lambda: not bad or any(line.key.startswith("swallow") for line in node.lines()))
    until(lambda: len([line for line in node.lines() if line.run.startswith("r")]) >= RUNS)
    return first, node.worker().up()


def until_draining(node: Node, pod: Pod) -> None:
    until(lambda: node.ask("SELECT 1 FROM workers WHERE pid = ? AND draining", pod.pid), pause=0.0005)


def assert_all_is_well_after_a_kill(
    node: Node, first: Pod, *, deaths: bool = False, reported: bool = False
) -> None:
    first.kill()
    assert first.process.returncode == -signal.SIGKILL
    recorded = node.image().recorded()
    executing = node.under_way(first.pid)
    (node.folder / "gate").touch()
    runs = node.until_all_done().runs
    assert {id: run["value"] for id, run in runs.items() if id.startswith("r")} == {
        f"r{n}": str(n + 4) for n in range(RUNS)
    }
    assert (runs["s"]["value"], runs["g"]["value"]) == ("2", '"gate"')
    assert not recorded & set(node.redone()), "what was on record was redone"
    assert set(node.redone()) <= executing | unrecorded(node, first), (
        "only what had no result on record is redone"
    )
    node.assert_nothing_recorded_was_redone()
    if not deaths:
        node.assert_no_deaths()
        (report,) = node.drains()
        assert report.pid == first.pid
        assert report.cut_short or (reported and report.seconds is not None)


def unrecorded(node: Node, first: Pod) -> set[tuple[str, str]]:
    """Steps whose bodies ended in the first worker, but whose results it could not record: they were recorded by another life."""
    fences = {(line.run, line.key): line.fence for line in node.lines("after", first.pid)}
    return {step for step, fence in node.image().fences().items() if fences.get(step, fence) < fence}


def test_together_with_sigterm(node):
    """Perhaps before the store was told: then it is a death, for which nobody is blamed who had recorded something."""
    first, _ = under_way(node)
    until(lambda: len({id for id, _ in node.image().recorded()}) == RUNS + 2)
    first.signal(signal.SIGTERM)
    assert_all_is_well_after_a_kill(node, first, deaths=True)


def test_as_soon_as_layer_1_is_over(node):
    first, _ = under_way(node)
    first.signal(signal.SIGTERM)
    until_draining(node, first)
    assert_all_is_well_after_a_kill(node, first)


def test_in_layer_2_with_steps_under_way_and_some_runs_released(node):
    first, second = under_way(node, http=True)
    first.signal(signal.SIGTERM)
    until(lambda: any(node.worker_of(f"r{n}") == second.pid for n in range(RUNS)))
    with urllib.request.urlopen(f"http://127.0.0.1:{first.port}/drain") as answer:
        view = json.load(answer)
    assert (view["draining"], view["layer"]) == (True, "boundary"), view
    assert any(one["id"] == "g" for one in view["under_way"]), view
    assert_all_is_well_after_a_kill(node, first)


def test_in_layer_3_with_a_step_that_was_told_to_stop(node):
    first, _ = under_way(node, grace=4, bad=flows.swallows())
    first.signal(signal.SIGTERM)
    until(lambda: node.lines("swallowed", first.pid))
    assert_all_is_well_after_a_kill(node, first)
    assert node.image().runs["bad"]["value"] == '"swallowed"'


def test_in_clean_up_when_all_was_given_back(node):
    (node.folder / "may-start").touch()
    first, _ = under_way(node, module="drain_app.py")
    (node.folder / "gate").touch()
    first.signal(signal.SIGTERM)
    until(lambda: node.lines("clean-up", first.pid))
    assert node.under_way(first.pid) == set()
    assert_all_is_well_after_a_kill(node, first, reported=True)  # it was stored before the clean-up
    assert node.redone() == {}
    (report,) = node.drains()
    assert report.left == [], "nothing was left behind"


def test_at_any_moment_after_layer_1_with_runs_of_every_kind(node):
    kills, count, rounds = (25, 60, 6) if LONG else (4, 20, 2)
    moments = chance("when to kill")
    node.submit({f"r{n}": flows.mixed(n, rounds) for n in range(count)})
    pod = node.worker(concurrency=100).up()
    for _ in range(kills):
        following = node.worker(concurrency=100).up()
        pod.signal(signal.SIGTERM)
        until(lambda pid=pod.pid: node.ask("SELECT 1 FROM drains WHERE pid = ?", pid), pause=0.0005)
        time.sleep(moments.choice((0.0, 0.02, 0.1, 0.3)) * moments.random() * 2)
        pod.kill()
        pod = following
    runs = node.until_all_done().runs
    assert {id: run["value"] for id, run in runs.items() if run["parent"] is None} == {
        f"r{n}": str(n + 10 * rounds) for n in range(count)
    }
    node.assert_nothing_recorded_was_redone()
    node.assert_no_deaths()
    reports = node.drains()
    print(f"{kills} kills: {sum(report.cut_short for report in reports)} drains were cut short")
    assert len(reports) == kills
    assert all(report.cut_short or report.seconds is not None for report in reports), "none stays open"
