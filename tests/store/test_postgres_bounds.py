"""The cost of calls on Postgres does not grow with the number of existing runs."""

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_cost_tools import COLUMNS, entries_read, filled, owned

from outlast.store.commands import (
    Ack,
    Cancel,
    Claim,
    DeregisterWorker,
    Drain,
    Prune,
    Refused,
    RegisterWorker,
    SetQueueLimits,
    Settle,
    Submit,
    SubmitMany,
)
from outlast.store.postgres.outcomes import Answer
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import connected, emptied, schema_of_this_process
from support.waiting import WAIT_SECONDS


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


def cpu_seconds(store: PostgresStore) -> float:
    """What this thread and its session of the server have used: no neighbour of this machine's counts."""
    used = Path(f"/proc/{store._writer.db().info.backend_pid}/schedstat").read_text()
    return time.thread_time() + int(used.split()[0]) / 1e9


def test_prune_reads_only_the_runs_that_it_prunes(store, schema) -> None:
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


def test_children_of_a_full_queue_are_found_without_scanning_all(store, schema) -> None:
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


def test_prune_that_exceeds_the_call_timeout_is_done_in_parts(store, outsider):
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
