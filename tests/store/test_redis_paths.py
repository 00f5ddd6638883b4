"""The two ways in which the script changes a run: its row in the view, or only what is needed of it. And what a call may cost."""

from uuid import uuid4

import pytest
import redis
from test_redis_faults import ALWAYS, contents, held, opened, planted, step

from outlast.errors import StoreBroken
from outlast.store.commands import (
    Ack,
    Cancel,
    Claim,
    Prune,
    Record,
    RegisterWorker,
    SaveProgress,
    Settle,
    SetWaiting,
    Submit,
    SubmitMany,
)
from outlast.store.redis import scripts
from outlast.store.rows import RunQuery
from outlast.testing import servers
from outlast.testing.conformance import ManualClock


@pytest.fixture
def store(redis_server):
    with opened(f"{redis_server.url}?prefix={uuid4().hex}") as store:
        yield store


@pytest.fixture(scope="module")
def own_server():
    with servers.redis_server(None, *ALWAYS) as server:
        yield server


def record(row, seq, kind="step", key="k", value="1"):
    return Record(row.pk, seq, row.fence, kind, key, 1.0, value=value)


def claim(store, count, queue="items", token="c"):
    store.commit([RegisterWorker("w", "host", 1, 60.0, (queue,))])
    return store.commit([Claim("w", token, queues=(queue,), limit=count)])[0]


def items(count, name="i", **fields):
    return SubmitMany(
        tuple(
            Submit(f"{name}{n}", "", "1", "t", "s", queue="items", **fields) for n in range(count)
        )
    )


def records_of(store):
    rows = [held(store, f"r{number}") for number in range(3)]
    store.commit(
        [record(rows[0], 1), record(rows[1], 1, "done"), record(rows[1], 2, "done", "other")]
    )
    return [
        record(rows[0], 2), record(rows[0], 3, "intent"), record(rows[1], 3, "done"), record(rows[1], 4), record(rows[2], 1, "child"),
        record(rows[0], 3, "intent"), record(rows[2], 3),
    ]  # fmt: skip


def acks_of(store):
    store.commit([items(4), Submit("child", "", "1", "t", "s", queue="items", parent="p")])
    return [Ack(row.pk, row.fence, "items") for row in claim(store, 5)]


def settles_of(store):
    rows = [held(store, f"r{number}") for number in range(4)]
    store.commit(
        [
            SaveProgress(rows[0].pk, rows[0].fence, "k", 1, "1"),
            SetWaiting(rows[1].pk, rows[1].fence, ("m",)),
        ]
    )
    return [
        Settle(rows[0].pk, rows[0].fence, "done", "1"), Settle(rows[1].pk, rows[1].fence, "failed", None, "e", "why", 0),
        record(rows[2], 1), Settle(rows[2].pk, rows[2].fence, "cancelled", reason="no"), Settle(rows[3].pk, rows[3].fence, "parked"),
    ]  # fmt: skip


def claims_of(store):
    store.commit(
        [
            RegisterWorker("w", "host", 1, 60.0),
            items(3),
            items(1, "t", timeout=5.0),
            items(1, "l", priority=3),
        ]
    )
    return [
        Claim("w", "c", queues=("items",), limit=4),
        Claim("w", "d", queues=("items",), limit=4),
    ]


def submits_of(store):
    store.commit([RegisterWorker("w", "host", 1, 60.0), items(1)])
    return [
        items(3), Submit("mine", "flow", "1", "t", "s", worker="w", timeout=1.0), Submit("later", "flow", "1", "t", "s", delay=9.0),
        Submit("child", "flow", "1", "t", "s", parent="mine"), Claim("w", "c", queues=("items",), limit=2), Prune(store.now() + 9),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [records_of, acks_of, settles_of, claims_of, submits_of])
def test_fast_path_that_fails_at_any_write_writes_nothing(own_server, make, monkeypatch):
    whole = {"commit_script": scripts.commit_script(), "record_script": scripts.record_script()}
    with opened(f"{own_server.url}?prefix={uuid4().hex}", clock=ManualClock()) as store:
        batch = make(store)
        before = contents(own_server)
        for number in range(1, 1000):
            with monkeypatch.context() as patch:
                for name, script in whole.items():
                    patch.setattr(
                        scripts, name, lambda number=number, script=script: planted(number, script)
                    )
                try:
                    store.commit(batch)
                except StoreBroken as error:
                    assert "Nothing was written" in str(error)
                else:
                    break
            after = contents(own_server)
            assert {
                k for k in before.keys() | after.keys() if before.get(k) != after.get(k)
            } == set(), number
        assert number > 4
        assert contents(own_server) != before


@pytest.mark.parametrize("make", [records_of, acks_of, settles_of, claims_of, submits_of])
def test_fast_path_and_full_script_leave_the_same_keys(own_server, make, monkeypatch):
    """The second time the script loads the row of every run."""
    text = scripts.commit_script().text.decode()
    long = text.replace("return rows[pk] ~= nil", "return S.row(pk) ~= nil")
    long = long.replace("rawget(S, 'is_loaded')", "S.is_loaded")
    assert long.count("= S.is_loaded") == 2
    found = []
    for script in (text, long):
        clock = ManualClock()
        with (
            opened(f"{own_server.url}?prefix=p{uuid4().hex}", clock=clock) as store,
            monkeypatch.context() as patch,
        ):
            batch = make(store)
            for name in ("commit_script", "record_script"):
                patch.setattr(
                    scripts, name, lambda script=script: scripts.Script(script.encode(), "0" * 40)
                )
            outcomes = store.commit(batch)
            prefix = store._address.prefix.encode()
            kept = {
                key.removeprefix(prefix): value
                for key, value in contents(own_server).items()
                if key.startswith(prefix) and not key.endswith((b"}:pulse", b"}:counters"))
            }
            found.append((shape(outcomes), plain(kept)))
    assert found[0] == found[1]


def shape(value):
    """Outcomes without what the server's clock has given: fences."""
    if hasattr(value, "_fields"):
        return {name: shape(part) for name, part in value._asdict().items() if name != "fence"}
    return [shape(part) for part in value] if isinstance(value, list) else value


def plain(kept):
    """Without fences, which are times, and counts of nothing, which need not be there."""
    found = {}
    for key, value in kept.items():
        if isinstance(value, dict):
            found[key] = {
                name: text.split(b" ", 1)[-1]
                for name, text in value.items()
                if name not in (b"fence", b"got") and (name, text) not in ((b"ready", b"0"), (b"worker", b""))
                and text != b"0"
            }  # fmt: skip
        else:
            found[key] = value
    return found


def test_last_change_of_a_batch_to_a_run_wins(store):
    row = held(store)
    assert store.commit(
        [record(row, 1), SetWaiting(row.pk, row.fence, ("m",)), record(row, 2), Settle(row.pk, row.fence, "done"), record(row, 3)]
    )[:4] == [None] * 4  # fmt: skip
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    store.commit(
        [Submit("a", "flow", "[]", "t", "s"), Cancel("a", "no"), Prune(store.now() + 9, limit=9)]
    )
    assert store.runs(RunQuery()) == []


def cpu_seconds(server):
    """What the server has used: no neighbour of this machine's counts."""
    with redis.Redis.from_url(server.url) as client:
        used = client.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


def test_cost_of_a_claim_does_not_grow_with_the_number_of_workflows(redis_server, store):
    """It looks at the first of each line, not at as many of each as it may take."""
    seconds = {}
    for kinds in (1, 200):
        queue = f"q{kinds}"
        runs = (
            Submit(f"{queue}-{n}", f"f{n % kinds}", "1", "t", "s", queue=queue)
            for n in range(1_000)
        )
        store.commit([SubmitMany(tuple(runs))])
        times = []
        for number in range(5):
            before = cpu_seconds(redis_server)
            assert len(claim(store, 50, queue, f"{queue}-{number}")) == 50
            times.append(cpu_seconds(redis_server) - before)
        seconds[kinds] = min(times)
    assert seconds[200] < 5 * seconds[1], seconds


def test_claims_come_in_order_over_many_lines(store):
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    runs = [
        Submit(f"r{n:03}", f"f{n % 7}", "1", "t", "s", queue=f"q{n % 3}", priority=n % 4)
        for n in range(150)
    ]
    store.commit([SubmitMany(tuple(runs))])
    wanted = sorted(runs, key=lambda run: -run.priority)
    found = []
    for number, limit in enumerate((1, 60, 30, 59, 9)):
        found += store.commit([Claim("w", f"c{number}", queues=("q0", "q1", "q2"), limit=limit)])[0]
    assert [row.id for row in found] == [run.id for run in wanted]


def test_prune_finds_runs_behind_many_that_must_stay(store, monkeypatch):
    store.commit(
        [RegisterWorker("w", "host", 1, 60.0), Submit("parent", "flow", "1", "t", "s", worker="w")]
    )
    for part in range(3):
        children = (
            Submit(f"c{part}-{n}", "flow", "1", "t", "s", parent="parent") for n in range(1_000)
        )
        store.commit([SubmitMany(tuple(children))])
        rows = claim(store, 1_000, "default", f"c{part}")
        store.commit([Settle(row.pk, row.fence, "done") for row in rows])
    for number in range(7):
        row = held(store, f"x{number}")
        store.commit([Settle(row.pk, row.fence, "done")])
    later = store.now() + 10
    calls = []
    send = store._send
    monkeypatch.setattr(store, "_send", lambda *said: calls.append(1) or send(*said))
    assert store.commit([Prune(later, limit=5)]) == [5]
    assert len(calls) > 10, "in small calls"
    calls.clear()
    assert store.commit([Prune(later, limit=2)]) == [2]
    assert len(calls) < 5, "from where the last one was"
    assert store.commit([Prune(later)]) == [0]
    (parent,) = (store.run("parent"),)
    store.commit([Settle(parent.pk, parent.fence, "done")])
    assert store.commit([Prune(later, limit=20_000)]) == [3_001]
    assert store.runs(RunQuery()) == []


def test_batch_with_only_records_is_written_by_the_script_that_only_records(store, monkeypatch):
    row = held(store)
    monkeypatch.setattr(scripts, "commit_script", None)
    assert store.commit([step(row, 1), step(row, 2)]) == [None, None]
    assert store.commit([step(row, 2)]) == [None], "a repeat"
    assert store.commit([step(row, 5), step(row, 3)])[0].why == "fence"
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2, 3]


def test_runs_with_a_prefix_are_found_without_a_look_at_the_others(own_server):
    with (
        opened(f"{own_server.url}?prefix={uuid4().hex}") as store,
        redis.Redis.from_url(own_server.url) as client,
    ):
        submits = [Submit(f"other-{n}", "w", "{}", "t", "00" * 16) for n in range(2_000)]
        submits += [Submit(f"mine-{n}", "w", "{}", "t", "00" * 16) for n in range(3)]
        store.commit([SubmitMany(tuple(submits))])
        client.config_resetstat()
        found = [row.id for row in store.runs(RunQuery(prefix="mine-"))]
        assert found == ["mine-2", "mine-1", "mine-0"]
        assert client.info("commandstats")["cmdstat_hmget"]["calls"] < 10


def test_a_prefix_finds_more_runs_than_one_page_newest_first(store):
    submits = [Submit(f"a-{n}", "w", "{}", "t", "00" * 16) for n in range(2_500)]
    store.commit([SubmitMany(tuple(submits))])
    found = [row.id for row in store.runs(RunQuery(prefix="a-", limit=2_400))]
    assert found == [f"a-{n}" for n in reversed(range(100, 2_500))]
    store.commit([Cancel("a-7", "enough")])
    assert [row.id for row in store.runs(RunQuery(prefix="a-", statuses=("cancelled",)))] == ["a-7"]
    store.commit([Prune(1e12, 10)])
    assert store.runs(RunQuery(prefix="a-7", limit=1))[0].id != "a-7"
