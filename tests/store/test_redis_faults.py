"""What can go wrong with a Redis server, on real ones: each test has a server of its own, which it stops, fills or spoils."""

import logging
import os
import re
import signal
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from outlast.errors import SettingsError, StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.protocol import CommitUnknown, NoStore
from outlast.store.redis import scripts
from outlast.store.redis import store as store_module
from outlast.store.rows import RunQuery
from outlast.store.verbs import (
    Ack,
    Append,
    Cancel,
    Claim,
    Drain,
    Enlist,
    Forget,
    Keep,
    Leave,
    Measured,
    Prune,
    Record,
    Release,
    Report,
    Retry,
    Save,
    Send,
    Settle,
    Submit,
    Sweep,
)
from outlast.testing import servers

SCRIPT = scripts.commit_script()
SPIN = "for i = 1, 200000000 do end"  # about a second in which nobody else is served
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


@contextmanager
def opened(url, **options):
    store = store_at(url, **options)
    store.open()
    try:
        yield store
    finally:
        store.close()


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


def held(store, id="r", worker="w"):
    store.commit([Enlist(worker, "host", 1, 30.0)])
    return store.commit([Submit(id, "flow", "[]", f"t-{id}", "seed", worker=worker)])[0].row


def step(row, seq, value="1"):
    return Record(row.pk, seq, row.fence, "step", f"flow/step#{seq}", 1.0, value=value)


def persist(store, verbs, seconds=10.0):
    """As the writer does it."""
    deadline, unknown = time.monotonic() + seconds, False
    while True:
        try:
            if unknown:
                store.recover()
            return store.commit(verbs)
        except (StoreUnavailable, CommitUnknown) as error:
            unknown = unknown or isinstance(error, CommitUnknown)
            assert time.monotonic() < deadline, error
            time.sleep(0.02)


# -- the server goes and comes


def test_what_was_acknowledged_survives_a_killed_server(server, store):
    row = held(store)
    for seq in range(1, 21):
        assert store.commit([step(row, seq)]) == [None]
    server.stop(signal.SIGKILL)
    server.start()
    assert [entry.seq for entry in store.journal(row.pk)] == [*range(1, 21)]
    assert persist(store, [step(row, 21)]) == [None]
    assert store.run("r").fence == row.fence


def test_while_the_server_is_away_it_is_unavailable_and_afterwards_it_goes_on(server, store):
    row = held(store)
    server.stop()
    for _ in range(2):
        with pytest.raises((StoreUnavailable, CommitUnknown)):
            store.commit([step(row, 1)])
        with pytest.raises(
            StoreUnavailable, match=r"cannot be reached\. Check that it runs, and the address\."
        ):
            store.run("r")
    with pytest.raises(StoreUnavailable, match=r"cannot be reached\. Check that it runs, and the address\."):
        store_at(server.url).open()
    server.start()
    assert persist(store, [step(row, 1), step(row, 2)]) == [None, None]
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]


def test_listeners_and_presence_come_back_after_a_restart(server, store, client):
    rung = threading.Event()
    store.hold("w")
    store.listen(rung.set)
    server.stop()
    server.start()
    channel = "{outlast}:alive:0:w"
    deadline = time.monotonic() + 10
    while dict(client.pubsub_numsub(channel))[channel] != 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    rung.clear()
    with opened(server.url) as other:
        other.commit([Submit("a", "flow", "[]", "t", "s")])
    assert rung.wait(5)


def test_a_server_that_lost_its_last_seconds_gives_no_fence_twice_and_takes_no_hole(server, store, client):
    """As after a crash with appendfsync everysec, or a failover."""
    row = held(store)
    store.commit([step(row, 1)])
    before = _raw_dumps(server)
    store.commit([step(row, 2)])
    later = held(store, "later")
    _restore(server, before)
    assert store.commit([step(row, 3)])[0].why == "fence", "the server has not got the second entry any more"
    assert store.commit([step(row, 2)]) == [None]
    again = held(store, "later")
    assert again.fence > later.fence
    assert store.commit([step(later, 1)])[0].why == "fence"


def _raw_dumps(server):
    with redis.Redis.from_url(server.url) as client:
        return {key: client.dump(key) for key in client.keys()}


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


def _restore(server, dumps):
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        for key, dump in dumps.items():
            client.restore(key, 0, dump)


def test_a_torn_log_has_a_whole_batch_or_nothing_of_it(server, store):
    row = held(store)
    store.commit([step(row, 1)])
    (file,) = [*server.data.glob("appendonly.aof"), *server.data.glob("*/*.incr.aof")]
    start = file.stat().st_size
    store.commit([step(row, 2), Send("r", "m", "1", "1"), Keep("s", "t", {"a": "1"}), step(row, 3)])
    whole = file.read_bytes()
    for cut in (start, start + 1, start + 40, (start + len(whole)) // 2, len(whole) - 1, len(whole)):
        server.stop(signal.SIGKILL)
        file.write_bytes(whole[:cut])
        server.start()
        with opened(server.url) as other:
            seqs = [entry.seq for entry in other.journal(row.pk)]
            there = (len(other.messages(row.pk)), other.session("s") is not None)
            assert (seqs, there) == (([1, 2, 3], (1, True)) if cut == len(whole) else ([1], (0, False)))


def test_a_server_that_loads_its_data_is_unavailable_until_it_has():
    slow = ("--appendonly", "no", "--key-load-delay", "10000", "--rdbcompression", "no")
    with servers.redis_server(None, *slow) as server, opened(server.url) as store:
        with redis.Redis.from_url(server.url) as client:
            for number in range(100):
                client.set(f"k{number}", "x" * 200_000)
            client.save()
        server.stop()
        starting = threading.Thread(target=server.start)
        starting.start()
        said = ""
        while starting.is_alive():
            try:
                store.run("r")
            except StoreUnavailable as error:
                said += str(error)
            time.sleep(0.02)
        starting.join()
        assert "the server is loading its data" in said
        assert store.run("r") is None


# -- connections


def test_a_connection_lost_in_the_middle_of_a_commit_leaves_it_unknown_and_a_repeat_is_no_second_time(
    store, client
):
    row = held(store)
    sleeping = threading.Thread(target=client.eval, args=(SPIN, 0))
    sleeping.start()
    time.sleep(0.1)
    cut = threading.Timer(0.1, lambda: store._writer._connection._sock.shutdown(socket.SHUT_RDWR))
    cut.start()
    with pytest.raises(CommitUnknown):
        store.commit([step(row, 1), Send("r", "m", "1", "1")])
    sleeping.join()
    assert persist(store, [step(row, 1), Send("r", "m", "1", "1"), step(row, 2)]) == [None, None, None]
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    assert len(store.messages(row.pk)) == 1


def test_a_command_is_sent_once(store, client):
    """redis-py's own client would send it up to eleven times."""
    row = held(store)
    client.config_resetstat()
    sleeping = threading.Thread(target=client.eval, args=(SPIN, 0))
    sleeping.start()
    time.sleep(0.05)
    threading.Timer(0.05, lambda: store._writer._connection._sock.shutdown(socket.SHUT_RDWR)).start()
    with pytest.raises(CommitUnknown):
        store.commit([step(row, 1)])
    sleeping.join()
    calls = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    assert calls <= 1


def test_a_call_that_was_given_up_is_not_executed_any_more(store):
    row = held(store)
    store._unknown.append(store._call)
    store.recover()
    with pytest.raises(StoreUnavailable):
        store.commit([step(row, 1)])
    assert store.journal(row.pk) == []
    assert store.commit([step(row, 1)]) == [None]


def test_a_commit_on_the_loop_that_takes_too_long_is_waited_for_and_keeps_its_connection(store, client):
    row = held(store)
    store.commit([step(row, 1)])
    connection = store._writer._connection
    spinning = threading.Thread(target=client.eval, args=(SPIN, 0))
    spinning.start()
    time.sleep(0.1)
    with pytest.raises(CommitUnknown, match="no answer within"):
        store.try_commit([step(row, 2)])
    assert store.try_commit([step(row, 2)]) is None, "there is somebody to wait for"
    store.recover()
    spinning.join()
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    assert store.commit([step(row, 2), step(row, 3)]) == [None, None]
    assert store._writer._connection is connection
    assert client.zcard("{outlast}:void") == 0


def test_a_late_answer_that_never_comes_leaves_a_call_that_is_not_executed_any_more(store, client):
    row = held(store)
    call = store._call
    spinning = threading.Thread(target=client.eval, args=(SPIN, 0))
    spinning.start()
    time.sleep(0.1)
    with pytest.raises(CommitUnknown):
        store.try_commit([step(row, 1)])
    store._writer._connection._sock.shutdown(socket.SHUT_RDWR)
    assert persist(store, [step(row, 1), step(row, 2)]) == [None, None]
    spinning.join()
    assert client.zscore("{outlast}:void", call) is not None


def test_an_interrupt_in_the_middle_of_a_commit_leaves_a_call_that_is_not_executed_any_more(
    store, client, monkeypatch
):
    row = held(store)
    call = store._call

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(store._writer._connection, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.commit([step(row, 1)])
    assert store.commit([step(row, 1), step(row, 2)]) == [None, None]
    assert client.zscore("{outlast}:void", call) is not None


def test_a_close_does_not_wait_for_a_server_that_does_not_answer(server, store):
    store.hold("w")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        store.close()
        assert time.monotonic() - start < 4.0
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_socket_whose_server_takes_nobody_in_keeps_nobody_waiting(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as first:
        deaf.bind(str(path))
        deaf.listen(0)
        first.connect(str(path))  # nobody accepts it: the next one has no place
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store_at(f"unix://{path}").open()
        assert time.monotonic() - start < 8.0


def test_a_connection_that_was_closed_while_nothing_happened_is_no_error_for_readers(store, client):
    held(store)
    client.client_kill_filter(skipme=True, _type="normal")
    assert store.run("r") is not None


def test_forgotten_scripts_are_sent_again(store, client):
    row = held(store)
    client.script_flush()
    assert store.commit([step(row, 1)]) == [None]
    client.script_flush()
    assert [entry.seq for entry in store.journal(row.pk)] == [1]


# -- servers that refuse


def test_a_server_that_is_busy_with_a_script_is_unavailable(store, client):
    row = held(store)
    client.config_set("lua-time-limit", 20)

    def spin():
        with pytest.raises(redis.ResponseError, match="killed"):
            client.eval("while true do end", 0)

    spinning = threading.Thread(target=spin)
    spinning.start()
    time.sleep(0.2)
    try:
        with pytest.raises(StoreUnavailable, match="busy with somebody's script"):
            store.commit([step(row, 1)])
        with pytest.raises(StoreUnavailable, match="busy with somebody's script"):
            store.run("r")
    finally:
        client.script_kill()
        spinning.join()
    assert store.commit([step(row, 1)]) == [None]


def test_a_full_server_says_so_and_nothing_is_half_written(store, client, server):
    row = held(store)
    store.commit([step(row, 1), Submit("old", "", "1", "t", "s", queue="items")])
    (item,) = store.commit([Claim("w", "c", queues=("items",), workflows=("",))])[0]
    store.commit([Ack(item.pk, item.fence, "items")])
    before = contents(server)
    client.config_set("maxmemory", 1)
    for verb in (
        step(row, 2),
        Submit("new", "flow", "[]", "t2", "s"),
        Keep("s", "t", {"a": "1"}),
        Send("r", "m", "1", "1"),
    ):
        with pytest.raises(StoreUnavailable, match="memory is full"):
            store.commit([verb])
    assert contents(server) == before
    assert store.commit([Prune(store.now() + 1, items=True)]) == [1], "what frees memory is not refused"
    client.config_set("maxmemory", 0)
    assert store.commit([step(row, 2)]) == [None]


def test_a_replica_takes_no_writes_and_is_said_to_be_one(server, store, client, caplog):
    row = held(store)
    client.replicaof("127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="this is a replica"):
        store.commit([step(row, 1)])
    store_module._said.clear()
    with caplog.at_level(logging.WARNING), opened(server.url):
        assert "this is a replica" in caplog.text
    with pytest.raises(SettingsError, match="refused, as its address says `strict`"):
        store_at(f"{server.url}?strict").open()
    client.replicaof("NO", "ONE")
    assert persist(store, [step(row, 1)]) == [None]


def test_a_commit_may_wait_for_replicas(monkeypatch):
    monkeypatch.setattr(store_module, "REPLICA_SECONDS", 0.3)
    port = _free_port()
    with (
        servers.redis_server(None, "--port", port, *ALWAYS) as master,
        opened(f"{master.url}?wait=1") as store,
    ):
        with pytest.raises(CommitUnknown, match="0 of 1 replicas"):
            store.commit([Submit("a", "flow", "[]", "t", "s")])
        with servers.redis_server(None, "--replicaof", "127.0.0.1", port) as replica:
            (outcome,) = persist(store, [Submit("a", "flow", "[]", "t", "s")], 30)
            assert outcome.new
            with opened(replica.url) as copy:
                assert copy.run("a") is not None


def test_whatever_goes_wrong_while_replicas_are_waited_for_the_commit_is_unknown(store, server, client):
    with opened(f"{server.url}?wait=1") as waiting:
        demotion = threading.Timer(0.3, client.replicaof, ("127.0.0.1", 1))
        demotion.start()
        with pytest.raises(CommitUnknown):
            waiting.commit([Submit("a", "flow", "[]", "t", "s")])
        demotion.join()
        assert store.run("a") is not None
        client.replicaof("NO", "ONE")


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


# -- warnings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--appendonly", "no"), "appendonly is off"),
        (("--appendonly", "yes", "--appendfsync", "no"), "appendfsync is no"),
        (
            (*ALWAYS, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"),
            "maxmemory-policy is allkeys-lru",
        ),
    ],
)
def test_a_dangerous_server_is_warned_of_once_and_refused_where_that_is_asked_for(options, said, caplog):
    store_module._said.clear()
    with servers.redis_server(None, *options) as server:
        for _ in range(2):
            with opened(server.url):
                pass
        assert [record.levelname for record in caplog.records if said in record.message] == ["WARNING"]
        for strict in ("strict", "strict=1"):
            with pytest.raises(SettingsError, match=said):
                store_at(f"{server.url}?{strict}").open()
        with opened(f"{server.url}?strict=0"):
            pass


def test_a_safe_server_is_not_warned_of(server, caplog):
    with opened(f"{server.url}?strict"):
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -- addresses and passwords


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("redis://localhost/0?colour=red", "unknown option colour"),
        ("redis://localhost/zero", "the database in"),
        ("redis://localhost?strict=maybe", "strict in"),
        ("redis://localhost?wait=some", "wait in"),
        ("redis://localhost?prefix={a}", "prefix in"),
        ("redis://localhost?prefix=", "prefix in"),
        ("redis://localhost:port", "must be a number"),
        ("unix://", "names no socket"),
        ("redis://localhost?ssl_ca_certs=x", "are for rediss://"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(address, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        store_at(address)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("redis://user:secret@host:1234/3", "redis://user:***@host:1234/3"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock"),
        ("redis://host?prefix=other&strict&wait=2", "redis://host?prefix=other"),
    ],
)
def test_a_place_is_the_address_without_its_password(address, place):
    assert store_at(address).place == place


def test_a_password_is_in_no_error_and_no_log(caplog):
    with servers.redis_server(None, "--appendonly", "no") as server, caplog.at_level(logging.DEBUG):
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "right")
        path = server.url.removeprefix("unix://")
        with pytest.raises(SettingsError) as wrong:
            store_at(f"unix://:wrong-secret@{path}").open()
        with pytest.raises(SettingsError):
            store_at(server.url).open()
        with opened(f"unix://:right@{path}") as store:
            store.hold("w")
            with redis.Redis.from_url(server.url, password="right") as client:
                client.config_set("requirepass", "changed")
                client.client_kill_filter(skipme=True, _type="normal")
            with pytest.raises((StoreUnavailable, CommitUnknown)) as lost:
                for _ in range(2):
                    store.commit([Submit("a", "flow", "[]", "t", "s")])
        with redis.Redis.from_url(server.url, password="changed") as client:
            client.config_set("requirepass", "")
    everything = (
        f"{wrong.value!r} {wrong.value.__cause__!r} {lost.value!r} {lost.value.__cause__!r} {caplog.text}"
    )
    assert "secret" not in everything
    assert "right" not in everything


def test_the_rights_that_the_page_names_are_enough_and_without_info_leases_alone_tell(caplog):
    page = (Path(__file__).parents[2] / "docs/redis.md").read_text()
    rights = re.search(r"ACL SETUSER outlast on >PASSWORD (.*)", page)[1].split()
    with servers.redis_server(None, *ALWAYS) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "outlast", "on", ">secret", *rights)
        address = f"unix://outlast:secret@{server.url.removeprefix('unix://')}?strict"
        with opened(address) as store:
            store.hold("w")
            store.listen(lambda: None)
            row = held(store)
            store.commit([step(row, 1), Send("r", "m", "1", "1"), Keep("s", "t", {"a": "1"}), Sweep()])
            store.recover()
            assert len(store.journal(row.pk)) == 1
            assert client.smembers("{outlast}:present") == {b"w"}
        client.execute_command("ACL", "SETUSER", "outlast", "-info", "-config")
        with opened(address.removesuffix("?strict")) as store:
            store.hold("w")
            assert store.commit([Enlist("w", "host", 1, 30.0), Sweep()])[1].workers == ()
            assert client.smembers("{outlast}:present") == set()


# -- a script that fails


def planted(number: int, script: scripts.Script = SCRIPT) -> scripts.Script:
    """The script, which fails at its so manyth write."""
    text = script.text.decode()
    fault = f"""
    local writes = 0
    local READS = {{TIME=1, ZSCORE=1, HGET=1, HMGET=1, HGETALL=1, EXISTS=1, SISMEMBER=1, ZRANGE=1, ZRANGEBYSCORE=1, ZRANGEBYLEX=1,
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


def test_a_batch_whose_script_fails_at_any_of_its_writes_has_written_nothing(server, store, monkeypatch):
    rows = [held(store, f"r{number}") for number in range(5)]
    store.commit(
        [
            *(step(row, 1) for row in rows),
            Submit("queued", "flow", "[]", "t", "s"), Submit("later", "flow", "[]", "t", "s", delay=100.0),
            Submit("ended", "flow", "[]", "t", "s"), Cancel("ended", "no"), Submit("old", "flow", "[]", "t", "s"), Cancel("old", "no"),
            Keep("s", "t", {"a": "1"}, ttl=5.0, appends={"l": Append(("1", "2", "3")), "m": Append(("1",))}), Keep("gone", "t", {"a": "1"}),
            Enlist("w2", "host", 2, 30.0), Measured((("flow", "step", 1.0),)), Send("r1", "m", "0", "1"),
        ]
    )  # fmt: skip
    batch = [
        step(rows[0], 2), Save(rows[0].pk, rows[0].fence, "k", 1, "1"), Send("r1", "m", "1", "1"), Settle(rows[0].pk, rows[0].fence, "done", "1"),
        Submit("new", "flow", "[]", "t", "s", parent="r1"), Retry("ended", "t"), Release(rows[1].pk, rows[1].fence, "waits", waiting=True, waits=("m",), seen=0),
        Release(rows[2].pk, rows[2].fence, "drain"), Claim("w2", "c", limit=3), Cancel("r3", "why"), Drain("w2", "why"), Report("w2", "{}"),
        Keep("s", "t2", {"a": None, "b": "2", "m": "1"}, appends={"l": Append(("4", "5"), keep=2)}), Forget("gone", "f"),
        Measured((("flow", "step", 2.0), ("flow", "other", 1.0))), Leave("w"), Prune(store.now() + 100), Sweep(),
    ]  # fmt: skip
    before = contents(server)
    number = 0
    while True:
        number += 1
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
        assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} == set(), (
            number
        )
    assert number > 60
    assert len(outcomes) == len(batch)
    assert contents(server) != before


def test_a_foreign_key_in_the_way_is_an_error_and_nothing_is_half_written(server, store, client):
    row = held(store)
    client.set(f"{{outlast}}:journal:{row.pk}", "foreign")
    before = contents(server)
    with pytest.raises(StoreBroken, match="WRONGTYPE"):
        store.commit([Submit("a", "flow", "[]", "t", "s"), step(row, 1)])
    assert contents(server) == before
    assert store.run("a") is None


# -- nothing is left behind


def test_what_was_pruned_leaves_no_key(server, store, client):
    for number in range(3):
        row = held(store, f"r{number}", worker=f"w{number}")
        store.commit([step(row, 1), Record(row.pk, 2, row.fence, "done", "k", 1.0), Save(row.pk, row.fence, "k", 1, "1"),
                      Send(row.id, "m", "1", "1"), Submit(f"child{number}", "flow", "[]", "t", "s", parent=row.id)])  # fmt: skip
        store.commit([Settle(row.pk, row.fence, "failed")])
        store.commit([Retry(row.id, "again")])
        (row,) = store.commit([Claim(f"w{number}", "c", ids=(row.id,))])[0]
        store.commit([Settle(row.pk, row.fence, "done"), Cancel(f"child{number}", "no"), Leave(f"w{number}")])
        store.commit(
            [
                Submit(f"i{number}", "", "1", "t", "s", queue="items"),
                Keep(f"s{number}", "t", {"a": "1"}, ttl=1.0, appends={"l": Append(("1",))}),
            ]
        )
        store.commit([Cancel(f"i{number}", "no"), Forget(f"s{number}", "f")])
    assert store.commit([Prune(store.now() + 100), Prune(store.now() + 100, sessions=True)]) == [9, 3]
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


def test_a_store_of_a_newer_outlast_is_refused_and_left_alone(store, client):
    client.set("{outlast}:format", "2")
    before = {key: client.dump(key) for key in client.keys()}
    newer = store_at(store._address.place)
    with pytest.raises(StoreTooNew, match="its format is 2, this Outlast knows 1"):
        newer.open()
    assert {key: client.dump(key) for key in client.keys()} == before


def test_whoever_only_looks_makes_no_store(store, client):
    store.close()
    client.flushdb()
    looking = store_at(store._address.place)
    looking.migrates = False
    with pytest.raises(NoStore):
        looking.open()
    assert client.keys() == []
