"""Who may shut a worker down."""

import ast
import asyncio
import hmac
import json
import socket
import threading
from pathlib import Path

import pytest
from http_tools import Worker, body, connect, own_address, post, raw, status

from outlast.errors import SettingsError
from outlast.http import application, routes
from outlast.http.application import REFUSED
from outlast.http.routes import routes_at
from support.processes import Program
from support.waiting import WAIT_SECONDS

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
    path="/shutdown",
):
    """The status of POST /shutdown, or GET another path, by the ASGI interface: with any peer."""
    sent = []

    async def main():
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "http_version": "1.1", "method": "POST" if path == "/shutdown" else "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "root_path": "", "scheme": "http", "client": client, "server": server,
            "headers": [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers],
        }  # fmt: skip
        await (app or routes(worker, secret=secret))(scope, receive, send)

    asyncio.run(main())
    assert (sent[0]["status"] == 202) == bool(worker.begun)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_shutdown_is_allowed_from_loopback(worker, peer):
    assert ask(worker, client=(peer, 1))[0] == 202


@pytest.mark.parametrize("path", ["/shutdown", "/drain"])
@pytest.mark.parametrize("client", [LOOPBACK, ("::1", 1), None])
def test_configured_secret_is_required_from_loopback(path, client):
    """A default nginx asks over loopback, by a loopback name, and does not say that it forwards."""
    server = ("127.0.0.1", 8080) if client else ("/run/outlast.sock", None)
    headers = [("host", "127.0.0.1:8080"), ("connection", "close")]
    assert (
        ask(Worker(), path=path, client=client, server=server, headers=headers, secret="s")[0]
        == 403
    )
    for wrong in ("Bearer", "Bearer ", "Bearer t", "Basic s"):
        given = [*headers, ("authorization", wrong)]
        assert (
            ask(Worker(), path=path, client=client, server=server, headers=given, secret="s")[0]
            == 403
        )
    given = [*headers, ("authorization", "Bearer s")]
    answer = ask(Worker(), path=path, client=client, server=server, headers=given, secret="s")
    assert answer[0] in (200, 202)


@pytest.mark.parametrize(
    "peer", ["203.0.113.9", "10.0.0.1", "0.0.0.0", "::ffff:10.0.0.1", "2001:db8::1", "::", "localhost", "", "127.0.0.1.nip.io"]
)  # fmt: skip
def test_other_peers_cannot_shut_down(worker, peer):
    assert ask(worker, client=(peer, 1))[0] == 403


def test_unix_socket_counts_as_local(worker):
    assert ask(worker, client=None, server=("/run/outlast.sock", None))[0] == 202


@pytest.mark.parametrize("server", [("0.0.0.0", 8080), None])
def test_unknown_peer_is_refused(worker, server):
    assert ask(worker, client=None, server=server)[0] == 403


def test_secret_allows_remote_shutdown(worker):
    headers = [("host", "worker-7"), ("authorization", "Bearer swordfish")]
    assert ask(worker, client=ELSEWHERE, secret="swordfish", headers=headers)[0] == 202


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer swordfis", "Bearer swordfish2", "Basic swordfish", "swordfish", "Bearer SWORDFISH",
     b"Bearer \xff\xfe", "Bearer swordfish swordfish"],
)  # fmt: skip
def test_wrong_secret_is_refused(worker, given):
    headers = [("host", "worker-7"), ("authorization", given)]
    assert ask(worker, client=ELSEWHERE, secret="swordfish", headers=headers)[0] == 403


@pytest.mark.parametrize("given", ["Bearer ", "Bearer", "", "Bearer None", "Bearer  "])
def test_no_token_is_accepted_without_a_secret(worker, given):
    headers = [("host", "worker-7"), ("authorization", given)]
    assert ask(worker, client=ELSEWHERE, headers=headers)[0] == 403


def test_secret_may_contain_non_ascii(worker):
    headers = [("host", "worker-7"), ("authorization", "bearer żółw ✓".encode())]
    assert ask(worker, client=ELSEWHERE, secret=" żółw ✓\n", headers=headers)[0] == 202


def test_secret_with_control_characters_is_an_error(worker):
    with pytest.raises(SettingsError, match="control character"):
        routes(worker, secret="sword\nfish")


def test_refusal_does_not_reveal_whether_a_secret_is_set():
    assert ask(Worker(), client=ELSEWHERE) == ask(Worker(), client=ELSEWHERE, secret="swordfish")


def test_refused_guesses_are_logged_at_a_limited_rate(worker, monkeypatch, caplog):
    app, clock = routes(worker, secret="swordfish"), [0.0]
    monkeypatch.setattr(application.time, "monotonic", lambda: clock[0])
    for guess in range(30):
        clock[0] = guess * 0.5
        headers = [("host", "worker-7"), ("authorization", f"Bearer {guess}")]
        assert ask(worker, client=ELSEWHERE, headers=headers, app=app)[0] == 403
    assert [record.getMessage() for record in caplog.records] == [
        "POST /shutdown from 203.0.113.9 was refused.",
        "POST /shutdown from 203.0.113.9 was refused, and 19 more since the last such line.",
    ]


@pytest.mark.parametrize("secret", ["", "swordfish"])
def test_secrets_are_compared_in_constant_time(worker, monkeypatch, secret):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or real(a, b))
    ask(
        worker,
        client=ELSEWHERE,
        secret=secret,
        headers=[("host", "x"), ("authorization", "Bearer guess")],
    )
    ((given, expected),) = compared
    assert given == b"guess"
    assert isinstance(expected, bytes)
    assert len(expected) > 5


@pytest.mark.parametrize(
    "header",
    [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", ""), ("forwarded", "for=127.0.0.1"), ("x-forwarded-host", "localhost"),
     ("x-forwarded-proto", "http"), ("x-real-ip", "127.0.0.1"), ("via", "1.1 nginx")],
)  # fmt: skip
def test_forwarded_request_over_loopback_counts_as_remote(header):
    headers = [("host", "localhost"), header]
    assert ask(Worker(), headers=headers)[0] == 403
    assert ask(Worker(), headers=[*headers, ("authorization", "Bearer s")], secret="s")[0] == 202
    assert ask(Worker(), client=ELSEWHERE, headers=headers)[0] == 403


@pytest.mark.parametrize(
    "header", [("origin", "http://evil.example"), ("origin", "null"), ("origin", "http://localhost"), ("sec-fetch-site", "cross-site")]
)  # fmt: skip
def test_web_page_cannot_shut_down_a_worker(header):
    headers = [("host", "localhost:8080"), header]
    assert ask(Worker(), headers=headers)[0] == 403
    assert ask(Worker(), headers=[*headers, ("authorization", "Bearer s")], secret="s")[0] == 202


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:80",
        "127.1.2.3:1",
    ],
)
def test_local_host_headers_are_accepted(worker, host):
    assert ask(worker, headers=[("host", host)])[0] == 202


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1@evil.example", "localhost:80:80",
     "localhost/", "localhost#", "", " ", "[::1", "::1", "[127.0.0.1]x", "0.0.0.0", "[::]", "2130706433", "0x7f.1", "localhost,evil",
     "[::ffff:10.0.0.1]", b"localhost\xb2", "localhost.\n"],
)  # fmt: skip
def test_rebound_host_name_cannot_shut_down(worker, host):
    assert ask(worker, headers=[("host", host)])[0] == 403


REBOUND = ["evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.8.nip.io", "10.0.0.8@evil.example", "0.0.0.0:8080",
           "[::]:8080", "", "10.0.0.9", "10.0.0.8, evil.example", "167772168", "[::ffff:10.0.0.9]"]  # fmt: skip


@pytest.mark.parametrize("host", REBOUND)
def test_rebound_host_name_cannot_read_the_drain(worker, host):
    server = ("10.0.0.8", 8080)
    assert ask(worker, path="/drain", headers=[("host", host)], server=server)[0] == 403


@pytest.mark.parametrize("headers", [[], [("host", "localhost"), ("host", "localhost")]])
def test_drain_needs_exactly_one_host_header(worker, headers):
    assert ask(worker, path="/drain", headers=headers)[0] == 403


@pytest.mark.parametrize(
    "host", ["localhost:1", "127.0.0.1", "[::1]:8080", "10.0.0.8:8080", "[::ffff:10.0.0.8]"]
)
@pytest.mark.parametrize("server", [("10.0.0.8", 8080), ("::ffff:10.0.0.8", 8080)])
def test_drain_is_readable_by_server_address_without_a_secret(worker, host, server):
    found = ask(worker, path="/drain", client=ELSEWHERE, headers=[("host", host)], server=server)
    assert found == (200, worker.view)


@pytest.mark.parametrize("path", ["/shutdown", "/drain"])
def test_configured_host_name_is_accepted(path, worker):
    app = routes_at(worker, "Worker-7", None, None)
    assert ask(worker, path=path, headers=[("host", "worker-7:8080")], app=app)[0] in (200, 202)
    assert ask(Worker(), path=path, headers=[("host", "worker-8:8080")], app=app)[0] == 403


def test_wildcard_address_is_not_a_host_name():
    """Browsers let a page send a request to 0.0.0.0, which is this machine."""
    worker = Worker()
    app = routes_at(worker, "0.0.0.0", None, None)
    assert ask(worker, headers=[("host", "0.0.0.0:8080")], app=app)[0] == 403


def test_shutdown_needs_exactly_one_host_header(worker):
    assert ask(worker, headers=[])[0] == 403
    assert ask(worker, headers=[("host", "localhost"), ("host", "evil.example")])[0] == 403


# -- over real sockets


def test_secret_is_required_over_another_interface(serve, worker, elsewhere):
    url = serve("0.0.0.0:0", secret="swordfish")
    answer = raw(url, post(), host=elsewhere)
    assert (status(answer), body(answer)) == (403, {"error": REFUSED})
    assert status(raw(url, post("X-Forwarded-For: 127.0.0.1"), host=elsewhere)) == 403
    assert worker.begun == []
    assert status(raw(url, post("Authorization: Bearer swordfish"), host=elsewhere)) == 202
    assert worker.begun == [f"POST /shutdown from {elsewhere}"]
    assert status(raw(url, b"GET /ready HTTP/1.0\r\n\r\n", host=elsewhere)) == 200


def test_reset_remote_connection_does_not_count_as_local(serve, worker, elsewhere):
    """Its address cannot be asked for any more when it is accepted, but what it sent can be read."""
    url = serve("0.0.0.0:0")
    worker.gate.clear()
    busy = threading.Thread(target=raw, args=(url, b"GET /ready HTTP/1.0\r\n\r\n"))
    busy.start()
    assert worker.blocked.wait(WAIT_SECONDS)
    for _ in range(10):
        client = connect(url, elsewhere)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(post())
        client.close()
    worker.gate.set()
    busy.join()
    assert status(raw(url, b"GET /ready HTTP/1.0\r\n\r\n")) == 200
    serve.wait_until_idle()
    assert worker.begun == []


def test_two_host_headers_are_a_bad_request(serve, worker):
    request = post("Host: evil.example")
    assert status(raw(serve(), request)) == 400
    assert worker.begun == []


PROGRAM = """
import socket, sys, uvicorn
sys.path[:0] = {paths}
from http_tools import Worker
from starlette.applications import Starlette
from starlette.routing import Mount
from outlast.http import routes

class Printing(Worker):
    def begin_drain(self, reason):
        print(reason, flush=True)

web = Starlette(routes=[Mount("/ops", routes(Printing(), secret="swordfish"))])
listener = {listener}
print("listens", listener.getsockname(), flush=True)
uvicorn.Server(uvicorn.Config(web, log_level="warning")).run(sockets=[listener])
"""


def mounted(folder: Path, listener: str) -> Program:
    """Start another server, with uvicorn's defaults, that has the routes under /ops."""
    here = Path(__file__).parent
    program = PROGRAM.format(paths=[str(here), str(here.parent)], listener=listener)
    return Program.python("-c", program, folder=folder)


def test_mounted_routes_do_not_trust_proxy_headers(tmp_path, client):
    with mounted(tmp_path, "socket.create_server(('0.0.0.0', 0))") as process:
        _, port = ast.literal_eval(process.wait_for_line("listens").removeprefix("listens "))
        url = f"http://127.0.0.1:{port}/ops"
        assert client.get(f"{url}/health").json() == {"status": "alive"}
        assert client.get(f"{url}/shutdown").status_code == 405
        assert client.get(f"{url}/nothing").json() == {"error": "Not Found"}
        assert "outlast" not in client.get(f"{url}/metrics").text
        assert (
            client.post(f"{url}/shutdown", headers={"x-forwarded-for": "127.0.0.1"}).status_code
            == 403
        )
        assert client.post(f"{url}/shutdown", headers={"host": "evil.example"}).status_code == 403
        assert client.post(f"{url}/shutdown").status_code == 403
        assert client.get(f"{url}/drain").status_code == 403
        client.headers["authorization"] = "Bearer swordfish"
        assert client.get(f"{url}/drain").status_code == 200
        assert client.post(f"{url}/shutdown", content=b"x" * 5000).status_code == 413
        assert client.post(f"{url}/shutdown", json={"reason": "deploy"}).status_code == 202
        assert process.wait_for_line("POST") == "POST /shutdown from 127.0.0.1: deploy"
        if address := own_address():
            remote = f"http://{address}:{port}/ops/shutdown"
            assert client.post(remote).status_code == 202
            assert client.post(remote, headers={"authorization": "Bearer other"}).status_code == 403


def test_mounted_routes_work_on_a_unix_socket(tmp_path):
    path = str(tmp_path / "s")
    with mounted(tmp_path, f"socket.create_server({path!r}, family=socket.AF_UNIX)") as process:
        process.wait_for_line("listens")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(WAIT_SECONDS)
            client.connect(path)
            client.sendall(post("Authorization: Bearer swordfish", path="/ops/shutdown"))
            assert status(client.recv(65536)) == 202
        assert process.wait_for_line("POST") == "POST /shutdown from a unix socket"
