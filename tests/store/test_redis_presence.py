"""Who is alive, on Redis: a subscription that the server drops when a process is gone. With real processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from uuid import uuid4

import pytest
import redis

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.redis.presence import MISSED_SECONDS_MIN
from outlast.store.verbs import Enlist, Leave, Send, Submit, Sweep

LEASE = 60.0
WORKER = """
import sys, time
from outlast.store.address import store_at
from outlast.store.verbs import Enlist, Submit
store = store_at(sys.argv[1])
store.open()
store.hold("w")
store.commit([Enlist("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
print("held", flush=True)
time.sleep(60)
"""
FORKER = """
import os, sys, time
from outlast.store.address import store_at
from outlast.store.verbs import Enlist, Submit
store = store_at(sys.argv[1])
store.open()
store.hold("w")
store.listen(lambda: None)
store.commit([Enlist("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
child = os.fork()
if child == 0:
    try:
        store.run("r")
    except Exception as error:
        os.write(1, type(error).__name__.encode() + b"\\n")
    store.open()
    os.write(1, store.run("r").worker.encode() + b"\\n")
    os.close(1)
    time.sleep(60)
    os._exit(0)
os.write(1, b"%d\\n" % child)
time.sleep(60)
"""


@pytest.fixture
def place(redis_server):
    return f"{redis_server.url}?prefix={uuid4().hex}"


@pytest.fixture
def client(redis_server):
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def store(place):
    store = store_at(place)
    store.open()
    yield store
    store.close()


@contextmanager
def process(program, place):
    with subprocess.Popen([sys.executable, "-c", program, place], stdout=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


def dead_after(store, seconds):
    """When the worker was first said to be dead, in seconds; None if it never was."""
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        if store.dead_workers():
            return time.monotonic() - start
        time.sleep(0.05)
    return None


def test_a_killed_process_is_known_to_be_dead_long_before_its_lease_is_over(store, place):
    with process(WORKER, place) as worker:
        assert worker.stdout.readline() == "held\n"
        assert dead_after(store, 2 * MISSED_SECONDS_MIN) is None
        worker.kill()
        worker.wait()
        after = dead_after(store, 20)
        assert after is not None
        assert after > MISSED_SECONDS_MIN * 0.9, "a connection may break: it has the time to come back"
        assert after < 10, "a second on a machine that has nothing else to do; the lease is a minute"
    before = store.now()
    assert store.commit([Sweep()])[0].runs == ("r",)
    assert store.run("r").reason == "its worker died"
    facts = json.loads(store.journal(store.run("r").pk)[-1].value)
    assert facts["by"] == "lock"
    assert before - 0.1 <= facts["seen"] <= store.now(), (
        "when its connection was missed: no heartbeat is on record"
    )
    assert store.workers() == []


def test_a_stopped_process_is_not_dead_before_its_lease_is_over(store, place):
    with process(WORKER, place) as worker:
        assert worker.stdout.readline() == "held\n"
        os.kill(worker.pid, signal.SIGSTOP)
        assert dead_after(store, 2.5 * MISSED_SECONDS_MIN) is None
        assert store.commit([Sweep()])[0].workers == ()


def test_a_child_of_a_fork_neither_uses_nor_keeps_its_parents_connections(store, place):
    with process(FORKER, place) as parent:
        lines = {parent.stdout.readline().strip() for _ in range(3)}
        (child,) = (int(line) for line in lines if line.isdigit())
        try:
            assert lines == {str(child), "StoreUnavailable", "w"}
            assert dead_after(store, 1.5 * MISSED_SECONDS_MIN) is None
            parent.kill()
            parent.wait()
            assert dead_after(store, 20) is not None, "though its child lives"
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_worker_whose_connection_broke_is_back_before_it_is_missed_for_long(store, place):
    other = store_at(place)
    other.open()
    other.hold("w")
    other.commit([Enlist("w", "host", 1, LEASE)])
    for _ in range(3):
        other._ear._connection._sock.shutdown(2)
        assert dead_after(store, 0.5) is None
    assert dead_after(store, 1.5 * MISSED_SECONDS_MIN) is None
    other.close()


def test_one_that_died_is_dead_and_one_that_was_let_go_of_has_its_lease(store, place):
    stores = [store_at(place) for _ in range(2)]
    for number, other in enumerate(stores):
        other.open()
        other.hold(f"w{number}")
        other.commit([Enlist(f"w{number}", "host", 1, LEASE)])
    stores[0].die()
    stores[1].close()
    assert dead_after(store, 20) is not None
    assert store.dead_workers() == ["w0"]
    assert store.commit([Sweep()])[0].workers == ("w0",)


def test_after_another_server_has_taken_over_nobody_is_missed_for_a_lease(store, place):
    """As after a failover: the new master knows the workers, and nobody has subscribed there yet."""
    other = store_at(place)
    other.open()
    other.hold("w")
    other.commit([Enlist("w", "host", 1, 3.0)])
    store._server = other._server = "another"
    other.commit([Enlist("v", "host", 1, 60.0)])
    other.die()
    assert dead_after(store, 20) is not None
    assert store.commit([Sweep()])[0].workers == ()


def test_a_ring_comes_at_once_and_not_for_what_this_process_did_alone(store, place):
    rung = threading.Event()
    store.listen(rung.set)
    store.hold("w")
    rung.wait(1)
    rung.clear()
    other = store_at(place)
    other.open()
    seconds = []
    for number in range(5):
        started = time.monotonic()
        other.commit([Submit(f"r{number}", "flow", "[]", "t", "s")])
        assert rung.wait(5)
        seconds.append(time.monotonic() - started)
        rung.clear()
    assert min(seconds) < 0.5
    other.commit([Enlist("w2", "host", 1, LEASE)])
    assert not rung.wait(0.3), "nobody waits for that"
    store.commit([Send("r0", "m", "1", "1")])
    assert rung.is_set(), "its own runs may wait for it"
    other.close()


def heard(client, *channels):
    return [count for _, count in client.pubsub_numsub(*channels)]


def test_an_ear_that_lost_its_connection_while_it_was_busy_is_subscribed_to_everything_again(
    store, place, client
):
    slow, rung, prefix = threading.Event(), [], store._address.prefix

    def bell():
        rung.append(1)
        if slow.is_set():
            time.sleep(0.5)

    store.listen(bell)
    store.hold("w0")
    slow.set()
    other = store_at(place)
    other.open()
    other.commit([Submit("a", "flow", "[]", "t", "s")])
    time.sleep(0.1)
    client.client_kill_filter(_type="pubsub")
    holds = [threading.Thread(target=store.hold, args=(worker,)) for worker in ("w1", "w2")]
    for hold in holds:
        hold.start()
    slow.clear()
    channels = [f"{prefix}bell:0", *(f"{prefix}alive:0:w{n}" for n in range(3))]
    deadline = time.monotonic() + 5
    while heard(client, *channels) != [1, 1, 1, 1]:
        assert time.monotonic() < deadline, heard(client, *channels)
        time.sleep(0.02)
    for hold in holds:
        hold.join()
    time.sleep(0.2)
    rung.clear()
    other.commit([Submit("b", "flow", "[]", "t", "s")])
    deadline = time.monotonic() + 5
    while not rung:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    other.close()


def test_a_listener_that_fails_keeps_neither_the_ear_nor_other_listeners_from_hearing(store, place, client):
    rung = threading.Event()

    def broken():
        raise RuntimeError("Event loop is closed")

    store.listen(broken)
    store.listen(rung.set)
    store.hold("w")
    assert rung.wait(5)
    rung.clear()
    other = store_at(place)
    other.open()
    other.commit([Submit("a", "flow", "[]", "t", "s")])
    assert rung.wait(5)
    assert heard(client, f"{store._address.prefix}alive:0:w") == [1]
    store.commit([Submit("b", "flow", "[]", "t", "s")])
    other.close()


def test_only_who_is_enlisted_is_known_to_be_connected(store, client):
    present = f"{store._address.prefix}present"
    store.hold("w")
    assert client.smembers(present) == set()
    store.commit([Enlist("w", "host", 1, LEASE)])
    assert client.smembers(present) == {b"w"}
    store.commit([Leave("w")])
    client.client_kill_filter(_type="pubsub")
    assert not store._ear._wanted["w"].wait(0) or store._ear.hold("w")
    deadline = time.monotonic() + 5
    while heard(client, f"{store._address.prefix}alive:0:w") != [1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.1)
    assert client.smembers(present) == set()


def test_a_worker_that_was_let_go_of_and_is_held_again_is_known_again(store, client):
    store.commit([Enlist("w", "host", 1, LEASE)])
    for _ in range(20):
        store.hold("w")
        assert client.smembers(f"{store._address.prefix}present") == {b"w"}
        store.let_go("w")
    assert client.smembers(f"{store._address.prefix}present") == set()


def test_two_prefixes_and_two_databases_do_not_hear_each_other(redis_server):
    base = f"{redis_server.url}?prefix={uuid4().hex}"
    rung = threading.Event()
    one, two, three = store_at(base), store_at(f"{base}x"), store_at(f"{base}&db=1")
    for each in (one, two, three):
        each.open()
    one.listen(rung.set)
    one.hold("w")
    rung.wait(1)
    rung.clear()
    for each in (two, three):
        each.commit([Submit("r", "flow", "[]", "t", "s")])
        assert each.run("r") is not None
    assert not rung.wait(0.3)
    assert one.run("r") is None
    for each in (one, two, three):
        each.close()


def test_a_store_that_cannot_be_reached_still_lets_itself_be_closed():
    store = store_at("redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        store.open()
    store.close()
