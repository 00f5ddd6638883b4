"""`outlast serve` as a process."""

import re
import signal
import subprocess
import sys

import httpx
import pytest

from support.waiting import WAIT_SECONDS, wait_until

AGENT = """
from outlast import receive, workflow


@workflow
async def asking(question: str) -> str:
    return question + await receive("answer")
"""
TOKEN = "operator-token-0123456789"
WORKER_LOADS_NO_FASTAPI = """
import sys
import outlast, outlast.http, outlast.cli.worker, outlast.cli.app
print(sorted({"fastapi", "starlette", "uvicorn"} & set(sys.modules)))
"""


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Start `outlast serve`, and return its process and its URL."""
    processes = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)

    def start(*words, tokens=f"olga:operator:{TOKEN}"):
        log = tmp_path / f"serve-{len(processes)}.log"
        monkeypatch.setenv("OUTLAST_API_TOKENS", tokens)
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "outlast", "serve", *words, "--listen", "127.0.0.1:0"],
                stdout=out,
                stderr=out,
            )
        processes.append(process)

        def url():
            assert process.poll() is None, log.read_text()
            return re.search(r"Serving at (http://[0-9.:]+)", log.read_text())

        return process, wait_until(url, log.read_text)[1], log

    yield start
    for process in processes:
        process.kill()
        process.wait()


def client_of(url, token=TOKEN):
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=WAIT_SECONDS, trust_env=False)


def test_server_answers_drains_and_exits(serve):
    process, url, log = serve("agent.py")
    with client_of(url) as client:
        body = {"workflow": "asking", "args": ["?"], "id": "a"}
        assert client.post("/v1/runs", json=body).status_code == 201
        assert client.get("/v1/runs/a").json()["run"]["by"] == "olga"
        assert client.get("/health").status_code == 200
        assert client.get("/ready").status_code == 200
        with client.stream("GET", "/v1/runs/a/watch") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            text = "\n".join(lines)
        assert ": this server shuts down" in text
        assert "\nid: " in text
    assert process.wait(WAIT_SECONDS) == 0
    assert TOKEN not in log.read_text()


def test_drained_server_is_not_ready_when_its_streams_end_and_another_goes_on(serve):
    process, url, _ = serve("agent.py")
    with client_of(url) as client:
        client.post("/v1/runs", json={"workflow": "asking", "args": ["?"], "id": "a"})
        with client.stream("GET", "/v1/runs/a/watch") as answer:
            lines = answer.iter_lines()
            cursor = next(line for line in lines if line.startswith("id: "))
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        # The process still answers for a moment, but a slow machine may miss it.
        assert set(ready_until_gone(client)) <= {503}
    assert process.wait(WAIT_SECONDS) == 0
    last = max(index for index, line in enumerate(rest) if "shuts down" in line)
    assert rest[last + 1 : last + 3] == [cursor, "retry: 1000"]
    _, url, _ = serve("agent.py")
    with client_of(url) as client:
        client.post("/v1/runs/a/cancel")
        headers = {"last-event-id": cursor.removeprefix("id: ")}
        answer = client.get("/v1/runs/a/watch", headers=headers)
    kinds = [line for line in answer.text.splitlines() if line.startswith("event: ")]
    assert "event: reset" not in kinds
    assert kinds[-1] == "event: end"


def ready_until_gone(client):
    """Yield the answers of `/ready` until nothing listens any more."""
    while True:
        try:
            yield client.get("/ready").status_code
        except httpx.TransportError:
            return


def test_without_a_module_runs_can_be_inspected(serve):
    _, url, _ = serve("agent.py")
    with client_of(url) as client:
        client.post("/v1/runs", json={"workflow": "asking", "args": ["?"], "id": "a"})
    _, other, _ = serve()
    with client_of(other) as client:
        assert [run["id"] for run in client.get("/v1/runs").json()["runs"]] == ["a"]
        answer = client.post("/v1/runs", json={"workflow": "asking", "args": ["?"]})
        assert answer.status_code == 422
        assert client.post("/v1/runs/a/cancel").json()["run"]["status"] == "cancelled"


def test_loopback_without_tokens_must_be_asked_for(serve, tmp_path):
    _, url, _ = serve("--insecure-loopback", tokens="")
    with client_of(url, None) as client:
        me = client.get("/v1/me").json()
        assert (me["name"], me["role"]) == ("loopback", "operator")
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "serve", "--listen", "127.0.0.1:0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 2
    assert "nothing says who may use it" in done.stderr


def test_server_that_is_killed_leaves_what_it_acknowledged(serve):
    process, url, _ = serve("agent.py")
    with client_of(url) as client:
        client.post("/v1/runs", json={"workflow": "asking", "args": ["?"], "id": "a"})
    process.kill()
    process.wait()
    _, url, _ = serve("agent.py")
    with client_of(url) as client:
        again = client.post("/v1/runs", json={"workflow": "asking", "args": ["?"], "id": "a"})
        assert (again.status_code, again.json()["run"]["by"]) == (200, "olga")


def test_importing_outlast_and_a_worker_loads_no_web_framework():
    done = subprocess.run(
        [sys.executable, "-c", WORKER_LOADS_NO_FASTAPI],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stdout == "[]\n", done.stderr
