"""A Redis server that refuses writes, and scripts that fail. Each test has a server of its own."""

import logging
import os
import random
import socket
import threading
from contextlib import contextmanager

import pytest
import redis
from redis_fault_tools import ALWAYS, held, opened, persist, step

from outlast.errors import SettingsError, StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import (
    Ack,
    Append,
    Cancel,
    Claim,
    DeleteSession,
    DeregisterWorker,
    Drain,
    Prune,
    Record,
    RecordDurations,
    RegisterWorker,
    Release,
    Replace,
    Retry,
    SaveProgress,
    Send,
    Settle,
    StoreDrainReport,
    Submit,
    Sweep,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.protocol import CommitUnknown, NoStore
from outlast.store.redis import scripts, server_check
from outlast.store.redis import store as store_module
from outlast.store.rows import RunQuery
from outlast.testing import servers
from support.waiting import WAIT_SECONDS, wait_until

SCRIPT = scripts.commit_script()


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


def contents(server):
    """Every key with what is in it; of a hash or a set its order does not count."""
    read = {
        "hash": lambda client, key: client.hgetall(key),
        "set": lambda client, key: client.smembers(key),
        "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
        "list": lambda client, key: client.lrange(key, 0, -1),
        "string": lambda client, key: client.get(key),
    }
    with redis.Redis.from_url(server.url) as client:
        return {key: read[client.type(key).decode()](client, key) for key in client.keys()}


def is_busy(client):
    try:
        client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_server_that_is_busy_with_a_script_is_unavailable(store, client):
    row = held(store)
    client.config_set("lua-time-limit", 20)

    def spin():
        with pytest.raises(redis.ResponseError, match="killed"):
            client.eval("while true do end", 0)

    spinning = threading.Thread(target=spin)
    spinning.start()
    wait_until(lambda: is_busy(client))
    try:
        with pytest.raises(StoreUnavailable, match="busy with another client's script"):
            store.commit([step(row, 1)])
        with pytest.raises(StoreUnavailable, match="busy with another client's script"):
            store.run("r")
    finally:
        client.script_kill()
        spinning.join()
    assert store.commit([step(row, 1)]) == [None]


def test_full_server_refuses_writes_and_writes_nothing_in_part(store, client, server):
    row = held(store)
    store.commit([step(row, 1), Submit("old", "", "1", "t", "s", queue="items")])
    (item,) = store.commit([Claim("w", "c", queues=("items",), workflows=("",))])[0]
    store.commit([Ack(item.pk, item.fence, "items")])
    before = contents(server)
    client.config_set("maxmemory", 1)
    for command in (
        step(row, 2),
        Submit("new", "flow", "[]", "t2", "s"),
        UpdateSession("s", "t", {"a": "1"}),
        Send("r", "m", "1", "1"),
    ):
        with pytest.raises(StoreUnavailable, match="memory is full"):
            store.commit([command])
    assert contents(server) == before
    assert store.commit([Prune(store.now() + 1, items=True)]) == [1], (
        "what frees memory is not refused"
    )
    client.config_set("maxmemory", 0)
    assert store.commit([step(row, 2)]) == [None]


def test_replica_refuses_writes_and_is_reported(server, store, client, caplog):
    row = held(store)
    client.replicaof("127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="this is a replica"):
        store.commit([step(row, 1)])
    server_check._warned.clear()
    with caplog.at_level(logging.WARNING), opened(server.url):
        assert "this is a replica" in caplog.text
    with pytest.raises(SettingsError, match="rejected, because its address says `strict`"):
        store_at(f"{server.url}?strict").open()
    client.replicaof("NO", "ONE")
    assert persist(store, [step(row, 1)]) == [None]


@contextmanager
def tcp_server(*options):
    """A server with a TCP port, which replicas need. A port that is taken is replaced."""
    for _ in range(10):
        port = str(
            random.randrange(15_000, 30_000)
        )  # below the ports that the kernel gives to clients
        with (
            suppress_taken(port) as free,
            servers.redis_server(None, "--port", port, *options) as server,
        ):
            free.append(port)
            yield server, port
            return
    raise AssertionError("no port is free")


@contextmanager
def suppress_taken(port):
    """Ignore a server that cannot start because its port is taken."""
    started = []
    try:
        yield started
    except Exception:
        with socket.socket() as probe:
            if started or probe.connect_ex(("127.0.0.1", int(port))):
                raise


def test_commit_may_wait_for_replicas(monkeypatch):
    with tcp_server(*ALWAYS) as (master, port), opened(f"{master.url}?wait=1") as store:
        monkeypatch.setattr(store_module, "REPLICA_SECONDS", 0.3)
        with pytest.raises(CommitUnknown, match="0 of 1 replicas"):
            store.commit([Submit("a", "flow", "[]", "t", "s")])
        monkeypatch.setattr(store_module, "REPLICA_SECONDS", WAIT_SECONDS)
        with servers.redis_server(None, "--replicaof", "127.0.0.1", port) as replica:
            (outcome,) = persist(store, [Submit("a", "flow", "[]", "t", "s")])
            assert outcome.new
            with opened(replica.url) as copy:
                assert copy.run("a") is not None


def test_commit_is_unknown_when_the_wait_for_replicas_fails(store, server, client, monkeypatch):
    monkeypatch.setattr(store_module, "REPLICA_SECONDS", WAIT_SECONDS)

    def demote():
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        client.replicaof("127.0.0.1", 1)

    with opened(f"{server.url}?wait=1") as waiting:
        demotion = threading.Thread(target=demote)
        demotion.start()
        with pytest.raises(CommitUnknown):
            waiting.commit([Submit("a", "flow", "[]", "t", "s")])
        demotion.join()
        assert store.run("a") is not None
        client.replicaof("NO", "ONE")


def planted(number: int, script: scripts.Script = SCRIPT) -> scripts.Script:
    """The script, which fails at its so manyth write."""
    text = script.text.decode()
    fault = f"""
    local writes = 0
    local READS = {{TIME=1, ZSCORE=1, HGET=1, HMGET=1, HGETALL=1, HKEYS=1, EXISTS=1, SISMEMBER=1, ZRANGE=1, ZRANGEBYSCORE=1, ZRANGEBYLEX=1,
                   ZREVRANGE=1, ZCARD=1, SMEMBERS=1, LRANGE=1, LLEN=1, PUBSUB=1}}
    local function call(command, ...)
        if not READS[command] then
            writes = writes + 1
            if writes == {number} then error('planted') end
        end
        return redis.call(command, ...)
    end
    """
    text = text.replace("local P, call = KEYS[1], redis.call", f"local P = KEYS[1]{fault}", 1)
    assert "planted" in text
    return scripts.Script(text.encode(), "0" * 40)


def test_script_that_fails_at_any_write_writes_nothing(server, store, monkeypatch):
    rows = [held(store, f"r{number}") for number in range(5)]
    store.commit(
        [
            *(step(row, 1) for row in rows),
            Submit("queued", "flow", "[]", "t", "s"), Submit("later", "flow", "[]", "t", "s", delay=100.0),
            Submit("ended", "flow", "[]", "t", "s"), Cancel("ended", "no"), Submit("old", "flow", "[]", "t", "s"), Cancel("old", "no"),
            UpdateSession("s", "t", {"a": "1"}, ttl=5.0, appends={"l": Append(("1", "2", "3")), "m": Append(("1",))}), UpdateSession("gone", "t", {"a": "1"}),
            RegisterWorker("w2", "host", 2, 30.0), RecordDurations((("flow", "step", 1.0),)), Send("r1", "m", "0", "1"),
        ]
    )  # fmt: skip
    batch = [
        step(rows[0], 2), SaveProgress(rows[0].pk, rows[0].fence, "k", 1, "1"), Send("r1", "m", "1", "1"), Settle(rows[0].pk, rows[0].fence, "done", "1"),
        Submit("new", "flow", "[]", "t", "s", parent="r1"), Retry("ended", "t"), Release(rows[1].pk, rows[1].fence, "waits", waiting=True, waits=("m",), seen=0),
        Release(rows[2].pk, rows[2].fence, "drain"), Claim("w2", "c", limit=3), Cancel("r3", "why"), Drain("w2", "why"), StoreDrainReport("w2", "{}"),
        UpdateSession("s", "t2", {"a": None, "b": "2", "m": "1"}, appends={"l": Append(("4", "5"), keep=2)}), DeleteSession("gone", "f"),
        UpdateSession("s", "t3", {"c": "1"}, pops={"l": 1}, replaces={"l": Replace(0, "7")}, take=True),
        UpdateSessions((UpdateSession("s", "t4", {}, clear=True), UpdateSession("other", "t4", {"x": "1"}, appends={"l": Append(("1",))}))),
        RecordDurations((("flow", "step", 2.0), ("flow", "other", 1.0))), DeregisterWorker("w"), Prune(store.now() + 100), Sweep(),
    ]  # fmt: skip
    before = contents(server)
    number, stride = 0, 1 if os.environ.get("OUTLAST_TEST_STORES") == "all" else 4
    while True:
        number += stride
        with monkeypatch.context() as patch:
            patch.setattr(scripts, "commit_script", lambda number=number: planted(number))
            try:
                outcomes = store.commit(batch)
            except StoreBroken as error:
                assert "planted" in str(error)
                assert "Nothing was written" in str(error)
            else:
                break
        after = contents(server)
        assert {
            key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
        } == set(), number
    assert number > 60
    assert len(outcomes) == len(batch)
    assert contents(server) != before


def test_key_of_another_program_is_an_error_and_nothing_is_written(server, store, client):
    row = held(store)
    client.set(f"{{outlast}}:journal:{row.pk}", "foreign")
    before = contents(server)
    with pytest.raises(StoreBroken, match="WRONGTYPE"):
        store.commit([Submit("a", "flow", "[]", "t", "s"), step(row, 1)])
    assert contents(server) == before
    assert store.run("a") is None


def test_prune_leaves_no_key_behind(server, store, client):
    for number in range(3):
        row = held(store, f"r{number}", worker=f"w{number}")
        store.commit([step(row, 1), Record(row.pk, 2, row.fence, "done", "k", 1.0), SaveProgress(row.pk, row.fence, "k", 1, "1"),
                      Send(row.id, "m", "1", "1"), Submit(f"child{number}", "flow", "[]", "t", "s", parent=row.id)])  # fmt: skip
        store.commit([Settle(row.pk, row.fence, "failed")])
        store.commit([Retry(row.id, "again")])
        (row,) = store.commit([Claim(f"w{number}", "c", ids=(row.id,))])[0]
        store.commit(
            [
                Settle(row.pk, row.fence, "done"),
                Cancel(f"child{number}", "no"),
                DeregisterWorker(f"w{number}"),
            ]
        )
        store.commit(
            [
                Submit(f"i{number}", "", "1", "t", "s", queue="items"),
                UpdateSession(
                    f"s{number}", "t", {"a": "1"}, ttl=1.0, appends={"l": Append(("1",))}
                ),
            ]
        )
        store.commit([Cancel(f"i{number}", "no"), DeleteSession(f"s{number}", "f")])
    assert store.commit([Prune(store.now() + 100), Prune(store.now() + 100, sessions=True)]) == [
        9,
        3,
    ]
    left = sorted(key.removeprefix("{outlast}:") for key in client.keys())
    assert left == [
        "counters",
        "format",
        "pulse",
        "queue:default",
        "queue:items",
        "queues",
        "rate:default",
        "rate:items",
    ]
    assert store.runs(RunQuery()) == []


def test_store_of_a_newer_release_is_refused_and_left_alone(store, client):
    client.set("{outlast}:format", "2")
    before = {key: client.dump(key) for key in client.keys()}
    newer = store_at(store._address.place)
    with pytest.raises(StoreTooNew, match="its format is 2, this Outlast supports up to 1"):
        newer.open()
    assert {key: client.dump(key) for key in client.keys()} == before


def test_read_only_open_creates_no_store(store, client):
    store.close()
    client.flushdb()
    looking = store_at(store._address.place)
    looking.migrates = False
    with pytest.raises(NoStore):
        looking.open()
    assert client.keys() == []
