"""What a claim costs does not grow with the number of keys, by counts that no machine changes."""

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
import redis
from postgres_cost_tools import entries_read

from outlast.store.address import store_at
from outlast.store.commands import Claim, RegisterWorker, SetQueueLimits, Settle, Submit, SubmitMany
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Store
from outlast.store.redis.store import RedisStore
from outlast.store.rows import NEVER
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.store import SQLiteStore
from support.postgres_schemas import connected, emptied, schema_of_this_process

FEW = 100
MANY = [10_000, pytest.param(100_000, marks=pytest.mark.extended)]
CLAIMED = 20
REVIEWED_MAX = 1_000
"""How many changes of keys one claim reviews."""
SETS = ("z", "h", "s")
"""Commands of Redis with these initials read and write sorted sets, hashes and sets."""
PLANS = {
    "changes": (sql.KEY_CHANGES, ("q", 1.0), "key_changes_at (queue=? AND at<?)"),
    "next_change": (sql.NEXT_KEY_CHANGE, ("q",), "key_changes_at (queue=?)"),
    "reviewed": (sql.KEY_REVIEWED, ("q", "k"), "PRIMARY KEY (queue=? AND key=?)"),
    "running": (sql.KEY_RUNNING, ("q", "k"), "runs_key_running (queue=? AND key=?)"),
    "start": (sql.KEY_START, ("q", "k", 3), "runs_key_started (queue=? AND key=? AND started>?)"),
    "heads": (sql.KEY_HEADS, ("q", "k"), "runs_heads (queue=? AND key=?)"),
    "next": (
        sql.KEY_NEXT,
        ("q", "k", "w", -3),
        "runs_gated (queue=? AND key=? AND (workflow,ready)>(?,?))",
    ),
    "give": (sql.GIVE_TURN, (1.0, 1), "INTEGER PRIMARY KEY (rowid=?)"),
    "take": (sql.TAKE_TURN, (1,), "INTEGER PRIMARY KEY (rowid=?)"),
}


@pytest.mark.parametrize("name", PLANS)
def test_each_statement_of_a_review_seeks_its_key(name: str) -> None:
    statement, values, seek = PLANS[name]
    with closing(SQLiteStore(None)) as store:
        store.open()
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    (line,) = plan
    assert line.startswith("SEARCH ")
    assert line.endswith(f" {seek}")


def test_limits_of_a_queue_read_only_its_own_keys() -> None:
    """Changing a limit notes every key of the queue, and passes over no other queue's."""
    with closing(SQLiteStore(None)) as store:
        store.open()
        statement = f"EXPLAIN QUERY PLAN {sql.KEYS_CHANGED}"
        plan = [row[3] for row in store._db.execute(statement, {"queue": "q"})]
    reads = [line for line in plan if line.startswith(("SEARCH", "SCAN"))]
    assert reads == [
        "SEARCH runs USING COVERING INDEX runs_gated (queue=? AND key>?)",
        "SEARCH runs USING INDEX runs_heads (queue=? AND key>?)",
    ]


def with_keys(store: Store, queue: str, keys: int) -> Callable[[], None]:
    """Queue runs of each key, review all keys, and return a claim that settles what it got.

    The keys that are claimed have more runs left, so that each claim gives turns to as many. Both limits per key are set, and allow everything, so that each claim counts for both.
    """
    store.commit([RegisterWorker("w", "host", 1, NEVER)])
    limits = SetQueueLimits(
        queue,
        None,
        None,
        key_concurrency_max=5,
        keep_key_concurrency=False,
        key_starts_max=50,
        key_period=1e6,
        keep_key_rate=False,
    )
    store.commit([limits])
    count = max(2 * keys, 10 * FEW)
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        runs = [
            Submit(f"{queue}-{n}", "flow", "[]", "t", "s", queue, key=f"k{n % keys}")
            for n in numbers
        ]
        store.commit([SubmitMany(tuple(runs))])
    turns = 0

    def claim() -> None:
        nonlocal turns
        turns += 1
        (rows,) = store.commit([Claim("w", f"{queue}{turns}", (), (queue,), limit=CLAIMED)])
        assert len({row.key for row in rows}) == CLAIMED
        assert set(store.commit([Settle(row.pk, row.fence, "done") for row in rows])) == {None}

    # A claim reviews so many changes. Postgres notes one for each run.
    for _ in range(count // REVIEWED_MAX + 8):
        claim()
    return claim


@pytest.mark.parametrize("many", MANY)
def test_sqlite_executes_as_many_instructions_with_many_keys(many: int) -> None:
    counts = []
    for keys in (FEW, many):
        with closing(SQLiteStore(None)) as store:
            store.open()
            claim = with_keys(store, "q", keys)
            counts.append(instructions(store, claim))
    assert 0 < counts[1] <= 1.05 * counts[0]


def instructions(store: SQLiteStore, do: Callable[[], None]) -> int:
    """Count what SQLite's own machine executes, in tens."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._db.set_progress_handler(count, 10)
    try:
        do()
    finally:
        store._db.set_progress_handler(None, 0)
    return steps


@pytest.fixture
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "keys") as address:
        emptied(address)
        yield address


@pytest.mark.parametrize("many", MANY)
def test_postgres_reads_as_many_index_entries_with_many_keys(schema: str, many: int) -> None:
    """The plans were made while there were few keys."""
    counts = []
    with closing(PostgresStore.at(schema)) as store, connected(schema) as db:
        store.open()
        for queue, keys in (("few", FEW), ("many", many)):
            claim = with_keys(store, queue, keys)
            vacuumed(db)
            before = entries_read(db, store)
            claim()
            counts.append(entries_read(db, store) - before)
    assert 0 < counts[1] <= 1.2 * counts[0]
    assert counts[1] < 60 * CLAIMED


def vacuumed(db: psycopg.Connection) -> None:
    """Remove the entries of old versions, which count as read until a vacuum comes."""
    db.execute("VACUUM runs")
    db.execute("VACUUM key_changes")


@pytest.mark.parametrize("many", MANY)
def test_redis_makes_as_many_calls_with_many_keys(redis_server, many: int) -> None:
    counts = []
    with closing(RedisStore.at(f"{redis_server.url}?prefix=keycosts")) as store:
        store.open()
        with redis.Redis.from_url(redis_server.url) as client:
            for queue, keys in (("few", FEW), ("many", many)):
                claim = with_keys(store, queue, keys)
                before = calls(client)
                claim()
                counts.append(calls(client) - before)
    assert 0 < counts[1] <= 1.05 * counts[0]


def calls(client: redis.Redis) -> int:
    """Count the commands on sets and hashes, which scripts make: the server counts each of them."""
    stats = client.info("commandstats")
    return sum(
        stat["calls"]
        for name, stat in stats.items()
        if name.removeprefix("cmdstat_").startswith(SETS)
    )


def test_store_without_keys_has_no_trigger_that_each_claim_would_pay_for(tmp_path) -> None:
    """The first submission with a key creates it, also for processes that opened the store before."""
    with (
        closing(SQLiteStore(tmp_path / "a.db")) as store,
        closing(SQLiteStore(tmp_path / "a.db")) as other,
    ):
        store.open()
        other.open()
        other.commit([RegisterWorker("w", "host", 1, NEVER)])
        other.commit([Submit("plain", "flow", "[]", "t", "s")])
        other.commit([Claim("w", "t0", limit=5)])
        assert triggers(store) == []
        store.commit([Submit("a1", "flow", "[]", "t", "s", key="a")])
        assert triggers(store) == ["runs_key_changed"]
        store.commit([Submit("a2", "flow", "[]", "t", "s", key="a")])
        one_at_a_time = SetQueueLimits(
            "default", None, None, key_concurrency_max=1, keep_key_concurrency=False
        )
        store.commit([one_at_a_time])
        (rows,) = other.commit([Claim("w", "t1", limit=5)])
        assert [row.id for row in rows] == ["a1"]
        assert other.commit([Claim("w", "t2", limit=5)]) == [[]]
        other.commit([Settle(rows[0].pk, rows[0].fence, "done")])
        assert [row.id for row in other.commit([Claim("w", "t3", limit=5)])[0]] == ["a2"]


def triggers(store: SQLiteStore) -> list[str]:
    found = store._db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
    return [name for (name,) in found]


def test_runs_of_a_key_still_take_turns_after_a_file_store_opens_again(tmp_path) -> None:
    """Its files have rows alone, so the rule comes back with the next process."""
    address = f"file://{tmp_path}/store"
    with closing(store_at(address)) as store:
        store.open()
        limits = SetQueueLimits(
            "default", None, None, key_concurrency_max=1, keep_key_concurrency=False
        )
        runs = [Submit(f"a{n}", "flow", "[]", "t", "s", key="a") for n in (1, 2)]
        store.commit([limits, *runs])
    with closing(store_at(address)) as store:
        store.open()
        store.commit([RegisterWorker("w", "host", 1, NEVER)])
        for turn in (1, 2):
            (rows,) = store.commit([Claim("w", f"t{turn}", limit=5)])
            assert [row.id for row in rows] == [f"a{turn}"]
            store.commit([Settle(rows[0].pk, rows[0].fence, "done")])
