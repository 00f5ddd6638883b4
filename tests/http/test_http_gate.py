"""Who may shut a worker down."""

import asyncio
import hmac
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from http_tools import Worker, body, connect, own_address, post, raw, status, until

from outlast.errors import SettingsError
from outlast.http import application, routes

LOOPBACK = ("127.0.0.1", 50000)
ELSEWHERE = ("203.0.113.9", 50000)


def ask(
    worker,
    *,
    client=LOOPBACK,
    server=("127.0.0.1", 8080),
    secret="",
    headers=(("host", "localhost"),),
    app=None,
):
    """The status of POST /shutdown, through the ASGI interface: with any peer there may be."""
    sent = []

    async def main():
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "path": "/shutdown", "raw_path": b"/shutdown",
            "query_string": b"", "root_path": "", "scheme": "http", "client": client, "server": server,
            "headers": [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers],
        }  # fmt: skip
        await (app or routes(worker, secret=secret))(scope, receive, send)

    asyncio.run(main())
    assert (sent[0]["status"] == 202) == bool(worker.begun)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_enough(worker, peer):
    assert ask(worker, client=(peer, 1))[0] == 202


@pytest.mark.parametrize("secret", ["", "swordfish"])
def test_loopback_is_enough_with_a_secret_set_too(worker, secret):
    assert ask(worker, secret=secret)[0] == 202


@pytest.mark.parametrize(
    "peer", ["203.0.113.9", "10.0.0.1", "0.0.0.0", "::ffff:10.0.0.1", "2001:db8::1", "::", "localhost", "", "127.0.0.1.nip.io"]
)  # fmt: skip
def test_other_peers_are_refused(worker, peer):
    assert ask(worker, client=(peer, 1))[0] == 403


def test_a_unix_socket_is_local(worker):
    assert ask(worker, client=None, server=("/run/outlast.sock", None))[0] == 202


@pytest.mark.parametrize("server", [("0.0.0.0", 8080), None])
def test_a_peer_of_whom_nothing_is_known_is_not(worker, server):
    assert ask(worker, client=None, server=server)[0] == 403


def test_the_secret_admits_from_elsewhere(worker):
    headers = [("host", "worker-7"), ("authorization", "Bearer swordfish")]
    assert ask(worker, client=ELSEWHERE, secret="swordfish", headers=headers)[0] == 202


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer swordfis", "Bearer swordfish2", "Basic swordfish", "swordfish", "Bearer SWORDFISH",
     b"Bearer \xff\xfe", "Bearer swordfish swordfish"],
)  # fmt: skip
def test_anything_but_the_secret_does_not(worker, given):
    headers = [("host", "worker-7"), ("authorization", given)]
    assert ask(worker, client=ELSEWHERE, secret="swordfish", headers=headers)[0] == 403


@pytest.mark.parametrize("given", ["Bearer ", "Bearer", "", "Bearer None", "Bearer  "])
def test_without_a_secret_nothing_is_the_secret(worker, given):
    headers = [("host", "worker-7"), ("authorization", given)]
    assert ask(worker, client=ELSEWHERE, headers=headers)[0] == 403


def test_a_secret_need_not_be_ascii(worker):
    headers = [("host", "worker-7"), ("authorization", "bearer żółw ✓".encode())]
    assert ask(worker, client=ELSEWHERE, secret=" żółw ✓\n", headers=headers)[0] == 202


def test_a_secret_that_no_header_can_carry_is_an_error(worker):
    with pytest.raises(SettingsError, match="control character"):
        routes(worker, secret="sword\nfish")


def test_a_refusal_does_not_say_whether_there_is_a_secret():
    assert ask(Worker(), client=ELSEWHERE) == ask(Worker(), client=ELSEWHERE, secret="swordfish")


def test_who_guesses_does_not_fill_the_log(worker, monkeypatch, caplog):
    app, clock = routes(worker, secret="swordfish"), [0.0]
    monkeypatch.setattr(application.time, "monotonic", lambda: clock[0])
    for guess in range(30):
        clock[0] = guess * 0.5
        headers = [("host", "worker-7"), ("authorization", f"Bearer {guess}")]
        assert ask(worker, client=ELSEWHERE, headers=headers, app=app)[0] == 403
    assert [record.getMessage() for record in caplog.records] == [
        "POST /shutdown from 203.0.113.9 was refused",
        "POST /shutdown from 203.0.113.9 was refused, and 19 more since the last such line",
    ]


@pytest.mark.parametrize("secret", ["", "swordfish"])
def test_secrets_are_compared_in_constant_time(worker, monkeypatch, secret):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    ask(worker, client=ELSEWHERE, secret=secret, headers=[("host", "x"), ("authorization", "Bearer guess")])
    ((given, expected),) = compared
    assert given == b"guess"
    assert isinstance(expected, bytes)
    assert len(expected) > 5


@pytest.mark.parametrize(
    "header",
    [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", ""), ("forwarded", "for=127.0.0.1"), ("x-forwarded-host", "localhost"),
     ("x-forwarded-proto", "http"), ("x-real-ip", "127.0.0.1"), ("via", "1.1 nginx")],
)  # fmt: skip
def test_what_was_forwarded_over_loopback_came_from_elsewhere(header):
    headers = [("host", "localhost"), header]
    assert ask(Worker(), headers=headers)[0] == 403
    assert ask(Worker(), headers=[*headers, ("authorization", "Bearer s")], secret="s")[0] == 202
    assert ask(Worker(), client=ELSEWHERE, headers=headers)[0] == 403


@pytest.mark.parametrize(
    "header", [("origin", "http://evil.example"), ("origin", "null"), ("origin", "http://localhost"), ("sec-fetch-site", "cross-site")]
)  # fmt: skip
def test_a_web_page_cannot_do_it(header):
    headers = [("host", "localhost:8080"), header]
    assert ask(Worker(), headers=headers)[0] == 403
    assert ask(Worker(), headers=[*headers, ("authorization", "Bearer s")], secret="s")[0] == 202


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:80", "127.1.2.3:1"]
)
def test_hosts_that_are_this_machine(worker, host):
    assert ask(worker, headers=[("host", host)])[0] == 202


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1@evil.example", "localhost:80:80",
     "localhost/", "localhost#", "", " ", "[::1", "::1", "[127.0.0.1]x", "0.0.0.0", "[::]", "2130706433", "0x7f.1", "localhost,evil",
     "[::ffff:10.0.0.1]", b"localhost\xb2", "localhost.\n"],
)  # fmt: skip
def test_a_name_that_was_rebound_to_loopback_is_refused(worker, host):
    assert ask(worker, headers=[("host", host)])[0] == 403


def test_one_host_is_given(worker):
    assert ask(worker, headers=[])[0] == 403
    assert ask(worker, headers=[("host", "localhost"), ("host", "evil.example")])[0] == 403


# -- over real sockets


def test_over_another_interface_the_secret_is_needed(serve, worker, elsewhere):
    url = serve("0.0.0.0:0", secret="swordfish")
    answer = raw(url, post(), host=elsewhere)
    assert (status(answer), body(answer)) == (403, {"error": "only over loopback, or with the secret"})
    assert status(raw(url, post("X-Forwarded-For: 127.0.0.1"), host=elsewhere)) == 403
    assert worker.begun == []
    assert status(raw(url, post("Authorization: Bearer swordfish"), host=elsewhere)) == 202
    assert worker.begun == [f"POST /shutdown from {elsewhere}"]
    assert status(raw(url, b"GET /ready HTTP/1.0\r\n\r\n", host=elsewhere)) == 200


def test_a_remote_peer_that_resets_its_connection_is_not_taken_for_local(serve, worker, elsewhere):
    """Its address cannot be asked for any more when it is accepted, but what it sent can be read."""
    url = serve("0.0.0.0:0")
    worker.pause = 0.5
    busy = threading.Thread(target=raw, args=(url, b"GET /ready HTTP/1.0\r\n\r\n"))
    busy.start()
    time.sleep(0.2)
    for _ in range(10):
        client = connect(url, elsewhere)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(post())
        client.close()
    busy.join()
    worker.pause = 0.0
    assert status(raw(url, b"GET /ready HTTP/1.0\r\n\r\n")) == 200
    time.sleep(0.2)
    assert worker.begun == []


def test_two_hosts_are_no_request(serve, worker):
    request = post("Host: evil.example")
    assert status(raw(serve(), request)) == 400
    assert worker.begun == []


PROGRAM = """
import sys, uvicorn
sys.path.insert(0, {tests!r})
from http_tools import Worker
from starlette.applications import Starlette
from starlette.routing import Mount
from outlast.http import application, routes

class Told(Worker):
    def begin_drain(self, reason):
        print(reason, flush=True)

web = Starlette(routes=[Mount("/ops", routes(Told(), secret="swordfish"))])
uvicorn.run(web, log_level="warning", {where})
"""


@pytest.fixture
def mounted(tmp_path):
    """The routes under /ops of somebody's own server, a process with uvicorn's defaults."""
    started = []

    def start(where: str) -> subprocess.Popen:
        program = PROGRAM.format(tests=str(Path(__file__).parent), where=where)
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_mounted_in_a_server_that_believes_proxies(mounted, client):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = mounted(f"host='0.0.0.0', port={port}")
    url = f"http://127.0.0.1:{port}/ops"

    def up():
        assert process.poll() is None, process.stderr.read()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(up)
    assert client.get(f"{url}/health").json() == {"status": "alive"}
    assert client.get(f"{url}/shutdown").status_code == 405
    assert client.get(f"{url}/nothing").json() == {"error": "Not Found"}
    assert "outlast" not in client.get(f"{url}/metrics").text
    assert client.post(f"{url}/shutdown", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 403
    assert client.post(f"{url}/shutdown", headers={"host": "evil.example"}).status_code == 403
    assert client.post(f"{url}/shutdown", content=b"x" * 5000).status_code == 413
    assert client.post(f"{url}/shutdown", json={"reason": "deploy"}).status_code == 202
    assert process.stdout.readline() == "POST /shutdown from 127.0.0.1: deploy\n"
    if address := own_address():
        remote = f"http://{address}:{port}/ops/shutdown"
        assert client.post(remote).status_code == 403
        assert client.post(remote, headers={"authorization": "Bearer swordfish"}).status_code == 202


def test_mounted_in_a_server_on_a_unix_socket(mounted, tmp_path):
    path = str(tmp_path / "s")
    process = mounted(f"uds={path!r}")

    def up():
        assert process.poll() is None, process.stderr.read()
        return Path(path).exists()

    until(up)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        until(lambda: client.connect_ex(path) == 0)
        client.sendall(post(path="/ops/shutdown"))
        assert status(client.recv(65536)) == 202
    assert process.stdout.readline() == "POST /shutdown from a unix socket\n"
