"""Slow, huge, malformed or many clients do not take the server away from others."""

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from http_tools import answer, body, connect, post, raw, read_all, status

from outlast.http import connection, uvicorn_adapter
from outlast.http.connection import CONNECTIONS_MAX, REQUEST_SECONDS_MAX
from outlast.http.uvicorn_adapter import KEEP_ALIVE_SECONDS
from support.waiting import WAIT_SECONDS, wait_until

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


REQUEST_SECONDS = 1.0
"""The limit for a request in tests that wait for its end."""
NEVER = 3600.0


def trickle(client: socket.socket, request: bytes, pause: float = 0.1) -> None:
    """Send a request byte by byte until the server cuts the connection."""
    client.settimeout(pause)
    for byte in itertools.chain(request, itertools.repeat(ord("y"), int(WAIT_SECONDS / pause))):
        try:
            client.sendall(bytes([byte]))
            if client.recv(1) == b"":
                return
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return
        else:
            raise AssertionError("the server answered")
    raise AssertionError("the server never cut the connection")


SLOW_HEADERS = b"GET /health HTTP/1.1\r\nHost: x\r\nX: "
SLOW_BODY = post(host="localhost").replace(b"Content-Length: 0", b"Content-Length: 900")


def send_slow_headers(url: str) -> None:
    with connect(url) as slow:
        trickle(slow, SLOW_HEADERS)


def send_slow_second_request(url: str) -> None:
    with connect(url) as slow:
        slow.sendall(GET)
        assert status(answer(slow)) == 200
        trickle(slow, SLOW_HEADERS)


def send_slow_body(url: str) -> None:
    with connect(url) as slow:
        slow.sendall(SLOW_BODY)
        trickle(slow, b"")


def send_nothing(url: str) -> None:
    with connect(url) as slow:
        assert read_all(slow) == b""


def test_slow_clients_are_cut_off_in_time(serve, worker, monkeypatch):
    """Each request has its own time, which further bytes do not extend."""
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", REQUEST_SECONDS)
    url = serve()

    def time_of(send: Callable[[str], None]) -> float:
        began = time.monotonic()
        send(url)
        return time.monotonic() - began

    clients = [send_slow_headers, send_slow_second_request, send_slow_body, send_nothing]
    with ThreadPoolExecutor(len(clients)) as threads:
        seconds = list(threads.map(time_of, clients))
    assert min(seconds) >= REQUEST_SECONDS * 0.99, seconds
    assert status(raw(url, b"GET /ready HTTP/1.0\r\n\r\n")) == 200
    assert worker.begun == []


def test_request_limit_is_five_seconds_and_longer_than_keep_alive():
    assert REQUEST_SECONDS_MAX == 5.0
    assert KEEP_ALIVE_SECONDS < REQUEST_SECONDS_MAX


def test_idle_connections_are_closed_before_the_request_limit(serve, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", NEVER)
    monkeypatch.setattr(uvicorn_adapter, "KEEP_ALIVE_SECONDS", 0.1)
    with connect(serve()) as idle:
        idle.sendall(GET)
        assert status(read_all(idle)) == 200


def test_a_client_that_never_reads_is_cut_off(serve, worker, client, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", REQUEST_SECONDS)
    worker.view = {"filling": "x" * 20_000_000}
    url = serve()
    with connect(url, buffer=65536) as unread, connect(url, buffer=65536) as closing:
        unread.sendall(b"GET /drain HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        closing.sendall(b"GET /drain HTTP/1.0\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: serve.count_connections() == 2)
        serve.wait_until_idle()
        for one in (unread, closing):
            assert len(read_all(one)) < 20_000_000, "the server sends nothing after the cut"
    assert client.get(f"{url}/health").status_code == 200


def test_huge_body_is_refused_before_it_is_complete(serve, worker):
    url = serve()
    request = post(content=b"x" * 10_000_000).replace(
        b"Connection: close", b"Connection: keep-alive"
    )
    with connect(url) as client:
        sender = threading.Thread(target=lambda: _send(client, request))
        sender.start()
        assert status(answer(client)) == 413
        client.shutdown(socket.SHUT_RDWR)
        sender.join()
    assert worker.begun == []


def _send(client: socket.socket, request: bytes) -> None:
    try:
        client.sendall(request)
    except OSError:
        pass


def chunked(*chunks: bytes) -> bytes:
    head = b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


def test_chunked_body_has_the_same_size_limit(serve, worker):
    url = serve()
    assert status(raw(url, chunked(b'{"reason":', b' "in pieces"}', b""))) == 202
    assert worker.begun == ["POST /shutdown from 127.0.0.1: in pieces"]
    assert status(raw(url, chunked(*[b"x" * 100] * 11, b""))) == 413
    assert status(raw(url, chunked(*[b"x"] * 1025, b""))) == 413
    assert len(worker.begun) == 1


def test_malformed_body_begins_no_drain_and_logs_no_error(serve, worker, client, caplog):
    url = serve()
    with caplog.at_level(logging.ERROR):
        assert status(raw(url, chunked(b"{}") + b"zz\r\nnonsense\r\n")) == 400
        assert status(raw(url, chunked(b"x" * 2000) + b"zz\r\nnonsense\r\n")) == 400
        with connect(url) as one:
            one.sendall(chunked(b"x" * 2000).replace(b"close", b"keep-alive"))
            assert status(answer(one)) == 413
            one.sendall(b"zz\r\nnonsense\r\n")
            assert read_all(one) == b""
    assert client.get(f"{url}/health").status_code == 200
    assert caplog.records == []
    assert worker.begun == []


def test_truncated_body_begins_no_drain(serve, worker, client, caplog):
    url = serve()
    with caplog.at_level(logging.ERROR):
        with connect(url) as short:
            short.sendall(post(content=b'{"reason": "x"}')[:-5])
            short.shutdown(socket.SHUT_WR)
            read_all(short)
        with connect(url) as gone:
            gone.sendall(post(content=b'{"reason": "x"}')[:-5])
        serve.wait_until_idle()
    assert worker.begun == []
    assert caplog.records == []
    assert client.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /shutdown HTTP/1.1\r\n\r\n",
        b"POST /shutdown HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9000,
        b"GET /" + b"y" * 9000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
        b"\r\n\r\nnonsense\r\n\r\n",
    ],
    ids=range(11),
)
def test_malformed_requests_get_a_400(serve, worker, client, request_, caplog):
    url = serve()
    with caplog.at_level(logging.ERROR):
        said = raw(url, request_)
    assert status(said) == 400
    assert "error" in body(said)
    assert b"cache-control: no-store" in said.lower()
    assert worker.begun == []
    assert caplog.records == []
    assert client.get(f"{url}/health").status_code == 200


HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "


@pytest.mark.parametrize("packets", ["one", "of a byte"])
@pytest.mark.parametrize("size", [8300, 100_000])
def test_headers_over_the_limit_are_refused(serve, client, size, packets):
    url = serve()
    request = HEAD + b"y" * size + b"\r\n\r\n"
    with connect(url) as hostile:
        hostile.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for at in range(0, len(request), 1 if packets == "of a byte" else len(request)):
                hostile.sendall(request[at : at + (1 if packets == "of a byte" else len(request))])
        except OSError:
            pass  # it has been cut off
        said = read_all(hostile)
    assert said == b"" or status(said) == 400
    assert b"alive" not in said
    assert client.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"y" * 8300 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        HEAD + b"y\r\n" + b"Z: 1\r\n" * 1500 + b"\r\n",
        b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\nX: "
        + b"y" * 8300
        + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + b"y" * 8300 + b"\r\n\r\n",
    ],
    ids=["a long target", "many", "trailers", "the second of two"],
)
def test_target_headers_and_trailers_count_towards_the_limit(serve, worker, request_):
    said = raw(serve(), request_)
    assert b" 400 " in said
    assert worker.begun == []


def test_headers_up_to_the_limit_are_read(serve):
    assert status(raw(serve(), HEAD + b"y" * 8000 + b"\r\n\r\n")) == 200


def test_malformed_requests_are_logged_at_a_limited_rate(serve, caplog, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    url = serve()
    for _ in range(30):
        assert status(raw(url, b"nonsense\r\n\r\n")) == 400
    clock[0] += connection.LOG_SECONDS
    raw(url, b"nonsense\r\n\r\n")
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == [
        "Invalid HTTP request received.",
        "Invalid HTTP request received. 29 more since the last such line.",
    ]


def test_request_smuggling_begins_no_drain(serve, worker):
    smuggled = b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = (
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(smuggled), smuggled)
    )
    assert status(raw(serve(), request)) in {400, 405}
    assert worker.begun == []


def test_upgrade_header_is_ignored(serve):
    request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert status(raw(serve(), request)) == 200


def test_pipelined_requests_are_answered_in_order(serve, worker):
    worker.reason = "starting"
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    said = raw(serve(), GET * 50 + b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n" + last)
    codes = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]
    assert codes == [200] * 50 + [503, 404]


def test_silent_connections_do_not_block_others(serve, client, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_SECONDS_MAX", NEVER)
    url = serve()
    silent = []
    try:
        for _ in range(2 * CONNECTIONS_MAX):
            silent.append(connect(url))
        for _ in range(20):
            assert client.get(f"{url}/ready", headers={"connection": "close"}).status_code == 200
        assert 0 < serve.count_connections() <= CONNECTIONS_MAX
    finally:
        for one in silent:
            one.close()


def test_many_clients_at_once_are_answered(serve):
    url, codes = serve(), []

    def ask():
        for _ in range(5):
            codes.append(status(raw(url, b"GET /health HTTP/1.0\r\n\r\n")))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 150
