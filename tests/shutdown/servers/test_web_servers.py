"""An Outlast in a web app under real servers: both shut down, and the process ends as it would have without."""

import asyncio
import signal
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from kubelet import passing_grace
from programs_servers import LONG, PASSING, Executing, executing

from outlast import Outlast, workflow
from outlast.shutdown.signal_thread import SAME_SECONDS
from support.waiting import WAIT_SECONDS

SIGTERM, SIGINT = signal.SIGTERM, signal.SIGINT
CODES = {
    ("uvicorn-asyncio", SIGTERM): -SIGTERM,
    ("uvicorn-uvloop", SIGTERM): -SIGTERM,
    ("gunicorn", SIGTERM): 0,
    ("uvicorn-asyncio", SIGINT): 0,
    ("uvicorn-uvloop", SIGINT): 0,
}
"""How each server ends without Outlast. `make soak` measures it."""

WAITS_FOR_REQUESTS = sys.version_info >= (3, 12)
"""Whether uvicorn waits for a request after a second SIGINT, with an Outlast or without."""


@contextmanager
def serving(folder, server: str = "uvicorn-asyncio", *options: object, **env: object):
    """Serve `web.py`. The process that gets signals is the one that a supervisor would send them to."""
    if server == "gunicorn":
        command = ("-m gunicorn", "-k", "uvicorn_worker.UvicornWorker", "-b", "127.0.0.1:0")
        options = ("--no-control-socket", "--graceful-timeout", 100, "--timeout", 100, *options)
    else:
        command = ("-m uvicorn", "--port", 0, "--loop", server.partition("-")[2])
    with executing(folder, *command, "web:web", *options, **env) as program:
        program.wait_until(lambda: answers(program))
        yield program


def answers(program: Executing) -> bool:
    try:
        return program.get("/wait")[0] == 200
    except httpx.TransportError:
        return False


class Request(threading.Thread):
    """A request that is under way while other things happen."""

    def __init__(self, program: Executing, path: str) -> None:
        super().__init__(daemon=True)
        self.program, self.path, self.answer, self.failure = program, path, None, None
        before = program.times("request-begins")
        self.start()
        program.wait_for("request-begins", before + 1)

    def run(self) -> None:
        try:
            self.answer = self.program.request("GET", self.path).status_code
        except httpx.TransportError as failure:
            self.failure = failure

    def answered(self) -> int | None:
        self.join(WAIT_SECONDS)
        return self.answer


def code_without_outlast(folder, server: str, number: int) -> int:
    """Return how the same program ends without Outlast, with the same request under way."""
    with serving(folder / "plain", server, plain=1) as program:
        request = Request(program, "/wait?gate=request")
        program.send(number)
        program.open_gate("request")
        code = program.wait()
        assert request.answered() == 200
    return code


def assert_drained(program: Executing, reason: str) -> None:
    """Check that the step under way was recorded, that the next did not begin, and that the run is released."""
    assert program.times("first-ends") == 1
    assert program.times("second-begins") == program.times("first-cancelled") == 0
    assert program.done("run") == ["first#1"]
    row = program.run("run")
    assert (row.status, row.worker) == ("queued", None)
    said = [word.split()[0] for word in program.said]
    assert said.index("first-ends") < said.index("cleanup") < said.index("lifespan-ends")
    report = program.drain()
    assert (report["reason"], report["released"], report["left"]) == (reason, 1, [])
    assert [one["name"] for one in report["cleanup"]] == ["cleanup", "lifespan"]


# --- opened by the server's lifespan ---


@pytest.mark.parametrize("framework", ["starlette", "fastapi"] if LONG else ["starlette"])
@pytest.mark.parametrize(
    ("server", "number"),
    [
        ("uvicorn-asyncio", SIGTERM),
        ("uvicorn-uvloop", SIGINT),
        ("gunicorn", SIGTERM),
        pytest.param("uvicorn-uvloop", SIGTERM, marks=pytest.mark.extended),
        pytest.param("uvicorn-asyncio", SIGINT, marks=pytest.mark.extended),
    ],
)
def test_a_signal_drains_at_once_and_the_server_shuts_down_as_without(
    tmp_path, server, number, framework
):
    with serving(tmp_path, server, framework=framework) as program:
        request = Request(program, "/wait?gate=request")
        program.wait_for("first-begins")
        program.send(number)
        program.wait_for("drain ")  # it waits neither for the server nor for its request
        program.open_gate("request")
        assert request.answered() == 200
        program.open_gate()
        assert program.wait() == CODES[server, number]
        assert program.word("drain") == number.name
        assert_drained(program, number.name)
        assert program.word("restored") == "True"
        assert "Finished server process" in program.printed
    if LONG:
        assert code_without_outlast(tmp_path, server, number) == CODES[server, number]


@pytest.mark.parametrize(
    "server", ["uvicorn-asyncio", pytest.param("uvicorn-uvloop", marks=pytest.mark.extended)]
)
def test_a_second_sigint_leaves_at_once_with_the_run_released(tmp_path, server):
    with serving(tmp_path, server) as program:
        Request(program, "/wait?gate=request")
        program.wait_for("first-begins")
        program.send(SIGINT)
        program.wait_for("drain SIGINT")
        time.sleep(2 * SAME_SECONDS)  # two signals in less time are one
        program.send(SIGINT)
        if WAITS_FOR_REQUESTS:
            program.open_gate("request")
        assert program.wait() == CODES[server, SIGINT]
        program.assert_run_is_claimable()
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


@pytest.mark.parametrize(
    "server", ["uvicorn-asyncio", "uvicorn-uvloop"] if LONG else ["uvicorn-asyncio"]
)
def test_a_server_that_stops_by_itself_drains_first(tmp_path, server):
    with serving(tmp_path, server) as program:
        program.wait_for("first-begins")
        program.get("/stop")
        program.wait_for("drain ")
        program.open_gate()
        assert program.wait() == 0
        assert_drained(program, "the server stops")
        assert program.word("restored") == "True"


def test_a_worker_that_gunicorn_replaces_drains_first(tmp_path):
    with serving(tmp_path, "gunicorn", "--max-requests", 3) as program:
        program.wait_for("first-begins")
        for _ in range(2):  # the first one was to see that it serves
            assert program.get("/wait")[0] == 200
        program.wait_for("drain ")
        program.open_gate()
        program.wait_for("restored True")
        program.wait_for("ready", 2)  # its successor, which takes up the run
        program.wait_for("second-begins")
        assert (program.times("first-begins"), program.times("first-cancelled")) == (1, 0)
        assert program.drain()["reason"] == "the server stops"
        program.send(SIGTERM)
        assert program.wait() == 0


def test_a_request_gets_the_result_of_a_run_that_ends_in_the_drain(tmp_path):
    with serving(tmp_path, steps=1) as program:
        request = Request(program, "/result")
        program.send(SIGTERM)
        program.wait_for("drain ")
        program.open_gate()
        assert request.answered() == 200
        assert program.wait() == -SIGTERM
        assert program.run("run").status == "done"


def test_a_request_for_the_result_of_a_released_run_does_not_hold_up_the_server(tmp_path):
    with serving(tmp_path) as program:
        request = Request(program, "/result")
        program.send(SIGTERM)
        program.wait_for("drain ")
        program.open_gate()
        assert request.answered() == 500, "Draining, which the web app may turn into a 503"
        program.wait()
        assert_drained(program, "SIGTERM")


def test_a_request_for_a_run_of_another_process_does_not_hold_up_the_server(tmp_path):
    """It waits until the grace is over but for the reserve."""
    with serving(tmp_path, outlast_poll=0.1, **PASSING) as program:
        request = Request(program, "/elsewhere")
        program.wait_for("first-begins")
        program.send(SIGTERM)
        program.wait_for("drain ")
        program.open_gate()
        program.wait_until(lambda: program.run("run").worker is None)
        assert request.is_alive()
        program.let_pass(passing_grace.UNTIL_STEPS_ARE_LEFT)
        assert request.answered() == 500, "Draining"
        program.wait()
        assert_drained(program, "SIGTERM")
        assert program.run("elsewhere").status == "queued"


@workflow(name="one")
async def one_elsewhere(gate: str) -> str:
    return "elsewhere"


async def execute_elsewhere(folder) -> str:
    async with Outlast(f"sqlite:///{folder / 'agents.db'}") as other:
        return await (await other.start(one_elsewhere(""), id="elsewhere")).result()


def test_a_request_gets_the_result_of_a_run_of_another_process_within_the_grace(tmp_path):
    with serving(tmp_path) as program:
        request = Request(program, "/elsewhere")
        program.wait_for("first-begins")
        program.send(SIGTERM)
        program.wait_for("drain ")
        program.open_gate()
        program.wait_until(lambda: program.run("run").worker is None)
        assert asyncio.run(execute_elsewhere(tmp_path)) == "elsewhere"
        assert request.answered() == 200
        assert program.wait() == -SIGTERM
        assert_drained(program, "SIGTERM")


@pytest.mark.parametrize(
    "server", ["uvicorn-asyncio", pytest.param("gunicorn", marks=pytest.mark.extended)]
)
def test_a_step_that_hangs_in_a_thread_does_not_hold_up_the_server(tmp_path, server):
    with serving(tmp_path, server, in_thread=1, **PASSING) as program:
        program.wait_for("first-begins")
        program.send(SIGTERM)
        program.wait_for("drain ")
        program.let_pass(passing_grace.UNTIL_STEPS_ARE_LEFT)
        assert program.wait() == CODES[server, SIGTERM]
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert program.drain()["not_checkpointed"] == ["run first_in_thread#1"]


# --- the routes, mounted ---


@pytest.mark.parametrize(
    "framework", [pytest.param("starlette", marks=pytest.mark.extended), "fastapi"]
)
def test_the_routes_can_be_mounted_in_a_web_app(tmp_path, framework):
    with serving(tmp_path, framework=framework) as program:
        program.wait_for("first-begins")
        assert program.get("/ops/health") == (200, {"status": "alive"})
        assert program.get("/ops/ready") == (200, {"status": "ready"})
        assert "outlast_runs_in_flight 1.0" in program.request("GET", "/ops/metrics").text
        assert program.get("/ops/drain")[1]["under_way"][0]["step"] == "first#1"
        assert program.post("/ops/shutdown")[0] == 202
        status, ready = program.get("/ops/ready")
        assert (status, ready["reason"]) == (503, "draining: POST /shutdown from 127.0.0.1")
        program.open_gate()
        program.wait_until(lambda: program.get("/ops/drain")[1]["layer"] == "exit")
        assert not program.has_ended, "the program decides when its process ends"
        program.wait_until(lambda: program.run("run").worker is None)
        program.send(SIGTERM)
        assert program.wait() == -SIGTERM
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


# --- opened by the program, around the server ---


@pytest.mark.parametrize(
    ("how", "first", "number", "loop"),
    [
        (how, first, number, loop)
        for how in ("outside", "outside-and-on")
        for first in ("drained-first", "served-first")
        for number in (SIGTERM, SIGINT)
        for loop in ("asyncio", "uvloop")
        if LONG
        or (
            loop == "asyncio"
            and (how == "outside") == ((first == "drained-first") == (number == SIGTERM))
        )
    ],
)
def test_a_signal_has_its_effect_when_the_server_and_the_outlast_around_it_have_ended(
    tmp_path, how, first, number, loop
):
    with executing(tmp_path, "embedded.py", how, loop=loop) as program:
        program.wait_for("first-begins")
        request = Request(program, "/?gate=request")
        program.drain_by(number)
        if first == "drained-first":
            program.open_gate()
            program.wait_until(lambda: program.run("run").worker is None)
            program.open_gate("request")
            assert request.answered() == 200
        else:
            program.open_gate("request")
            assert request.answered() == 200
            program.wait_for("served")
            program.open_gate()
        assert program.wait() == -number
        assert_drained(program, number.name)
        assert program.times("served") == 1
        if number == SIGINT:  # SIGTERM ends it where it is raised again
            assert program.word("restored") == "True"
            assert "KeyboardInterrupt" in program.printed


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_server_without_outlast_ends_the_same_way(tmp_path, number):
    with executing(tmp_path, "embedded.py", "plain") as program:
        request = Request(program, "/?gate=request")
        program.send(number)
        program.open_gate("request")
        assert request.answered() == 200
        assert program.wait() == -number


def test_one_sigint_under_an_embedded_server_is_one(tmp_path):
    """uvicorn raises it again when it has served. Steps under way still have their time."""
    with executing(tmp_path, "embedded.py", "outside") as program:
        program.wait_for("first-begins")
        program.send(SIGINT)
        program.wait_for("served")
        assert not program.has_ended
        program.open_gate()
        assert program.wait() == -SIGINT
        assert_drained(program, "SIGINT")


def test_two_sigints_under_an_embedded_server_are_two(tmp_path):
    with executing(tmp_path, "embedded.py", "outside") as program:
        program.wait_for("first-begins")
        request = Request(program, "/?gate=request")
        program.drain_by(SIGINT)
        time.sleep(2 * SAME_SECONDS)  # two signals in less time are one
        program.send(SIGINT)
        if WAITS_FOR_REQUESTS:
            program.open_gate("request")
        # uvicorn raises the signal again when it has ended. A second signal that is read as late as
        # that, on a busy machine, counts as the first of those, and the user presses Ctrl-C again.
        repeat = threading.Timer(WAIT_SECONDS / 6, program.process.send_signal, [SIGINT])
        repeat.start()
        try:
            assert program.wait() in {-SIGINT, 130, -signal.SIGALRM}
        finally:
            repeat.cancel()
        assert request.answered() in {None, 500, *([200] if WAITS_FOR_REQUESTS else [])}
        program.assert_run_is_claimable()
