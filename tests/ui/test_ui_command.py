"""`outlast ui` as a process."""

import re
import signal
import subprocess
import sys

import httpx
import pytest

from support.waiting import WAIT_SECONDS, wait_until

TOKEN = "operator-token-0123456789"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start `outlast ui`, and return its process and the link that it prints."""
    processes = []
    monkeypatch.chdir(tmp_path)

    def start(*words, tokens=""):
        log = tmp_path / f"ui-{len(processes)}.log"
        monkeypatch.setenv("OUTLAST_API_TOKENS", tokens)
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "outlast", "ui", "--listen", "127.0.0.1:0", *words],
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
