"""The outside ledger keeps what the proofs count on: it can be believed."""

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


def test_what_is_done_twice_is_there_twice(ledger):
    assert [ledger.post("/act", "k", body={"n": 1}), ledger.post("/act", "k")] == [200, 200]
    assert len(ledger.acts()["k"]) == 2
    assert ledger.get("/log")[1] == ledger.log()


def test_once_is_once_and_also_for_two_at_the_same_time(ledger):
    threads = [threading.Thread(target=ledger.post, args=("/once?delay=0.1", "k")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["what"] for line in ledger.log()] == ["act", "repeat", "repeat", "repeat"]


def test_an_older_fence_of_a_run_is_refused_and_that_of_another_run_is_not(ledger):
    assert ledger.post("/act", "a", fence=7) == 200
    assert ledger.post("/act", "b", fence=6) == 409
    assert ledger.happened("a", fence=6) == 409
    assert ledger.post("/act", "b", run="other", fence=6) == 200
    assert ledger.post("/act", "c", fence=7) == 200


def test_asking_refuses_whoever_is_still_under_way_with_an_older_fence(ledger):
    slow = threading.Thread(target=ledger.post, args=("/act?delay=0.5", "k"), kwargs={"fence": 1})
    slow.start()
    assert ledger.happened("k", fence=2) == 404
    slow.join()
    assert ledger.acts() == {}
    assert [line["key"] for line in ledger.lines("refused")] == ["k"]


def test_it_is_applied_at_the_end_of_its_delay_whoever_has_gone_away(ledger):
    gone = http.client.HTTPConnection("127.0.0.1", ledger.port, timeout=0.1)
    headers = {"Idempotency-Key": "k", **fencing.fence_headers("r", fence=1)}
    gone.request("POST", "/act?delay=0.4", "null", headers)
    with pytest.raises(TimeoutError):
        gone.getresponse()
    gone.close()
    assert ledger.acts() == {}
    until(ledger.acts)


def test_half_a_request_is_none(ledger):
    with socket.create_connection(("127.0.0.1", ledger.port)) as half:
        head = {"Idempotency-Key": "k", "Content-Length": "100", **fencing.fence_headers("r", fence=1)}
        half.sendall(
            b"POST /act HTTP/1.1\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in head.items()).encode()
            + b"\r\n{"
        )
        half.shutdown(socket.SHUT_WR)
        assert half.recv(100) == b""
    assert ledger.log() == []


def test_faults_befall_the_first_requests_of_a_key(ledger):
    assert [ledger.post("/act?fault=503", "a") for _ in range(2)] == [503, 200]
    assert [ledger.post("/act?fault=cut-before", "b") for _ in range(2)] == [0, 200]
    assert [ledger.post("/act?fault=500&faults=2", "c") for _ in range(3)] == [500, 500, 200]
    assert [ledger.post("/once?fault=cut", "d") for _ in range(2)] == [0, 200]
    assert {key: len(lines) for key, lines in ledger.acts().items()} == {"a": 1, "b": 1, "c": 3, "d": 1}


def test_it_is_killed_and_knows_what_it_has_answered(ledger):
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


def test_killed_at_any_moment_it_has_done_all_that_it_answered(ledger):
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
    for _ in range(5):
        seen = len(answered)
        until(lambda: len(answered) > seen + 20)
        ledger.restart()
    stop.set()
    for thread in threads:
        thread.join()
    assert set(answered) <= set(ledger.acts())
    assert all(len(lines) == 1 for lines in ledger.acts().values())
