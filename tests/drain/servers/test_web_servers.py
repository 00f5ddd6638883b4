"""An Outlast inside a web app, under real servers: both shut down, neither in the other's way, and the process ends as it would have."""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from programs_servers import WAIT_SECONDS, Executing, executing

from outlast import Outlast, workflow

pytestmark = pytest.mark.timeout(180)

SIGTERM, SIGINT = signal.SIGTERM, signal.SIGINT
SERVERS = ["uvicorn-asyncio", "uvicorn-uvloop", "gunicorn"]

REQUEST_SECONDS = 50 if sys.version_info < (3, 12) else 5
"""Of a request that a second SIGINT cuts. From Python 3.12 on uvicorn waits for it on the stock loop, with an Outlast or without."""

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""`make soak`: every combination."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(folder, server: str = "uvicorn-asyncio", *options: object, **env: object):
    """`web.py` under a server. The process that gets signals is the one that a supervisor would send them to."""
    port = free_port()
    if server == "gunicorn":
        command = ("-m gunicorn", "-k", "uvicorn_worker.UvicornWorker", "-b", f"127.0.0.1:{port}")
        options = ("--no-control-socket", "--graceful-timeout", 45, *options)
    else:
        command = ("-m uvicorn", "--port", port, "--loop", server.partition("-")[2])
    with executing(folder, *command, "web:web", *options, **env) as program:
        program.known_url = f"http://127.0.0.1:{port}"
        program.until(lambda: answers(program))
        yield program


def answers(program: Executing) -> bool:
    try:
        return program.get("/wait?seconds=0")[0] == 200
    except httpx.TransportError:
        return False


class Request(threading.Thread):
    """One that is under way while other things happen."""

    def __init__(self, program: Executing, path: str) -> None:
        super().__init__(daemon=True)
        self.program, self.path, self.answer, self.failure = program, path, None, None
        before = program.times("request-begins")
        self.start()
        program.until("request-begins", before + 1)

    def run(self) -> None:
        try:
            answer = httpx.get(self.program.url + self.path, timeout=WAIT_SECONDS, trust_env=False)
            self.answer = answer.status_code
        except httpx.TransportError as failure:
            self.failure = failure

    def answered(self) -> int | None:
        self.join(WAIT_SECONDS)
        return self.answer


def without_outlast(folder, server: str, number: int) -> int:
    """How the same program ends, with the same request under way."""
    with serving(folder / "plain", server, plain=1) as program:
        request = Request(program, "/wait?seconds=0.5")
        program.send(number)
        code = program.ended()
        assert request.answered() == 200
    return code


def assert_drained(program: Executing, reason: str) -> None:
    """The step under way ended and is recorded, the next did not begin, and the run is anybody's."""
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


@pytest.mark.parametrize("framework", ["starlette", "fastapi"] if LONG else ["fastapi"])
@pytest.mark.parametrize(
    ("server", "number"),
    [(server, SIGTERM) for server in SERVERS] + [("uvicorn-asyncio", SIGINT), ("uvicorn-uvloop", SIGINT)],
)
def test_a_signal_drains_at_once_and_the_server_shuts_down_as_it_would_have(
    tmp_path, server, number, framework
):
    with serving(tmp_path, server, framework=framework, seconds=3) as program:
        request = Request(program, "/wait?seconds=2")
        program.until("first-begins")
        program.send(number)
        program.until("drain ")
        assert request.answered() == 200
        code = program.ended()
        said = [word.split()[0] for word in program.said]
        last = len(said) - 1 - said[::-1].index("request-ends")
        assert said.index("drain") < last, "it does not wait for the server, nor for its request"
        assert program.word("drain") == number.name
        assert_drained(program, number.name)
        assert program.word("restored") == "True"
        assert "Finished server process" in program.printed
    assert code == without_outlast(tmp_path, server, number)


@pytest.mark.parametrize("server", ["uvicorn-asyncio", "uvicorn-uvloop"])
def test_a_second_sigint_leaves_at_once_with_the_run_released(tmp_path, server):
    with serving(tmp_path, server, seconds=50) as program:
        Request(program, f"/wait?seconds={REQUEST_SECONDS}")
        program.until("first-begins")
        program.send(SIGINT)
        program.until("drain SIGINT")
        time.sleep(0.3)  # by a finger
        sent = program.send(SIGINT)
        assert program.ended() == 0, "uvicorn's own code for SIGINT"
        assert time.monotonic() - sent < 20
        row = program.run("run")
        assert (row.status, row.worker) == ("queued", None)
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


@pytest.mark.parametrize("server", ["uvicorn-asyncio", "uvicorn-uvloop"])
def test_a_server_that_stops_by_itself_drains_first(tmp_path, server):
    with serving(tmp_path, server, seconds=3) as program:
        program.until("first-begins")
        program.get("/stop")
        assert program.ended() == 0
        assert_drained(program, "the server stops")
        assert program.word("restored") == "True"


def test_a_worker_that_gunicorn_replaces_drains_first(tmp_path):
    with serving(tmp_path, "gunicorn", "--max-requests", 3, seconds=3) as program:
        program.until("first-begins")
        for _ in range(4):
            try:
                program.get("/wait?seconds=0")
            except httpx.TransportError:
                break
        program.until("restored True")
        program.until("ready", 2)  # its successor, which takes the run up
        program.until("second-begins")
        assert (program.times("first-begins"), program.times("first-cancelled")) == (1, 0)
        assert program.drain()["reason"] == "the server stops"
        program.send(SIGTERM)
        assert program.ended() == 0


def test_a_request_that_waits_for_a_run_that_ends_in_the_drain_gets_its_result(tmp_path):
    with serving(tmp_path, steps=1, seconds=2) as program:
        request = Request(program, "/result")
        program.send(SIGTERM)
        assert request.answered() == 200
        assert program.ended() == -SIGTERM
        assert program.run("run").status == "done"


def test_a_request_that_waits_for_a_run_that_was_given_back_does_not_hold_up_the_server(tmp_path):
    with serving(tmp_path, seconds=1, outlast_grace=8) as program:
        request = Request(program, "/result")
        program.send(SIGTERM)
        program.process.wait(15)
        assert request.answered() == 500, "Draining, which the web app may turn into a 503"
        assert_drained(program, "SIGTERM")


def test_a_request_that_waits_for_a_run_of_another_process_does_not_hold_up_the_server(tmp_path):
    with serving(tmp_path, framework="fastapi", seconds=1, outlast_grace=8) as program:
        request = Request(program, "/elsewhere")
        program.until("first-begins")
        program.send(SIGTERM)
        program.process.wait(15)
        assert request.answered() == 500, "Draining, once the grace is over but for its reserve"
        assert_drained(program, "SIGTERM")
        assert program.run("elsewhere").status == "queued"


@workflow(name="one")
async def one_elsewhere(seconds: float) -> str:
    return f"after {seconds}"


async def executes_elsewhere(folder) -> str:
    async with Outlast(f"sqlite:///{folder / 'agents.db'}") as other:
        return await (await other.start(one_elsewhere(1), id="elsewhere")).result()


def test_a_request_that_waits_for_a_run_of_another_process_gets_its_result_while_there_is_grace(tmp_path):
    with serving(tmp_path, framework="fastapi", seconds=1, outlast_grace=30) as program:
        request = Request(program, "/elsewhere")
        program.until("first-begins")
        program.send(SIGTERM)
        program.until("first-ends")
        time.sleep(1)  # the drain is over: this process executes nothing any more
        assert asyncio.run(executes_elsewhere(tmp_path)) == "after 1"
        assert request.answered() == 200
        assert program.ended() == -SIGTERM
        assert_drained(program, "SIGTERM")


@pytest.mark.parametrize("server", ["uvicorn-asyncio", "gunicorn"])
def test_a_step_that_hangs_in_a_thread_does_not_hold_up_the_server(tmp_path, server):
    with serving(tmp_path, server, seconds=3600, in_thread=1, outlast_grace=3) as program:
        program.until("first-begins")
        program.send(SIGTERM)
        assert program.ended() == (0 if server == "gunicorn" else -SIGTERM)
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert program.drain()["not_checkpointed"] == ["run first_in_thread#1"]


# --- the routes, mounted ---


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
def test_the_routes_can_be_mounted_in_a_web_app(tmp_path, framework):
    with serving(tmp_path, framework=framework, seconds=3) as program:
        program.until("first-begins")
        assert program.get("/ops/health") == (200, {"status": "alive"})
        assert program.get("/ops/ready") == (200, {"status": "ready"})
        metrics = httpx.get(program.url + "/ops/metrics", trust_env=False).text
        assert "outlast_runs_in_hand 1.0" in metrics
        assert program.get("/ops/drain")[1]["under_way"][0]["step"] == "first#1"
        assert program.post("/ops/shutdown")[0] == 202
        status, ready = program.get("/ops/ready")
        assert (status, ready["reason"]) == (503, "draining: POST /shutdown from 127.0.0.1")
        program.until(lambda: program.get("/ops/drain")[1]["layer"] == "exit")
        assert program.process.poll() is None, "the program's process is the program's to end"
        assert program.run("run").worker is None
        program.send(SIGTERM)
        assert program.ended() == -SIGTERM
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)


# --- opened by the program, around the server ---


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"] if LONG else ["asyncio"])
@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
@pytest.mark.parametrize("seconds", [0.5, 3.0], ids=["drained-first", "served-first"])
@pytest.mark.parametrize("how", ["outside", "outside-and-on"])
def test_a_server_inside_an_outlast_shuts_down_and_the_signal_has_its_effect_when_both_have(
    tmp_path, how, seconds, number, loop
):
    with executing(tmp_path, "embedded.py", how, loop=loop, seconds=seconds) as program:
        program.until("first-begins")
        request = Request(program, "/?seconds=1.5")
        program.send(number)
        assert request.answered() == 200
        assert program.ended() == -number
        assert_drained(program, number.name)
        assert program.times("served") == 1
        if number == SIGINT:  # SIGTERM ends it where it is raised again
            assert program.word("restored") == "True"
            assert "KeyboardInterrupt" in program.printed


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_server_without_outlast_ends_the_same_way(tmp_path, number):
    with executing(tmp_path, "embedded.py", "plain") as program:
        request = Request(program, "/?seconds=0.5")
        program.send(number)
        assert request.answered() == 200
        assert program.ended() == -number


def test_one_sigint_under_a_server_inside_is_not_two(tmp_path):
    """uvicorn raises it again when it has served: steps under way still have their time."""
    with executing(tmp_path, "embedded.py", "outside", seconds=4) as program:
        program.until("first-begins")
        program.send(SIGINT)
        program.until("served")
        assert program.ended() == -SIGINT
        assert_drained(program, "SIGINT")


def test_two_sigints_under_a_server_inside_are_two(tmp_path):
    with executing(tmp_path, "embedded.py", "outside", seconds=50) as program:
        program.until("first-begins")
        request = Request(program, f"/?seconds={REQUEST_SECONDS}")
        program.send(SIGINT)
        time.sleep(0.5)
        program.send(SIGINT)
        assert program.ended() in {-SIGINT, 130}
        assert request.answered() in {None, 500, *([200] if REQUEST_SECONDS < 50 else [])}, (
            "uvicorn cancels it, or is gone"
        )
        row = program.run("run")
        assert (row.status, row.worker) == ("queued", None)
