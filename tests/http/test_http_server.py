"""Where the server listens, and how its thread starts and ends."""

import gc
import logging
import os
import signal
import socket
import threading

import httpx
import pytest
from http_tools import Worker, answer, connect, post, raw, read_all, status

from outlast.errors import OutlastError, SettingsError
from outlast.http import Server
from outlast.settings.http_address import parse
from support.waiting import WAIT_SECONDS


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        (" :0 ", ("127.0.0.1", 0)),
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:8080", ("::1", 8080)),
        ("[::]:8080", ("::", 8080)),
    ],
)
def test_listen_addresses_are_parsed(address, place):
    assert parse(address) == place


@pytest.mark.parametrize(
    "address",
    ["", "8080", "localhost", "0.0.0.0", ":", "127.0.0.1:", "::1:8080", "[::1]", "[]:80", "[localhost]:80", "[127.0.0.1]:80",
     "http://127.0.0.1:8080", "127.0.0.1:8080/", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "a b:80", "u@h:80", ":\uff18\uff10"],
)  # fmt: skip
def test_invalid_listen_address_says_what_to_write(address):
    with pytest.raises(SettingsError, match=r"Write host:port: 127\.0\.0\.1:8080") as raised:
        Server(Worker(), address)
    assert repr(address) in str(raised.value)


@pytest.mark.parametrize("address", ["203.0.113.9:0", "no-such-host.invalid:0", "300.1.1.1:80"])
def test_foreign_listen_address_is_refused_at_start(address):
    with pytest.raises(SettingsError) as raised:
        Server(Worker(), address).start()
    assert address in str(raised.value)


def test_listen_address_in_use_is_an_error(serve):
    url = serve()
    address = url.removeprefix("http://")
    with pytest.raises(SettingsError, match="is in use") as raised:
        Server(Worker(), address).start()
    assert address in str(raised.value)
    assert "port 0" in str(raised.value)


def test_server_answers_over_ipv6(serve, client, worker):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    url = serve("[::1]:0")
    assert url.startswith("http://[::1]:")
    assert client.post(f"{url}/shutdown").status_code == 202
    assert worker.begun == ["POST /shutdown from ::1"]
    both = serve("[::]:0").replace("[::1]", "127.0.0.1")
    assert client.post(f"{both}/shutdown").status_code == 202
    assert worker.begun[1:] == ["POST /shutdown from ::ffff:127.0.0.1"]


def test_server_listens_on_loopback_by_default(serve, elsewhere):
    url = serve(":0")
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(ConnectionRefusedError):
        connect(url, elsewhere)


def test_server_has_no_url_before_start():
    with pytest.raises(OutlastError, match="not been started"):
        _ = Server(Worker(), ":0").url


def test_server_can_be_stopped_twice_and_restarted(client):
    server = Server(Worker(), ":0")
    server.stop()
    server.start()
    with pytest.raises(OutlastError, match="is already running"):
        server.start()
    url = server.url
    server.stop()
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        connect(url)
    again = Server(Worker(), url.removeprefix("http://"))
    again.start()
    assert client.get(f"{url}/health").status_code == 200
    again.stop()
    server.start()
    assert client.get(f"{server.url}/health").status_code == 200
    server.stop()


def test_server_stops_although_clients_hang(client, caplog):
    worker = Worker()
    worker.view = {"filling": "x" * 20_000_000}
    server = Server(worker, ":0")
    server.start()
    with connect(server.url) as silent, connect(server.url) as half, connect(server.url) as unread:
        half.sendall(b"GET /hea")
        unread.sendall(b"GET /drain HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.get(f"{server.url}/health").status_code == 200
        server.stop(WAIT_SECONDS)
        assert "did not stop within" not in caplog.text, "these clients would stay for ever"
        assert read_all(silent) == read_all(half) == b""
    assert not server._thread.is_alive()
    gc.collect()


def test_server_stop_is_bounded_by_its_timeout(caplog):
    worker = Worker()
    worker.gate.clear()
    server = Server(worker, ":0")
    server.start()
    with connect(server.url) as client:
        client.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
        assert worker.blocked.wait(WAIT_SECONDS)
        server.stop(0.1)
        assert "did not stop within 0.1 s" in caplog.text
    worker.gate.set()
    server.stop(WAIT_SECONDS)
    assert not server._thread.is_alive()


def test_server_can_be_stopped_from_its_own_thread(client):
    worker = Worker()
    server = Server(worker, ":0")
    worker.begin_drain = lambda reason: server.stop()
    server.start()
    assert client.post(f"{server.url}/shutdown").status_code == 202
    server.stop(WAIT_SECONDS)
    with pytest.raises(ConnectionRefusedError):
        connect(server.url)


def test_server_answers_while_the_main_thread_computes(serve):
    url, answers = serve(), []
    asker = threading.Thread(
        target=lambda: answers.append(raw(url, b"GET /ready HTTP/1.0\r\n\r\n"))
    )
    asker.start()
    while asker.is_alive():
        sum(range(100_000))
    assert [status(one) for one in answers] == [200]


def test_server_leaves_signal_handlers_alone(serve, client):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    assert client.get(f"{serve()}/health").status_code == 200
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(wakeup) == wakeup


def test_server_leaves_the_uvicorn_access_log_alone(serve, client):
    access, heard = logging.getLogger("uvicorn.access"), []
    handler = logging.Handler()
    handler.emit = heard.append
    access.addHandler(handler)
    propagate = access.propagate
    try:
        url = serve()
        assert client.get(f"{url}/health").status_code == 200
        assert access.handlers == [handler]
        assert access.propagate is propagate
        assert heard == []
    finally:
        access.removeHandler(handler)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_keeps_no_sockets_of_the_server(worker):
    server = Server(worker, ":0")
    server.start()
    with connect(server.url) as kept:
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer(kept)) == 200
        held, release = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(release)
                server.stop()
                del server
                gc.collect()
                os.read(held, 1)
                code = 0
            finally:
                os._exit(code)
        try:
            os.close(held)
            assert status(raw(server.url, b"GET /health HTTP/1.0\r\n\r\n")) == 200
            kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status(answer(kept)) == 200
            server.stop()
            assert read_all(kept) == b"", "the connection ends with the parent's"
            with pytest.raises(ConnectionRefusedError):
                connect(server.url)
            again = Server(worker, server.url.removeprefix("http://"))
            again.start()
            again.stop()
        finally:
            os.close(release)
            _, code = os.waitpid(child, 0)
    assert code == 0


def test_listening_socket_is_not_inheritable(serve):
    server = Server(Worker(), ":0")
    server.start()
    assert not server._listener.get_inheritable()
    server.stop()


def test_server_answers_during_the_whole_drain(serve, worker):
    url = serve()
    with httpx.Client(trust_env=False, verify=False, base_url=url, timeout=WAIT_SECONDS) as client:
        assert client.post("/shutdown").status_code == 202
        worker.reason, worker.view = "draining: POST /shutdown", {"draining": True}
        for _ in range(3):
            assert client.get("/ready").status_code == 503
            assert client.get("/drain").json() == {"draining": True}
            assert client.post("/shutdown").status_code == 202
    assert len(worker.begun) == 4
    assert status(raw(url, post())) == 202
