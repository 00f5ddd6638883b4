"""The ledger that other tests rely on counts, refuses and remembers correctly."""

import http.client
import socket
import threading

import pytest
from ledger_tools import Ledger, until

from outlast import fencing


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path) as ledger:
        yield ledger


def test_repeated_act_is_counted_twice(ledger):
    assert [ledger.post("/act", "k", body={"n": 1}), ledger.post("/act", "k")] == [200, 200]
    assert len(ledger.acts()["k"]) == 2
    assert ledger.get("/log")[1] == ledger.log()


def test_once_applies_concurrent_requests_once(ledger):
    threads = [
        threading.Thread(target=ledger.post, args=("/once?delay=0.1", "k")) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["what"] for line in ledger.log()] == ["act", "repeat", "repeat", "repeat"]


def test_older_fence_of_the_same_run_is_refused(ledger):
    assert ledger.post("/act", "a", fence=7) == 200
    assert ledger.post("/act", "b", fence=6) == 409
    assert ledger.happened("a", fence=6) == 409
    assert ledger.post("/act", "b", run="other", fence=6) == 200
    assert ledger.post("/act", "c", fence=7) == 200


def test_asking_refuses_older_requests_in_flight(ledger, tmp_path):
    path = f"/act?gate={tmp_path}/gate"
    slow = threading.Thread(target=ledger.post, args=(path, "k"), kwargs={"fence": 1})
    slow.start()
    assert ledger.happened("k", fence=2) == 404
    (tmp_path / "gate").touch()
    slow.join()
    assert ledger.acts() == {}
    assert [line["key"] for line in ledger.lines("refused")] == ["k"]


def test_request_is_applied_though_its_client_has_gone(ledger, tmp_path):
    gone = http.client.HTTPConnection("127.0.0.1", ledger.port)
    headers = {"Idempotency-Key": "k", **fencing.fence_headers("r", fence=1)}
    gone.request("POST", f"/act?gate={tmp_path}/gate", "null", headers)
    gone.close()
    assert ledger.acts() == {}
    (tmp_path / "gate").touch()
    until(ledger.acts)


def test_request_is_not_applied_after_its_deadline(ledger):
    headers = {"Idempotency-Key": "k", "X-Deadline": "1.5", **fencing.fence_headers("r", fence=1)}
    assert ledger._request("POST", "/act", "null", headers)[0] == 503
    assert ledger.acts() == {}


def test_half_a_request_is_ignored(ledger):
    with socket.create_connection(("127.0.0.1", ledger.port)) as half:
        head = {
            "Idempotency-Key": "k",
            "Content-Length": "100",
            **fencing.fence_headers("r", fence=1),
        }
        half.sendall(
            b"POST /act HTTP/1.1\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in head.items()).encode()
            + b"\r\n{"
        )
        half.shutdown(socket.SHUT_WR)
        assert half.recv(100) == b""
    assert ledger.log() == []


def test_faults_hit_the_first_requests_of_a_key(ledger):
    assert [ledger.post("/act?fault=503", "a") for _ in range(2)] == [503, 200]
    assert [ledger.post("/act?fault=cut-before", "b") for _ in range(2)] == [0, 200]
    assert [ledger.post("/act?fault=500&faults=2", "c") for _ in range(3)] == [500, 500, 200]
    assert [ledger.post("/once?fault=cut", "d") for _ in range(2)] == [0, 200]
    assert {key: len(lines) for key, lines in ledger.acts().items()} == {
        "a": 1,
        "b": 1,
        "c": 3,
        "d": 1,
    }


def test_restarted_ledger_remembers_what_it_answered(ledger):
    assert ledger.post("/once", "k", fence=5) == 200
    with ledger.path.open("ab") as file:
        file.write(b'{"n": 1, "what": "act", "ke')
    ledger.restart()
    assert ledger.post("/once", "k", fence=4) == 409
    assert ledger.post("/once", "k", fence=5) == 200
    assert ledger.happened("k", fence=5) == 200
    assert ledger.happened("other", fence=5) == 404
    assert [line["what"] for line in ledger.log()] == ["act", "refused", "repeat"]
    assert [line["n"] for line in ledger.log()] == [0, 1, 2]


def test_killed_ledger_has_applied_all_that_it_answered(ledger):
    answered, stop = [], threading.Event()

    def post(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            if ledger.post("/act", f"{name}-{number}", run=name) == 200:
                answered.append(f"{name}-{number}")

    threads = [threading.Thread(target=post, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for _ in range(2):
        seen = len(answered)
        until(lambda: len(answered) > seen + 20)
        ledger.restart()
    stop.set()
    for thread in threads:
        thread.join()
    assert set(answered) <= set(ledger.acts())
    assert all(len(lines) == 1 for lines in ledger.acts().values())
