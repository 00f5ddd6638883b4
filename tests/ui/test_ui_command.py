"""`outlast ui` as a process."""

import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from support.ports import free_port
from support.waiting import WAIT_SECONDS, wait_until

TOKEN = "operator-token-0123456789"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start `outlast ui`, and return its process and the link that it prints."""
    processes = []
    monkeypatch.chdir(tmp_path)

    def start(*words, tokens="", command=("ui", "--listen")):
        log = tmp_path / f"ui-{len(processes)}.log"
        monkeypatch.setenv("OUTLAST_API_TOKENS", tokens)
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "outlast", *command, "127.0.0.1:0", *words],
                stdout=out,
                stderr=out,
            )
        processes.append(process)

        def link():
            assert process.poll() is None, log.read_text()
            return re.search(r"^Open (http://[0-9.:]+)(/\S*)$", log.read_text(), re.MULTILINE)

        found = wait_until(link, log.read_text)
        return process, found[1], found[2], log

    yield start
    for process in processes:
        process.kill()
        process.wait()


def browser(url):
    return httpx.Client(
        base_url=url,
        headers={"origin": url},
        timeout=WAIT_SECONDS,
        trust_env=False,
        follow_redirects=True,
    )


def test_printed_link_signs_its_reader_in_and_the_process_drains(start):
    process, url, path, log = start()
    with browser(url) as client:
        assert "Sign in" in client.get("/").text
        token = re.search(r'name="token"[^>]*value="([^"]+)"', client.get(path).text)[1]
        home = client.post("/login", data={"token": token, "next": "/"})
        assert "Nothing needs a person." in home.text
        assert client.get("/ready").status_code == 200
        assert client.get("/v1/runs").status_code == 401
        api = client.get("/v1/me", headers={"authorization": f"Bearer {token}"}).json()
        assert (api["name"], api["role"]) == ("local", "operator")
        with client.stream("GET", "/live/") as live:
            lines = live.iter_lines()
            assert next(lines) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            list(lines)
    assert process.wait(WAIT_SECONDS) == 0
    assert log.read_text().count(token) == 1


PROGRAM = """
import time
from pathlib import Path
from outlast import step, workflow

@step
async def block() -> str:
    Path("blocked").touch()
    while not Path("go-on").exists():
        time.sleep(0.01)
    return "done"

@workflow
async def blocking() -> str:
    return await block()
"""


def test_worker_serves_the_pages_beside_its_work(start, tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text(PROGRAM)
    monkeypatch.setenv("OUTLAST_STORE", f"sqlite:///{tmp_path}/a.db")
    port = free_port()
    monkeypatch.setenv("OUTLAST_HTTP", f"127.0.0.1:{port}")
    process, url, path, log = start(command=("worker", "agent.py", "--ui"))
    token = path.removeprefix("/login?token=")
    with browser(url) as client, browser(f"http://127.0.0.1:{port}") as routes:
        client.post("/login", data={"token": token, "next": "/"})
        headers = {"authorization": f"Bearer {token}"}
        body = {"workflow": "blocking", "id": "r1"}
        assert client.post("/v1/runs", json=body, headers=headers).status_code == 201
        wait_until((tmp_path / "blocked").exists)
        assert routes.get("/metrics").status_code == 200, "it answers while the loop is blocked"
        assert routes.get("/").status_code == 404, "and has no pages"
        (tmp_path / "go-on").touch()
        wait_until(lambda: ">done</span>" in client.get("/runs/r1").text)
        process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0, log.read_text()
    assert "worker has stopped" in log.read_text()


def test_worker_whose_address_is_taken_claims_nothing(tmp_path):
    (tmp_path / "agent.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "outlast", "worker", "agent.py", "--ui", address],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
    assert done.returncode == 2, done.stderr
    assert address in done.stderr
    assert "worker is ready" not in done.stderr


def test_tokens_of_the_settings_are_not_printed(start):
    _, url, path, log = start(tokens=f"olga:operator:{TOKEN}")
    assert path == "/"
    assert TOKEN not in log.read_text()
    with browser(url) as client:
        assert client.post("/login", data={"token": TOKEN, "next": "/runs"}).status_code == 200


def test_ui_for_others_needs_tokens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLAST_API_TOKENS", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "outlast", "ui", "--listen", "0.0.0.0:0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 2
    assert "OUTLAST_API_TOKENS" in done.stderr
