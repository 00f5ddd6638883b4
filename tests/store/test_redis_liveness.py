"""On Redis a worker lives while its process is subscribed to a channel. With real processes."""

import json
import socket
import threading
import time
from uuid import uuid4

import pytest
import redis

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import DeregisterWorker, RegisterWorker, Send, Submit, Sweep
from outlast.store.redis.liveness import MISSED_SECONDS_MIN
from outlast.testing.store_hooks import kill
from support.processes import Program, is_running, kill_quietly
from support.waiting import WAIT_SECONDS, wait_until

LEASE = 600.0
WORKER = """
import sys, time
from outlast.store.address import store_at
from outlast.store.commands import RegisterWorker, Submit
store = store_at(sys.argv[1])
store.open()
store.acquire_liveness("w")
store.commit([RegisterWorker("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
print("held", flush=True)
time.sleep(600)
"""
FORKER = """
import os, sys, time
from outlast.store.address import store_at
from outlast.store.commands import RegisterWorker, Submit
store = store_at(sys.argv[1])
store.open()
store.acquire_liveness("w")
store.listen(lambda: None)
store.commit([RegisterWorker("w", "host", 1, 600.0), Submit("r", "flow", "[]", "t", "s", worker="w")])
child = os.fork()
if child == 0:
    try:
        store.run("r")
    except Exception as error:
        os.write(1, type(error).__name__.encode() + b"\\n")
    store.open()
    os.write(1, store.run("r").worker.encode() + b"\\n")
    os.close(1)
    time.sleep(600)
    os._exit(0)
os.write(1, b"%d\\n" % child)
time.sleep(600)
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


def living_for(store, seconds):
    """Look for so long and return whether nobody was ever dead. It is true on a slow machine as well."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if store.dead_workers():
            return False
        time.sleep(0.05)
    return True


def wait_for_death(store):
    """Wait until a worker is dead, and return the seconds that it took."""
    start = time.monotonic()
    wait_until(store.dead_workers)
    return time.monotonic() - start


def server_time(client):
    seconds, microseconds = client.time()
    return seconds + microseconds / 1e6


def subscribers(client, *channels):
    return [count for _, count in client.pubsub_numsub(*channels)]


def test_killed_process_is_dead_long_before_its_lease_ends(store, place, client, tmp_path):
    with Program.python("-c", WORKER, place, folder=tmp_path) as worker:
        worker.wait_for_line("held")
        assert living_for(store, 1.5 * MISSED_SECONDS_MIN)
        worker.kill()
        assert wait_for_death(store) >= MISSED_SECONDS_MIN, (
            "a broken connection has time to come back"
        )
    before = server_time(client)
    assert store.commit([Sweep()])[0].runs == ("r",)
    assert store.run("r").reason == "its worker died"
    facts = json.loads(store.journal(store.run("r").pk)[-1].value)
    assert facts["by"] == "lock"
    assert before <= facts["seen"] <= server_time(client), "no heartbeat is on record"
    assert store.workers() == []


def test_stopped_process_lives_until_its_lease_ends(store, place, tmp_path):
    with Program.python("-c", WORKER, place, folder=tmp_path) as worker:
        worker.wait_for_line("held")
        worker.pause()
        assert living_for(store, 1.5 * MISSED_SECONDS_MIN)
        assert store.commit([Sweep()])[0].workers == ()


def test_forked_child_neither_uses_nor_keeps_connections_of_its_parent(store, place, tmp_path):
    with Program.python("-c", FORKER, place, folder=tmp_path) as parent:
        lines = parent.wait_until(lambda: len(parent.lines) == 3 and set(parent.lines))
        (child,) = (int(line) for line in lines if line.isdigit())
        try:
            assert lines == {str(child), "StoreUnavailable", "w"}
            assert living_for(store, 1.5 * MISSED_SECONDS_MIN)
            parent.kill()
            wait_for_death(store)
            assert is_running(child)
        finally:
            kill_quietly(child)


def test_worker_reconnects_after_its_connection_broke(store, place, client):
    other = store_at(place)
    other.open()
    other.acquire_liveness("w")
    other.commit([RegisterWorker("w", "host", 1, LEASE)])
    alive = f"{store._address.prefix}alive:0:w"
    wait_until(lambda: subscribers(client, alive) == [1])
    for _ in range(3):
        broken = other._listener._connection
        broken._sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda broken=broken: other._listener._connection not in (None, broken))
        wait_until(lambda: subscribers(client, alive) == [1])
        assert store.dead_workers() == []
    assert living_for(store, 1.5 * MISSED_SECONDS_MIN)
    other.close()


def test_worker_of_a_dead_store_is_dead_and_of_a_closed_store_keeps_its_lease(store, place):
    stores = [store_at(place) for _ in range(2)]
    for number, other in enumerate(stores):
        other.open()
        other.acquire_liveness(f"w{number}")
        other.commit([RegisterWorker(f"w{number}", "host", 1, LEASE)])
    kill(stores[0])
    stores[1].close()
    wait_for_death(store)
    assert store.dead_workers() == ["w0"]
    assert store.commit([Sweep()])[0].workers == ("w0",)


def test_no_worker_is_considered_dead_for_a_lease_after_a_failover(store, place):
    """As after a failover: the new master knows the workers, and nobody has subscribed there yet."""
    other = store_at(place)
    other.open()
    other.acquire_liveness("w")
    other.commit([RegisterWorker("w", "host", 1, 600.0)])
    store._server = other._server = "another"
    other.commit([RegisterWorker("v", "host", 1, 600.0)])
    kill(other)
    wait_for_death(store)
    assert store.commit([Sweep()])[0].workers == ()


def test_commit_notifies_only_of_what_others_may_wait_for(store, place, client):
    notified = threading.Event()
    store.listen(notified.set)
    store.acquire_liveness("w")
    other = store_at(place)
    other.open()
    channel = f"{store._address.prefix}notify:0"
    wait_until(lambda: subscribers(client, channel) == [1])
    for number in range(3):
        notified.clear()
        other.commit([Submit(f"r{number}", "flow", "[]", "t", "s")])
        assert notified.wait(WAIT_SECONDS)
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(channel)
        wait_until(lambda: subscribers(client, channel) == [2])
        other.commit([RegisterWorker("w2", "host", 1, LEASE)])  # nobody waits for that
        other.commit([Send("r0", "m", "1", "1")])
        wait_until(lambda: listener.get_message(timeout=0.01))
        assert listener.get_message(timeout=0.01) is None
    notified.clear()
    store.commit([Send("r0", "m", "2", "1")])
    assert notified.is_set(), "its own runs may wait for it"
    other.close()


def test_listener_that_lost_its_connection_while_busy_subscribes_to_everything_again(
    store, place, client
):
    block, blocked, resume = threading.Event(), threading.Event(), threading.Event()
    notified, prefix = threading.Event(), store._address.prefix

    def listener():
        notified.set()
        if block.is_set():
            blocked.set()
            assert resume.wait(WAIT_SECONDS)

    store.listen(listener)
    store.acquire_liveness("w0")
    wait_until(lambda: subscribers(client, f"{prefix}notify:0") == [1])
    block.set()
    other = store_at(place)
    other.open()
    other.commit([Submit("a", "flow", "[]", "t", "s")])
    assert blocked.wait(WAIT_SECONDS)
    client.client_kill_filter(_type="pubsub")
    holds = [
        threading.Thread(target=store.acquire_liveness, args=(worker,)) for worker in ("w1", "w2")
    ]
    for hold in holds:
        hold.start()
    block.clear()
    resume.set()
    channels = [f"{prefix}notify:0", *(f"{prefix}alive:0:w{n}" for n in range(3))]
    wait_until(lambda: subscribers(client, *channels) == [1, 1, 1, 1])
    for hold in holds:
        hold.join()
    notified.clear()
    other.commit([Submit("b", "flow", "[]", "t", "s")])
    assert notified.wait(WAIT_SECONDS)
    other.close()


def test_failing_listener_does_not_stop_other_listeners(store, place, client):
    notified = threading.Event()

    def broken():
        raise RuntimeError("Event loop is closed")

    store.listen(broken)
    store.listen(notified.set)
    store.acquire_liveness("w")
    prefix = store._address.prefix
    wait_until(lambda: subscribers(client, f"{prefix}notify:0", f"{prefix}alive:0:w") == [1, 1])
    notified.clear()
    other = store_at(place)
    other.open()
    other.commit([Submit("a", "flow", "[]", "t", "s")])
    assert notified.wait(WAIT_SECONDS)
    assert subscribers(client, f"{prefix}alive:0:w") == [1]
    store.commit([Submit("b", "flow", "[]", "t", "s")])
    other.close()


def test_only_a_registered_worker_is_known_to_be_connected(store, client):
    present, alive = (f"{store._address.prefix}{name}" for name in ("present", "alive:0:w"))
    store.acquire_liveness("w")
    assert client.smembers(present) == set()
    store.commit([RegisterWorker("w", "host", 1, LEASE)])
    assert client.smembers(present) == {b"w"}
    store.commit([DeregisterWorker("w")])
    wait_until(lambda: subscribers(client, alive) == [1])
    killed = store._listener._connection
    client.client_kill_filter(_type="pubsub")
    wait_until(lambda: store._listener._connection not in (None, killed))
    wait_until(lambda: store._liveness._wanted["w"].is_set() and subscribers(client, alive) == [1])
    assert client.smembers(present) == set()


def test_worker_that_is_released_and_held_again_is_known_again(store, client):
    store.commit([RegisterWorker("w", "host", 1, LEASE)])
    for _ in range(20):
        store.acquire_liveness("w")
        assert client.smembers(f"{store._address.prefix}present") == {b"w"}
        store.release_liveness("w")
    assert client.smembers(f"{store._address.prefix}present") == set()


def test_prefixes_and_databases_do_not_hear_each_other(redis_server, client):
    prefix = uuid4().hex
    base = f"{redis_server.url}?prefix={prefix}"
    notified = threading.Event()
    one, two, three = store_at(base), store_at(f"{base}x"), store_at(f"{base}&db=1")
    for each in (one, two, three):
        each.open()
    one.listen(notified.set)
    one.acquire_liveness("w")
    wait_until(lambda: subscribers(client, f"{one._address.prefix}notify:0") == [1])
    assert notified.wait(WAIT_SECONDS)
    notified.clear()
    for each in (two, three):
        each.commit([Submit("r", "flow", "[]", "t", "s")])
        assert each.run("r") is not None
    assert not notified.wait(0.2)
    assert one.run("r") is None
    for each in (one, two, three):
        each.close()


def test_unreachable_store_can_be_closed():
    store = store_at("redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        store.open()
    store.close()
