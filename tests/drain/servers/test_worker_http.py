"""`outlast worker` with its HTTP server, and as PID 1."""

import signal
import subprocess
import sys
import time

import httpx
import pytest
from programs_servers import AS_INIT, HERE, WAIT_SECONDS, Executing, executing
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.timeout(180)

COMMAND = ("-m outlast", "worker", str(HERE / "flows.py"), "--log", "json")


def working(folder, **env):
    return executing(folder, *COMMAND, ready="at-the-gate", **{"outlast_http": "127.0.0.1:0", **env})


def until_serving(program: Executing) -> None:
    program.until(lambda: program.url)


def until_ready(program: Executing) -> None:
    until_serving(program)
    program.until(lambda: program.get("/ready")[0] == 200)


def submit(program: Executing, workflow: str, *args: object, id: str = "run") -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "submit", f"{HERE / 'flows.py'}:{workflow}", *map(str, args), "--id", id,
         "--store", f"sqlite:///{program.folder / 'agents.db'}"],
        env={"PYTHONPATH": str(HERE), "WORDS": str(program.folder / "other-words"), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def metrics(program: Executing) -> dict[str, float]:
    text = httpx.get(program.url + "/metrics", timeout=WAIT_SECONDS, trust_env=False).text
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_worker_says_where_it_serves_and_is_ready_when_its_lifespan_is(tmp_path):
    gate = tmp_path / "gate"
    with working(tmp_path, gate=gate) as program:
        until_serving(program)
        assert program.get("/health") == (200, {"status": "alive"})
        assert program.get("/ready") == (503, {"status": "not ready", "reason": "starting"})
        gate.touch()
        until_ready(program)
        assert program.get("/ready") == (200, {"status": "ready"})
        assert program.get("/drain")[1]["draining"] is False


@pytest.mark.parametrize("how", ["SIGTERM", "POST /shutdown"])
def test_a_drain_can_be_watched_and_ends_the_worker_with_0(tmp_path, how):
    with working(tmp_path) as program:
        until_ready(program)
        submit(program, "two", 3)
        program.until("first-begins")
        assert metrics(program)["outlast_runs_in_hand"] == 1
        reason = "SIGTERM"
        if how == "SIGTERM":
            program.send(signal.SIGTERM)
            program.until(lambda: program.get("/ready")[0] == 503)
        else:
            reason = "POST /shutdown from 127.0.0.1"
            assert program.post("/shutdown") == (202, {"status": "draining"})
        assert program.get("/ready") == (503, {"status": "not ready", "reason": f"draining: {reason}"})
        program.until(lambda: program.get("/drain")[1]["layer"] == "boundary")
        view = program.get("/drain")[1]
        assert (view["draining"], view["reason"]) == (True, reason)
        assert 0 < view["seconds_left"] < 30
        (under_way,) = view["under_way"]
        assert (under_way["what"], under_way["id"], under_way["step"]) == ("run", "run", "first#1")
        assert under_way["why"] == "a step is under way"
        assert under_way["seconds"] >= 0
        numbers = metrics(program)
        assert (numbers["outlast_draining"], numbers["outlast_ready"], numbers["outlast_runs_in_hand"]) == (
            1,
            0,
            1,
        )
        assert program.get("/health")[0] == 200, "a liveness probe must not end a drain"
        assert program.ended() == 0
        assert program.done("run") == ["first#1"]
        assert (program.run("run").status, program.run("run").worker) == ("queued", None)
        assert program.drain()["reason"] == reason
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


def test_metrics_count(tmp_path):
    with working(tmp_path) as program:
        until_ready(program)
        before = metrics(program)
        assert before["outlast_ready"] == 1
        assert before["outlast_draining"] == before["outlast_runs_in_hand"] == before["outlast_in_hand"] == 0
        submit(program, "two", 0)
        program.until(lambda: program.run("run").status == "done")
        after = metrics(program)
        verbs, commits = "outlast_commit_verbs_sum", "outlast_commit_verbs_count"
        assert after[verbs] >= before[verbs] + 3, "a claim, two steps, an end"
        assert before[commits] < after[commits] <= after[verbs]
        assert after[commits] == after["outlast_commit_seconds_count"]
        assert all(after[name] >= before[name] for name in before if name.endswith("_total"))
        assert after["outlast_runs_in_hand"] == 0
        assert after["outlast_drain_runs_total completed"] == 0


def test_a_blocked_loop_is_told_by_health_and_forgotten_when_it_has_recovered(tmp_path):
    with working(tmp_path, outlast_health_stall=0.5, outlast_stall_max=30) as program:
        until_ready(program)
        assert program.get("/health")[0] == 200
        submit(program, "blocks", 4)
        program.until("block-begins")
        program.until(lambda: program.get("/health")[0] == 503)
        health = program.get("/health")[1]
        assert health["status"] == "stalled"
        assert "longer than health_stall=0.5" in health["reason"]
        assert program.get("/ready")[0] == 200
        assert metrics(program)["outlast_runs_in_hand"] == 1
        assert program.get("/drain")[1]["under_way"][0]["step"] == "block#1"
        assert program.times("block-ends") == 0, "all of it while the loop stood still"
        program.until("block-ends")
        program.until(lambda: program.get("/health")[0] == 200)


def test_without_health_stall_a_blocked_loop_is_nobodys_business(tmp_path):
    with working(tmp_path) as program:
        until_ready(program)
        submit(program, "blocks", 3)
        program.until("block-begins")
        time.sleep(1.5)
        assert program.get("/health")[0] == 200
        assert program.times("block-ends") == 0


def test_a_drain_begins_over_http_while_the_loop_is_blocked(tmp_path):
    with working(tmp_path) as program:
        until_ready(program)
        submit(program, "blocks", 4)
        program.until("block-begins")
        assert program.post("/shutdown")[0] == 202
        assert program.get("/ready")[0] == 503
        assert program.get("/drain")[1]["layer"] == "coordinate"
        assert program.times("block-ends") == 0
        assert program.ended() == 0
        assert program.run("run").status == "done"


# --- as PID 1 ---


@pytest.fixture(scope="module")
def _init():
    """Where the kernel refuses, these promises are not tested, and it says so."""
    try:
        done = subprocess.run(
            [*AS_INIT, "true"], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
    except FileNotFoundError:
        pytest.skip("no `unshare` here: nothing was tested as PID 1")
    if done.returncode:
        pytest.skip(f"no pid namespace may be made here, nothing was tested as PID 1: {done.stderr.strip()}")


@pytest.mark.usefixtures("_init")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_as_pid_1_a_worker_drains_and_ends(tmp_path, number, code):
    with working(tmp_path, before=AS_INIT) as program:
        until_ready(program)
        submit(program, "two", 2)
        program.until("first-begins")
        program.send(number)
        assert program.ended() == code
        assert program.done("run") == ["first#1"]
        assert (program.run("run").status, program.run("run").worker) == ("queued", None)
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


@pytest.mark.usefixtures("_init")
def test_as_pid_1_what_holds_the_gil_is_gone_within_grace(tmp_path):
    grace = 4.0
    with working(tmp_path, before=AS_INIT, outlast_grace=grace) as program:
        until_ready(program)
        submit(program, "holds_the_gil")
        program.until("hold-begins")
        time.sleep(0.3)  # until the GIL is held
        sent = program.send(signal.SIGTERM)
        assert program.ended() == 63
        assert time.monotonic() - sent < grace + 5, "generous: when it is to be ended is held by another test"
