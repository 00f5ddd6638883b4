"""Clients that are slow, huge, many or wrong. None of them takes the server away from the others."""

import logging
import socket
import threading
import time

import pytest
from http_tools import answer, body, connect, post, raw, read_all, status

from outlast.http.connection import CONNECTIONS_MAX, REQUEST_SECONDS_MAX

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def trickle(client: socket.socket, request: bytes, pause: float = 0.2) -> float:
    """Byte by byte: after how many seconds the server had enough."""
    began = time.monotonic()
    client.settimeout(pause)
    for byte in request:
        try:
            client.sendall(bytes([byte]))
            if client.recv(1) == b"":
                break
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            break
        else:
            raise AssertionError("it was answered")
    return time.monotonic() - began


def test_slow_clients_are_cut_off_in_time(serve, worker, client):
    url = serve()
    slow_headers = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100
    slow_body = post(host="localhost").replace(b"Content-Length: 0", b"Content-Length: 900")
    seconds = {}

    def headers():
        with connect(url) as slow:
            seconds["headers"] = trickle(slow, slow_headers)

    def second():
        """On a connection whose first request was quick, the second one has its own time, and no more."""
        with connect(url) as slow:
            slow.sendall(GET)
            assert status(answer(slow)) == 200
            seconds["second"] = trickle(slow, slow_headers)

    def content():
        with connect(url) as slow:
            slow.sendall(slow_body)
            seconds["body"] = trickle(slow, b"y" * 100)

    def silence():
        with connect(url) as slow:
            began = time.monotonic()
            assert read_all(slow) == b""
            seconds["silence"] = time.monotonic() - began

    def idle():
        with connect(url) as slow:
            slow.sendall(GET)
            began = time.monotonic()
            assert status(read_all(slow)) == 200
            seconds["idle"] = time.monotonic() - began

    threads = [threading.Thread(target=one) for one in (headers, second, content, silence, idle)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert client.get(f"{url}/ready").status_code == 200
        time.sleep(0.1)
    assert set(seconds) == {"headers", "second", "body", "silence", "idle"}
    for name in ("headers", "second", "body", "silence"):
        assert REQUEST_SECONDS_MAX - 0.5 < seconds[name] < REQUEST_SECONDS_MAX + 3, seconds
    assert 1.5 < seconds["idle"] < REQUEST_SECONDS_MAX, seconds
    assert worker.begun == []


def test_a_client_that_never_reads_is_cut_off(serve, worker, client):
    worker.view = {"filling": "x" * 20_000_000}
    url = serve()
    with connect(url, buffer=65536) as unread, connect(url, buffer=65536) as closing:
        began = time.monotonic()
        unread.sendall(b"GET /drain HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        closing.sendall(b"GET /drain HTTP/1.0\r\n\r\n")
        time.sleep(REQUEST_SECONDS_MAX * 0.5)
        assert client.get(f"{url}/health").status_code == 200
        time.sleep(max(0.0, began + REQUEST_SECONDS_MAX + 5 - time.monotonic()))
        for one in (unread, closing):
            assert len(read_all(one)) < 20_000_000, "what was not sent by then never will be"
    assert client.get(f"{url}/health").status_code == 200


def test_a_huge_body_is_refused_while_it_comes(serve, worker):
    url = serve()
    request = post(content=b"x" * 10_000_000).replace(b"Connection: close", b"Connection: keep-alive")
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


def test_a_chunked_body_has_the_same_limit(serve, worker):
    url = serve()
    assert status(raw(url, chunked(b'{"reason":', b' "in pieces"}', b""))) == 202
    assert worker.begun == ["POST /shutdown from 127.0.0.1: in pieces"]
    assert status(raw(url, chunked(*[b"x" * 100] * 11, b""))) == 413
    assert status(raw(url, chunked(*[b"x"] * 1025, b""))) == 413
    assert len(worker.begun) == 1


def test_a_body_that_turns_to_nonsense_begins_nothing_and_is_no_error_of_ours(serve, worker, client, caplog):
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


def test_a_body_that_ends_too_early_begins_nothing(serve, worker, client, caplog):
    url = serve()
    with caplog.at_level(logging.ERROR):
        with connect(url) as short:
            short.sendall(post(content=b'{"reason": "x"}')[:-5])
            short.shutdown(socket.SHUT_WR)
            read_all(short)
        with connect(url) as gone:
            gone.sendall(post(content=b'{"reason": "x"}')[:-5])
        time.sleep(0.2)
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
def test_what_is_not_http_is_refused(serve, worker, client, request_, caplog):
    url = serve()
    with caplog.at_level(logging.ERROR):
        said = raw(url, request_)
    assert status(said) == 400
    assert "error" in body(said)
    assert b"cache-control: no-store" in said.lower()
    assert worker.begun == []
    assert caplog.records == []
    assert client.get(f"{url}/health").status_code == 200


def test_a_transfer_encoding_wins_over_a_length_so_nothing_is_smuggled(serve, worker):
    smuggled = b"POST /shutdown HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = (
        b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(smuggled), smuggled)
    )
    assert status(raw(serve(), request)) in {400, 405}
    assert worker.begun == []


def test_an_upgrade_is_not_followed(serve):
    request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert status(raw(serve(), request)) == 200


def test_pipelined_requests_are_answered_in_order(serve, worker):
    worker.reason = "starting"
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    said = raw(serve(), GET * 50 + b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n" + last)
    codes = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]
    assert codes == [200] * 50 + [503, 404]


def test_many_silent_connections_keep_nobody_out(serve, client):
    url = serve()
    silent = []
    try:
        for _ in range(4 * CONNECTIONS_MAX):
            silent.append(connect(url))
        for _ in range(20):
            assert client.get(f"{url}/ready", headers={"connection": "close"}).status_code == 200
        open_ = 0
        for one in silent:
            one.settimeout(0.01)
            try:
                assert one.recv(1) == b""
            except TimeoutError:
                open_ += 1
            except ConnectionResetError:
                pass
        assert open_ < CONNECTIONS_MAX
    finally:
        for one in silent:
            one.close()


def test_many_clients_at_once_are_answered(serve):
    url, codes = serve(), []

    def ask():
        for _ in range(20):
            codes.append(status(raw(url, b"GET /health HTTP/1.0\r\n\r\n")))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 600
