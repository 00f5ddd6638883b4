"""The cost, the waits and the answers of calls on Postgres stay bounded."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outlast.errors import SettingsError
from outlast.store.commands import (
    Ack,
    Cancel,
    Claim,
    DeregisterWorker,
    Drain,
    Prune,
    Record,
    Refused,
    RegisterWorker,
    SetQueueLimits,
    Settle,
    Submit,
    SubmitMany,
    Sweep,
    UpdateSession,
)
from outlast.store.postgres import migrate
from outlast.store.postgres import store as store_module
from outlast.store.postgres.address import parse
from outlast.store.postgres.outcomes import Answer
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import CommitUnknown
from support.postgres_schemas import blocked_by, connected, counted, emptied, schema_of_this_process
from support.waiting import WAIT_SECONDS, wait_until

COLUMNS = "pk, id, workflow, args, queue, priority, status, fence, seed, created, due, attempts_max, interruptions_max"
READ = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = current_schema() AND relname = 'runs' AND indexrelname LIKE %s"


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "bounds") as address:
        yield address


@pytest.fixture
def store(schema) -> Iterator[PostgresStore]:
    emptied(schema)
    store = PostgresStore.at(schema)
    store.open()
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    yield store
    store.close()


@pytest.fixture
def outsider(schema) -> Iterator[psycopg.Connection]:
    with connected(schema) as db:
        yield db


@pytest.fixture
def other(schema) -> Iterator[PostgresStore]:
    store = PostgresStore.at(schema)
    store.open()
    yield store
    store.close()


GATE = 6074
"""The key of an advisory lock that a test holds a function back with."""


def is_blocked(db: psycopg.Connection, store: PostgresStore) -> bool:
    """Whether the store's commit waits for a lock of another session."""
    pid = store._writer._db.info.backend_pid
    return db.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()[0]


def owned(store: PostgresStore, id: str = "r"):
    return store.commit([Submit(id, "flow", "[]", "t", "s", worker="w")])[0].row


def entries_read(db: psycopg.Connection, store: PostgresStore, index: str = "%") -> int:
    """Of the indexes of runs, ever."""
    counted(store._writer)
    return int(db.execute(READ, (index,)).fetchone()[0])


def cpu_seconds(store: PostgresStore) -> float:
    """What this thread and its session of the server have used: no neighbour of this machine's counts."""
    used = Path(f"/proc/{store._writer.db().info.backend_pid}/schedstat").read_text()
    return time.thread_time() + int(used.split()[0]) / 1e9


def filled(db: psycopg.Connection, count: int, more: str = "", values: str = "") -> None:
    db.execute(
        f"INSERT INTO runs ({COLUMNS}, ended{more}) SELECT nextval('numbers'), 'x' || n, 'flow', '[]', 'default', 0, 'done', 0, 's', 1, 1, 5, 100,"
        f" n{values} FROM generate_series(1, {count}) n"
    )


def test_prune_among_many_that_have_ended_looks_at_no_more_than_it_prunes(store, schema) -> None:
    with connected(schema) as db:
        filled(db, 20_000)
        before = entries_read(db, store)
        for _ in range(4):
            assert store.commit([Prune(2e9, 50)]) == [50]
        assert entries_read(db, store) - before < 4 * 50 * 20


def test_prune_skips_runs_kept_for_their_parent_once(store, schema) -> None:
    owned(store, "parent")
    with connected(schema) as db:
        filled(db, 5_000, ", parent", ", 'parent'")
        db.execute(
            f"INSERT INTO runs ({COLUMNS}, ended) SELECT nextval('numbers'), 'y' || n, 'flow', '[]', 'default', 0, 'done', 0, 's', 1, 1, 5, 100,"
            " 100000 + n FROM generate_series(1, 500) n"
        )
        assert store.commit([Prune(2e9, 50)]) == [50]
        before = entries_read(db, store)
        counts = [store.commit([Prune(2e9, 50)])[0] for _ in range(10)]
        assert counts == [50] * 9 + [0]
        assert entries_read(db, store) - before < 15_000


def test_prune_skips_runs_below_a_locked_run(store, schema) -> None:
    """They may be about to have it retried, and then it may have to undo what is below it."""
    with connected(schema) as db:
        filled(db, 3, ", parent", ", CASE n WHEN 1 THEN NULL ELSE 'x' || n - 1 END")
        with db.transaction():
            db.execute("SELECT 1 FROM runs WHERE id = 'x1' FOR NO KEY UPDATE")
            assert store.commit([Prune(2e9, 50)]) == [0]
        assert store.commit([Prune(2e9, 50)]) == [3]


def test_settles_acks_and_claims_do_not_scan_existing_runs(store, schema) -> None:
    """The plans were made while there was nothing."""
    turn = 0

    def some() -> None:
        nonlocal turn
        turn += 1
        store.commit([Submit(f"i{turn}-{n}", "", "[]", "t", "s", "items") for n in range(5)])
        rows = store.commit([Claim("w", f"i{turn}", (), ("items",), ("",), 5)])[0]
        assert len(rows) == 5
        assert store.commit([Ack(row.pk, row.fence, "items") for row in rows]) == [None] * 5
        runs = [owned(store, f"r{turn}-{n}") for n in range(5)]
        assert store.commit([Settle(row.pk, row.fence, "done") for row in runs]) == [None] * 5

    for _ in range(8):
        some()
    with connected(schema) as db:
        filled(db, 20_000)
        before = entries_read(db, store)
        some()
        assert entries_read(db, store) - before < 500


def test_nothing_scans_children_added_after_analyze(store, schema) -> None:
    """No run had a parent then, and all were this worker's: by these numbers it seems cheap to go through all that have one, and through all."""
    rows = [owned(store, f"r{n}") for n in range(44)]
    with connected(schema) as db:
        db.execute("VACUUM ANALYZE runs")  # of what other tests have left, too
        filled(db, 5_000, ", parent", ", 'r0'")
        for commands in (
            [Settle(row.pk, row.fence, "done") for row in rows[1:21]],
            [Cancel(row.id, "no more") for row in rows[21:41]],
            [Drain("w", "a deploy")],
            [DeregisterWorker("w")],
        ):
            before = entries_read(db, store)
            store.commit(commands)
            assert entries_read(db, store) - before < 500, commands[0]
        store.commit([Settle(row.pk, row.fence, "done") for row in rows[:1]])
        before = entries_read(db, store, "runs_ended")
        assert store.commit([Prune(2e9, 20)]) == [20]
        assert entries_read(db, store, "runs_ended") - before < 6_000, (
            "each that stays is passed once"
        )


def test_children_of_a_full_queue_are_found_without_looking_at_all_of_them(store, schema) -> None:
    store.commit([SetQueueLimits("q", None, 1), Submit("parent", "flow", "[]", "t", "s", "q")])
    store.commit([Claim("w", "p", (), ("q",), ("flow",), 1)])
    with connected(schema) as db:
        db.execute("INSERT INTO lines VALUES ('q', 'child') ON CONFLICT DO NOTHING")
        db.execute(
            f"INSERT INTO runs ({COLUMNS}, ready, parent) SELECT nextval('numbers'), 'c' || n, 'child', '[]', 'q', 0, 'queued', 0, 's', 1, n, 5, 100, 1,"
            " 'parent' FROM generate_series(1, 5000) n"
        )
        before = entries_read(db, store)
        rows = store.commit([Claim("w", "c", (), ("q",), ("child",), 2)])[0]
        assert [row.id for row in rows] == ["c1", "c2"]
        assert entries_read(db, store) - before < 500


def test_bulk_submit_costs_in_proportion_and_its_repeat_has_a_short_answer(
    store, monkeypatch
) -> None:
    def seconds(count: int) -> float:
        many = SubmitMany(
            tuple(Submit(f"{count}-{n}", "f", "[]", "t", "s", "big") for n in range(count))
        )
        began = cpu_seconds(store)
        assert len(store.commit([many])[0]) == count
        return cpu_seconds(store) - began

    seconds(100)
    few, many = min(seconds(1_000), seconds(1_001)), seconds(10_000)
    # Ten times as much work. A cost that grew with the square would be a hundred times as much; other
    # programs on the same cores may make one measurement a few times larger than it should be.
    assert many < 60 * few
    lengths: list[int] = []
    read = Answer.__init__

    def noted(self, text, shape) -> None:
        lengths.append(len(text))
        read(self, text, shape)

    monkeypatch.setattr(Answer, "__init__", noted)
    again = SubmitMany(
        tuple(Submit(f"10000-{n}", "f", "[]", "t", "s", "big") for n in range(10_000))
    )
    outcomes = store.commit([again])[0]
    assert [outcome.row.id for outcome in outcomes] == [run.id for run in again.runs]
    assert max(lengths) < 500_000


def test_repeated_submission_does_not_wait_for_a_locked_run(store, schema) -> None:
    submit = Submit("r", "flow", "[]", "t", "s")
    store.commit([submit])
    with connected(schema) as db, db.transaction():
        db.execute("SELECT 1 FROM runs WHERE id = 'r' FOR UPDATE")
        assert store.commit([submit])[0].row.id == "r"
        assert store.commit([SubmitMany((submit,))])[0][0].row.id == "r"


@pytest.fixture
def patient(monkeypatch) -> None:
    """A commit on the loop has all the time that a slow machine needs."""
    monkeypatch.setattr(store_module, "HERE_SECONDS", WAIT_SECONDS)


def test_commit_on_the_loop_waits_for_no_lock(store, schema, patient) -> None:
    row = owned(store)
    record = Record(row.pk, 1, row.fence, "step", "k", 1.0)
    with connected(schema) as db:
        with db.transaction():
            db.execute("SELECT 1 FROM runs WHERE id = 'r' FOR UPDATE")
            assert store.try_commit([record]) is None
        assert store.journal(row.pk) == []
        assert store.try_commit([record]) == [None]
        assert db.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)
    assert store._writer.execute("SELECT current_setting('lock_timeout')") == [("0",)]


def test_commit_on_the_loop_does_not_wait_for_a_server_that_is_silent(store) -> None:
    row = owned(store)
    record = Record(row.pk, 1, row.fence, "step", "k", 1.0)
    backend = store._writer.db().info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(CommitUnknown):
            store.try_commit([record])
    finally:
        os.kill(backend, signal.SIGCONT)
    store.recover()
    assert store.commit([record]) == [None]
    assert len(store.journal(row.pk)) == 1


def test_long_run_submitted_on_the_loop_is_returned_whole(store, patient) -> None:
    (outcome,) = store.try_commit([Submit("long", "flow", f'"{"x" * 3000}"', "t", "s", worker="w")])
    assert (outcome.row.id, len(outcome.row.args)) == ("long", 3002)


def test_lowest_depth_limit_of_a_batch_applies(schema, store) -> None:
    stores = [PostgresStore.at(schema) for _ in range(4)]
    outcomes: list[object] = []
    for each in stores:
        each.open()
    store.commit([Submit("there", "f", "[]", "t", "s", "q")])

    def put(number: int, into: PostgresStore) -> None:
        both = [
            Submit(f"new{number}", "f", "[]", "t", "s", "q", depth_max=3),
            Submit("there", "f", "[]", "t", "s", "q"),
        ]
        outcomes.append(into.commit(both)[0])

    with connected(schema) as db:
        with db.transaction():
            db.execute("LOCK TABLE runs IN SHARE MODE")  # all wait at the same place
            threads = [threading.Thread(target=put, args=each) for each in enumerate(stores)]
            for thread in threads:
                thread.start()
            wait_until(lambda: all(is_blocked(db, each) for each in stores))
        for thread in threads:
            thread.join(WAIT_SECONDS)
    for each in stores:
        each.close()
    assert store.depth("q") == 3
    assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 2


@pytest.mark.parametrize("many", [False, True])
def test_full_queue_is_counted_once(store, schema, many) -> None:
    """Its submitters wait for each other meanwhile."""

    def new(n: int) -> Submit:
        return Submit(f"r{n}", "flow", "[]", "t", "s", "q", depth_max=500)

    store.commit([SubmitMany(tuple(map(new, range(500))))])
    with connected(schema) as db:
        before = entries_read(db, store, "runs_queued")
        (refused,) = store.commit([SubmitMany((new(500),)) if many else new(500)])
        assert refused == Refused("depth", "500/500/1")
        assert entries_read(db, store, "runs_queued") - before < 600


def test_worker_that_enlists_during_a_sweep_is_not_swept(store, other, schema) -> None:
    with connected(schema) as db:
        name = f"holders_{migrate.version()}"
        (text,) = db.execute(f"SELECT pg_get_functiondef('{name}'::regproc)").fetchone()
        # The sweep looks twice. It is held back when it has locked whoever seemed dead and looks again.
        hold_back = (
            f"IF nextval('looks') > 1 THEN PERFORM pg_advisory_xact_lock_shared({GATE}); END IF;"
        )
        slow = text.replace("BEGIN\n", f"BEGIN\n    {hold_back}\n", 1)
        assert slow != text
        db.execute(slow)
        db.execute("CREATE SEQUENCE looks")
        db.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        try:
            swept: list[object] = []
            sweep = threading.Thread(target=lambda: swept.append(other.commit([Sweep()])[0]))
            sweep.start()
            wait_until(lambda: blocked_by(db) == 1)
            enlist = threading.Thread(
                target=store.commit,
                args=(
                    [
                        RegisterWorker("living", "h", 1, 600.0),
                        Submit("mine", "f", "[]", "t", "s", worker="living"),
                    ],
                ),
            )
            enlist.start()
            wait_until(lambda: not enlist.is_alive() or is_blocked(db, store))
            db.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
            enlist.join(WAIT_SECONDS)
            sweep.join(WAIT_SECONDS)
        finally:
            db.execute("SELECT pg_advisory_unlock_all()")
            db.execute(text)
            db.execute("DROP SEQUENCE looks")
    assert swept[0].workers == ()
    row = store.run("mine")
    assert (row.status, row.worker, row.deaths) == ("running", "living", 0)


def test_sessions_created_in_opposite_orders_do_not_deadlock(store, other, schema) -> None:
    """One has made its first when the other begins: its turn comes, without a deadlock."""
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

    def keep(into: PostgresStore, names: str, tag: str) -> None:
        for turn in range(30):
            into.commit(
                [
                    UpdateSession(f"{turn}-{name}", f"{tag}{turn}{name}", {"a": "1"})
                    for name in names
                ]
            )

    with connected(schema) as db:
        before = db.execute(deadlocks).fetchone()
        threads = [
            threading.Thread(target=keep, args=each)
            for each in ((store, "abcdefgh", "x"), (other, "hgfedcba", "y"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        counted(store._writer, other._writer)
        assert db.execute(deadlocks).fetchone() == before


def test_epoch_is_never_reused(store, other, schema) -> None:
    with connected(schema) as db:
        first = store._epoch
        db.execute("DELETE FROM writers WHERE id = %s", (store._id,))
        store.recover()
        assert store._epoch > first


def test_listing_the_queues_blocks_no_other_read(store, schema) -> None:
    store.commit([Submit("r", "flow", "[]", "t", "s")])
    with connected(schema) as db:
        with db.transaction():
            db.execute("LOCK TABLE queues IN ACCESS EXCLUSIVE MODE")
            listing = threading.Thread(target=store.queues)
            listing.start()
            wait_until(lambda: blocked_by(db) == 1)
            assert store.run("r") is not None
            assert listing.is_alive(), "it is the listing that waits"
        listing.join(WAIT_SECONDS)


@pytest.mark.parametrize("schema_name", ["MyApp", "x__v", "SETTINGS__v", "a-b", "x" * 63])
def test_schema_with_an_odd_name_is_separate(postgres_server, schema_name) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        beside = PostgresStore.at(f"{postgres_server.url}&schema={schema_name.lower()}")
        there = PostgresStore.at(f"{postgres_server.url}&schema={schema_name}")
        try:
            for each in (beside, there):
                each.open()
            db.execute(f"UPDATE \"{schema_name}\".meta SET functions = 'of another build'")
            again = PostgresStore.at(f"{postgres_server.url}&schema={schema_name}")
            again.open()
            for each in (beside, there, again):
                each.commit([RegisterWorker("w", "h", 1, 60.0)])
                assert [worker.id for worker in each.workers()] == ["w"]
                each.close()
        finally:
            for name in {schema_name, schema_name.lower()}:
                db.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.mark.parametrize(
    "name", ["", "pg_x", "a b", "a'b", 'a"b', "a$$b", "a%25b", "1a", "x" * 64, "%C3%BC", "a.b"]
)
def test_name_that_no_schema_should_have_is_refused(name) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a schema"):
        parse(f"postgresql://u:hidden@h/db?schema={name}")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:123/hidden@host/db",
        "postgresql://user:123?hidden@host/db",
        "postgresql://user:123?sslmode=hidden@host/db",
        "postgresql://host/db?application_name=x&hidden@y=1",
    ],
)
def test_address_with_an_unquoted_password_is_refused_without_revealing_it(address) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(address)
    assert "hidden" not in str(refused.value)


def test_role_that_may_only_use_sequences_gets_fences_after_a_failover(
    postgres_server, schema, store
) -> None:
    name = parse(schema).schema
    with connected(schema) as db:
        db.execute("CREATE ROLE modest LOGIN")
        try:
            db.execute(
                f"GRANT USAGE ON SCHEMA {name} TO modest;"
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO modest;"
                f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO modest"
            )
            modest = PostgresStore.at(schema.replace("postgres@", "modest@"))
            modest.open()
            first = owned(modest, "a").fence
            db.execute("UPDATE meta SET timeline = 'FFFFFFFF'")
            assert owned(modest, "b").fence >= first + 1_000_000_000
            modest.close()
        finally:
            db.execute("DROP OWNED BY modest; DROP ROLE modest")


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    rows int := coalesce(nullif(current_setting('test.rows', true), ''), '0')::int + 1;
BEGIN
    PERFORM set_config('test.rows', rows::text, true);
    IF rows > 1 THEN
        PERFORM pg_sleep(600);
    END IF;
    RETURN old;
END $$
"""
"""A trigger that lets a transaction delete one row, and is slow if it deletes more."""


def test_prune_that_takes_longer_than_a_call_may_is_done_in_parts(store, outsider):
    runs = 5
    store.commit([Submit(f"r{number}", "flow", "[]", f"r{number}", "s") for number in range(runs)])
    outsider.execute("UPDATE runs SET status = 'done', ended = 1")
    outsider.execute(SLOW)
    outsider.execute(
        "CREATE TRIGGER slow BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    try:
        store.call_timeout = WAIT_SECONDS
        store._writer.execute("SET statement_timeout = '3s'")
        deleted = []
        while not deleted or deleted[-1]:
            deleted += store.commit([Prune(2.0)])
        assert sum(deleted) == runs
    finally:
        outsider.execute("DROP FUNCTION slow CASCADE")
