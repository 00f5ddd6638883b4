"""A Redis server that restarts, falls silent or loses connections. Each test has a server of its own."""

import os
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager

import pytest
import redis
from redis_fault_tools import ALWAYS, held, opened, persist, step

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import (
    Send,
    Submit,
    UpdateSession,
)
from outlast.store.protocol import CommitUnknown
from outlast.store.redis import address as address_module
from outlast.testing import servers
from support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture
def server():
    with servers.redis_server(None, *ALWAYS) as server:
        yield server


@pytest.fixture
def store(server):
    with opened(server.url) as store:
        yield store


@pytest.fixture
def client(server):
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@contextmanager
def stopped(server):
    """Stop the server: it answers nobody meanwhile."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def cut_before_the_answer(server, store):
    """Stop the server, and cut the writer's connection once its next request is sent."""
    connection = store._writer._connection
    read = connection.read_response

    def cut_and_read(*args, **options):
        connection.read_response = read
        connection._sock.shutdown(socket.SHUT_RDWR)
        return read(*args, **options)

    connection.read_response = cut_and_read
    with stopped(server):
        yield


def test_acknowledged_commits_survive_a_killed_server(server, store):
    row = held(store)
    for seq in range(1, 21):
        assert store.commit([step(row, seq)]) == [None]
    server.stop(signal.SIGKILL)
    server.start()
    assert [entry.seq for entry in store.journal(row.pk)] == [*range(1, 21)]
    assert persist(store, [step(row, 21)]) == [None]
    assert store.run("r").fence == row.fence


def test_store_is_unavailable_while_the_server_is_down_and_goes_on_afterwards(server, store):
    row = held(store)
    server.stop()
    for _ in range(2):
        with pytest.raises((StoreUnavailable, CommitUnknown)):
            store.commit([step(row, 1)])
        with pytest.raises(
            StoreUnavailable,
            match=r"cannot be reached\. Check the address, and that the server is running\.",
        ):
            store.run("r")
    with pytest.raises(
        StoreUnavailable,
        match=r"cannot be reached\. Check the address, and that the server is running\.",
    ):
        store_at(server.url).open()
    server.start()
    assert persist(store, [step(row, 1), step(row, 2)]) == [None, None]
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]


def test_listeners_and_presence_come_back_after_a_restart(server, store, client):
    notified = threading.Event()
    store.acquire_liveness("w")
    store.listen(notified.set)
    server.stop()
    server.start()
    channels = ["{outlast}:alive:0:w", "{outlast}:notify:0"]
    wait_until(lambda: [count for _, count in client.pubsub_numsub(*channels)] == [1, 1])
    notified.clear()
    with opened(server.url) as other:
        other.commit([Submit("a", "flow", "[]", "t", "s")])
    assert notified.wait(WAIT_SECONDS)


def test_server_that_lost_its_last_second_reuses_no_fence_and_accepts_no_gap(server, store, client):
    """As after a crash with appendfsync everysec, or a failover."""
    row = held(store)
    store.commit([step(row, 1)])
    before = _raw_dumps(server)
    store.commit([step(row, 2)])
    later = held(store, "later")
    _restore(server, before)
    assert store.commit([step(row, 3)])[0].why == "fence", (
        "the server has not got the second entry any more"
    )
    assert store.commit([step(row, 2)]) == [None]
    again = held(store, "later")
    assert again.fence > later.fence
    assert store.commit([step(later, 1)])[0].why == "fence"


def _raw_dumps(server):
    with redis.Redis.from_url(server.url) as client:
        return {key: client.dump(key) for key in client.keys()}


def _restore(server, dumps):
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        for key, dump in dumps.items():
            client.restore(key, 0, dump)


def test_torn_append_only_file_keeps_whole_batches_only(server, store):
    row = held(store)
    store.commit([step(row, 1)])
    (file,) = [*server.data.glob("appendonly.aof"), *server.data.glob("*/*.incr.aof")]
    start = file.stat().st_size
    store.commit(
        [step(row, 2), Send("r", "m", "1", "1"), UpdateSession("s", "t", {"a": "1"}), step(row, 3)]
    )
    whole = file.read_bytes()
    for cut in (
        start,
        start + 1,
        start + 40,
        (start + len(whole)) // 2,
        len(whole) - 1,
        len(whole),
    ):
        server.stop(signal.SIGKILL)
        file.write_bytes(whole[:cut])
        server.start()
        with opened(server.url) as other:
            seqs = [entry.seq for entry in other.journal(row.pk)]
            there = (len(other.messages(row.pk)), other.session("s") is not None)
            assert (seqs, there) == (
                ([1, 2, 3], (1, True)) if cut == len(whole) else ([1], (0, False))
            )


def test_server_is_unavailable_while_it_loads_its_data():
    quick = ("--appendonly", "no", "--rdbcompression", "no")
    with servers.redis_server(None, *quick) as server, opened(server.url) as store:
        with redis.Redis.from_url(server.url) as client:
            for number in range(200):
                client.set(f"k{number}", "x" * 200_000)
            client.save()
        server.stop()

        def is_loading():
            try:
                store.run("r")
            except StoreUnavailable as error:
                return "the server is loading its data" in str(error)
            raise AssertionError("it answered before it said that it loads")

        loads_slowly = [*server._command, "--key-load-delay", "30000"]  # six seconds
        with server.log.open("ab") as log, subprocess.Popen(loads_slowly, stdout=log) as process:
            wait_until(is_loading)
            process.kill()
        server.start()
        assert store.run("r") is None


def test_commit_over_a_lost_connection_is_unknown_and_its_repeat_changes_nothing(server, store):
    row = held(store)
    with cut_before_the_answer(server, store), pytest.raises(CommitUnknown):
        store.commit([step(row, 1), Send("r", "m", "1", "1")])
    assert persist(store, [step(row, 1), Send("r", "m", "1", "1"), step(row, 2)]) == [
        None,
        None,
        None,
    ]
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    assert len(store.messages(row.pk)) == 1


def test_command_is_sent_once(server, store, client):
    """redis-py's own client would send it up to eleven times."""
    row = held(store)
    client.config_resetstat()
    with cut_before_the_answer(server, store), pytest.raises(CommitUnknown):
        store.commit([step(row, 1)])
    calls = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    assert calls <= 1


def test_abandoned_call_is_not_executed(store):
    row = held(store)
    store._calls.lost.append(store._calls.current)
    store.recover()
    with pytest.raises(StoreUnavailable):
        store.commit([step(row, 1)])
    assert store.journal(row.pk) == []
    assert store.commit([step(row, 1)]) == [None]


def test_late_commit_on_the_loop_is_waited_for_and_keeps_its_connection(server, store, client):
    row = held(store)
    store.commit([step(row, 1)])
    connection = store._writer._connection
    with stopped(server):
        with pytest.raises(CommitUnknown, match="no answer within"):
            store.try_commit([step(row, 2)])
        assert store.try_commit([step(row, 2)]) is None, "an answer is still to come"
    store.recover()
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    assert store.commit([step(row, 2), step(row, 3)]) == [None, None]
    assert store._writer._connection is connection
    assert client.zcard("{outlast}:void") == 0


def test_call_whose_answer_never_comes_is_voided(server, store, client):
    row = held(store)
    call = store._calls.current
    with stopped(server):
        with pytest.raises(CommitUnknown):
            store.try_commit([step(row, 1)])
        store._writer._connection._sock.shutdown(socket.SHUT_RDWR)
    assert persist(store, [step(row, 1), step(row, 2)]) == [None, None]
    assert client.zscore("{outlast}:void", call) is not None


def test_call_lost_before_a_close_is_voided_after_the_next_opening(store, client):
    row = held(store)
    call = store._calls.current
    store._calls.give_up()
    store.close()
    store.open()
    assert store.commit([step(row, 1)]) == [None]
    assert client.zscore("{outlast}:void", call) is not None


def test_interrupted_commit_is_voided(store, client, monkeypatch):
    row = held(store)
    call = store._calls.current

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(store._writer._connection, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.commit([step(row, 1)])
    assert store.commit([step(row, 1), step(row, 2)]) == [None, None]
    assert client.zscore("{outlast}:void", call) is not None


def test_close_does_not_wait_for_a_silent_server(server, store):
    store.acquire_liveness("w")
    with stopped(server):
        store.close()


def test_opening_a_socket_that_accepts_no_connection_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(address_module, "CONNECT_SECONDS", 0.2)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as first:
        deaf.bind(str(path))
        deaf.listen(0)
        first.connect(str(path))  # nobody accepts it: the next one has no place
        with pytest.raises(StoreUnavailable):
            store_at(f"unix://{path}").open()


def test_read_reconnects_after_an_idle_connection_was_closed(store, client):
    held(store)
    client.client_kill_filter(skipme=True, _type="normal")
    assert store.run("r") is not None


def test_forgotten_scripts_are_sent_again(store, client):
    row = held(store)
    client.script_flush()
    assert store.commit([step(row, 1)]) == [None]
    client.script_flush()
    assert [entry.seq for entry in store.journal(row.pk)] == [1]
