"""`outlast worker` with its HTTP server, and as PID 1."""

import signal
import subprocess
import sys
import time

import pytest
from programs_servers import AS_INIT, HERE, LONG, PYTHONPATH, Executing, executing
from prometheus_client.parser import text_string_to_metric_families

from support.processes import Program, clean_environment, cpu_seconds
from support.waiting import WAIT_SECONDS

COMMAND = ("-m outlast", "worker", str(HERE / "flows.py"), "--log", "json")


def working(folder, **env):
    return executing(
        folder, *COMMAND, ready="at-the-gate", **{"outlast_http": "127.0.0.1:0", **env}
    )


def wait_until_ready(program: Executing) -> None:
    program.wait_until(lambda: program.get("/ready")[0] == 200)


def submit(program: Executing, workflow: str, *args: object, id: str = "run") -> None:
    store = f"sqlite:///{program.folder / 'agents.db'}"
    target = f"{HERE / 'flows.py'}:{workflow}"
    command = [
        sys.executable,
        "-m",
        "outlast",
        "submit",
        target,
        *args,
        "--id",
        id,
        "--store",
        store,
    ]
    env = clean_environment(PYTHONPATH=PYTHONPATH, WORDS=str(program.folder / "other-words"))
    with Program(command, program.folder, env=env) as submitting:
        assert submitting.wait() == 0, submitting.errors


def metrics(program: Executing) -> dict[str, float]:
    text = program.request("GET", "/metrics").text
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_worker_is_ready_when_its_lifespan_is(tmp_path):
    gate = tmp_path / "gate"
    with working(tmp_path, gate=gate) as program:
        assert program.get("/health") == (200, {"status": "alive"})
        assert program.get("/ready") == (503, {"status": "not ready", "reason": "starting"})
        gate.touch()
        wait_until_ready(program)
        assert program.get("/ready") == (200, {"status": "ready"})
        assert program.get("/drain")[1]["draining"] is False


@pytest.mark.parametrize("how", ["SIGTERM", "POST /shutdown"])
def test_a_drain_can_be_watched_over_http(tmp_path, how):
    with working(tmp_path) as program:
        wait_until_ready(program)
        submit(program, "two", "gate")
        program.wait_for("first-begins")
        assert metrics(program)["outlast_runs_in_flight"] == 1
        reason = "SIGTERM"
        if how == "SIGTERM":
            program.send(signal.SIGTERM)
            program.wait_until(lambda: program.get("/ready")[0] == 503)
        else:
            reason = "POST /shutdown from 127.0.0.1"
            assert program.post("/shutdown") == (202, {"status": "draining"})
        assert program.get("/ready") == (
            503,
            {"status": "not ready", "reason": f"draining: {reason}"},
        )
        program.wait_until(lambda: program.get("/drain")[1]["layer"] == "boundary")
        view = program.get("/drain")[1]
        assert (view["draining"], view["reason"]) == (True, reason)
        assert 0 < view["seconds_left"] < 600
        (under_way,) = view["under_way"]
        assert (under_way["what"], under_way["id"], under_way["step"]) == ("run", "run", "first#1")
        assert under_way["why"] == "a step is in flight"
        assert under_way["seconds"] >= 0
        numbers = metrics(program)
        assert (
            numbers["outlast_draining"],
            numbers["outlast_ready"],
            numbers["outlast_runs_in_flight"],
        ) == (
            1,
            0,
            1,
        )
        assert program.get("/health")[0] == 200, "a liveness probe must not end a drain"
        program.open_gate()
        assert program.wait() == 0
        assert program.done("run") == ["first#1"]
        assert (program.run("run").status, program.run("run").worker) == ("queued", None)
        assert program.drain()["reason"] == reason
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


def test_metrics_count_commits_and_runs(tmp_path):
    with working(tmp_path) as program:
        wait_until_ready(program)
        before = metrics(program)
        assert before["outlast_ready"] == 1
        assert (
            before["outlast_draining"]
            == before["outlast_runs_in_flight"]
            == before["outlast_in_flight"]
            == 0
        )
        program.open_gate()
        submit(program, "two", "gate")
        program.wait_until(lambda: program.run("run").status == "done")
        after = metrics(program)
        commands, commits = "outlast_commit_commands_sum", "outlast_commit_commands_count"
        assert after[commands] >= before[commands] + 3, "a claim, two steps, an end"
        assert before[commits] < after[commits] <= after[commands]
        assert after[commits] == after["outlast_commit_seconds_count"]
        assert all(after[name] >= before[name] for name in before if name.endswith("_total"))
        assert after["outlast_runs_in_flight"] == 0
        assert after["outlast_drain_runs_total completed"] == 0


def test_health_fails_while_the_loop_is_blocked_for_longer_than_health_stall(tmp_path):
    with working(tmp_path, outlast_health_stall=0.5, outlast_stall_max=30) as program:
        wait_until_ready(program)
        program.wait_until(lambda: program.get("/health")[0] == 200)
        submit(program, "blocks", "gate")
        program.wait_for("block-begins")
        program.wait_until(lambda: program.get("/health")[0] == 503)
        health = program.get("/health")[1]
        assert health["status"] == "stalled"
        assert "longer than health_stall=0.5" in health["reason"]
        assert program.get("/ready")[0] == 200
        assert metrics(program)["outlast_runs_in_flight"] == 1
        assert program.get("/drain")[1]["under_way"][0]["step"] == "block#1"
        program.open_gate()
        program.wait_for("block-ends")
        program.wait_until(lambda: program.get("/health")[0] == 200)


def test_a_drain_begins_over_http_while_the_loop_is_blocked(tmp_path):
    with working(tmp_path) as program:
        wait_until_ready(program)
        submit(program, "blocks", "gate")
        program.wait_for("block-begins")
        time.sleep(0.2)  # test_http_routes.py has a longer stall
        assert program.get("/health")[0] == 200, "health_stall is off"
        assert program.post("/shutdown")[0] == 202
        assert program.get("/ready")[0] == 503
        assert program.get("/drain")[1]["layer"] == "coordinate"
        program.open_gate()
        assert program.wait() == 0
        assert program.run("run").status == "done"


# --- as PID 1 ---


@pytest.fixture(scope="module")
def _init():
    """Skip where the kernel refuses a pid namespace."""
    try:
        done = subprocess.run(
            [*AS_INIT, "true"], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
    except FileNotFoundError:
        pytest.skip("no `unshare` here: nothing was tested as PID 1")
    if done.returncode:
        pytest.skip(
            f"no pid namespace may be made here, nothing was tested as PID 1: {done.stderr.strip()}"
        )


@pytest.mark.usefixtures("_init")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), *([(signal.SIGINT, 130)] if LONG else [])]
)
def test_as_pid_1_a_worker_drains_and_ends(tmp_path, number, code):
    with working(tmp_path, before=AS_INIT) as program:
        wait_until_ready(program)
        submit(program, "two", "gate")
        program.wait_for("first-begins")
        program.drain_by(number)
        program.open_gate()
        assert program.wait() == code
        assert program.done("run") == ["first#1"]
        assert (program.run("run").status, program.run("run").worker) == ("queued", None)
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


@pytest.mark.extended  # test_watchdog_process.py has another program, test_hung_steps.py a worker that is not PID 1
@pytest.mark.usefixtures("_init")
def test_as_pid_1_a_worker_that_holds_the_gil_is_ended(tmp_path):
    with working(tmp_path, before=AS_INIT, outlast_grace=1) as program:
        wait_until_ready(program)
        submit(program, "holds_the_gil")
        program.wait_for("hold-begins")
        begun = cpu_seconds(program.pid)
        program.wait_until(lambda: cpu_seconds(program.pid) - begun > 0.3)  # it holds the GIL
        program.send(signal.SIGTERM)
        assert program.wait() == 63
