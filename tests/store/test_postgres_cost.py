"""What an item costs the server, counted and not timed: bytes of its log, functions called, and rows as they are sent."""

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from outlast.codec.identifiers import new_ids
from outlast.store.commands import Ack, Cancel, Claim, Release, Retry, Submit, SubmitMany
from outlast.store.postgres import statements as sql
from outlast.store.postgres.migrate import ANSWER_MAX
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import RunQuery, RunRow
from support.postgres_schemas import connected, counted, schema_of_this_process, with_a_worker

WORKER = "0123456789abcdef"
ITEMS = 1_000
SLOTS = 200
LOGGED_TIMES_MAX = 1.68
"""How many times the log of an item, put, claimed and acked, may be that of a row without an index, written as often. It was 1.58 when this was
written, and is 1.76 with one more index."""
SHORT_BYTES = 720
"""Of a row in its short form, with a payload of 500."""
FOUND_BY = {"pk", "id", "workflow", "queue"}
SET_BY_THE_CLAIM = {"status", "fence", "worker", "token", "ready", "waits", "turn"}
UNUSUAL = {"bigint": 7, "double precision": 7.25, "text": '"x"'}
TYPE = "SELECT data_type FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = 'runs' AND column_name = %s"
LOG = "SELECT pg_current_wal_insert_lsn() - '0/0'"
CALLS = (
    "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE schemaname = current_schema()"
)


@pytest.fixture
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "cost") as address:
        yield address


@pytest.fixture
def store(schema) -> Iterator[PostgresStore]:
    with with_a_worker(schema, WORKER, SLOTS) as store:
        yield store


@pytest.fixture
def db(schema) -> Iterator[psycopg.Connection]:
    with connected(schema) as db:
        yield db


def submissions(count: int) -> tuple[Submit, ...]:
    """With texts as long as those of an app are."""
    return tuple(
        Submit(f"jobs/{id}", "", json.dumps({"n": n}), id[16:], id, queue="q", depth_max=1_000_000)
        for n, id in enumerate(new_ids(count))
    )


def claim(store: PostgresStore, token: str, limit: int, *acks: Ack) -> list[RunRow]:
    return store.commit([*acks, Claim(WORKER, token, queues=("q",), workflows=("",), limit=limit)])[
        -1
    ]


def acks(rows: list[RunRow]) -> list[Ack]:
    return [Ack(row.pk, row.fence, row.queue) for row in rows]


def consume(store: PostgresStore, limit: int) -> int:
    """Claim everything, this many at a time. Return how many claims that took."""
    rows: list[RunRow] = []
    for turn in range(10_000):
        rows = claim(store, f"{turn:016x}", limit, *acks(rows))
        if not rows:
            return turn + 1
    raise AssertionError("there is no end of it")


def test_item_writes_little_wal(store, db) -> None:
    """An added index on the runs, or one more write per item, shows here. By the server's own measure: what is logged for a
    row is not the same in every version."""

    def through() -> None:
        store.commit([SubmitMany(submissions(ITEMS))])
        consume(store, SLOTS)

    def written_thrice() -> None:
        db.execute("TRUNCATE bare")
        db.execute("INSERT INTO bare SELECT * FROM runs ORDER BY pk DESC LIMIT %s", (ITEMS,))
        for _ in range(2):
            db.execute("UPDATE bare SET fence = fence + 1")

    consume(store, SLOTS)  # the first time plans are made
    db.execute("CREATE TABLE bare (LIKE runs)")
    item = logged(db, through)
    assert item < LOGGED_TIMES_MAX * logged(db, written_thrice)
    db.execute("ALTER TABLE runs SET (fillfactor = 100)")
    assert item < 0.95 * logged(db, through), "there is room in the pages for new versions"


def logged(db: psycopg.Connection, of: Callable[[], None]) -> float:
    """Bytes of the server's log for an item, the least of three times: the server may vacuum meanwhile."""
    found = []
    for _ in range(3):
        before = db.execute(LOG).fetchone()[0]
        of()
        found.append(float(db.execute(LOG).fetchone()[0] - before) / ITEMS)
    return min(found)


def test_function_calls_in_the_server_do_not_grow_with_the_items(store, db) -> None:
    """A function that is called for every item costs more than the item."""

    def calls(of) -> int:
        counted(store._writer)
        before = db.execute(CALLS).fetchone()[0]
        of()
        counted(store._writer)
        return int(db.execute(CALLS).fetchone()[0] - before)

    # A heartbeat that is late uses the writer's session, and would be counted.
    store._liveness._heartbeat.close()
    store._writer.execute("SET track_functions = 'all'")
    try:
        found = []
        for count in (10, SLOTS):
            rows: list[RunRow] = []
            found.append(
                (
                    calls(lambda count=count: store.commit([SubmitMany(submissions(count))])),
                    calls(
                        lambda count=count, rows=rows: rows.extend(
                            claim(store, f"{count:016x}", count)
                        )
                    ),
                    calls(lambda rows=rows: store.commit(acks(rows))),
                )
            )
            assert len(rows) == count
    finally:
        store._writer.execute("RESET track_functions")
    assert found[0] == found[1]
    assert min(found[0]) > 0


def test_one_claim_returns_an_item_for_each_slot(store) -> None:
    """What is too long for it must be read once more, over another connection."""
    store.commit([SubmitMany(submissions(SLOTS))])
    assert len(claim(store, "fedcba9876543210", SLOTS)) == SLOTS
    assert not store._reader.is_open


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"args": '{"text": "quotes \\" and \\\\ and \\n, ümläut, 😀, \'single\'"}'},
        {"args": json.dumps("long" * 1_000)},
        {"priority": -7},
        {"delay": -3.25},
        {"timeout": 12.5},
        {"parent": "above"},
        {"abandon_after": 60.0},
        {"attempts_max": 1, "interruptions_max": 2},
        {"workflow": "flow"},
        {"id": "q/\"'\\\u2603 of any kind"},
    ],
)
def test_claimed_run_equals_the_run_that_is_read(store, fields) -> None:
    known = {"id": "q/one", "workflow": "", "args": "{}", "token": "t", "seed": "s", "queue": "q"}
    submit = Submit(**(known | fields))
    store.commit([submit])
    command = Claim(WORKER, "t1", queues=("q",), workflows=("", "flow"), limit=5)
    (rows,) = store.commit([command])
    assert rows == [store.run(submit.id)]
    assert store.commit([command]) == [rows]  # as after an answer that was lost


def test_claim_larger_than_one_answer_is_shortened(store, monkeypatch) -> None:
    """Only the rest is read once more."""
    payload = json.dumps("x" * 500)
    store.commit([SubmitMany(tuple(one._replace(args=payload) for one in submissions(SLOTS)))])
    late: list[int] = []
    read = store._read
    with monkeypatch.context() as patched:
        patched.setattr(
            store, "_read", lambda text, values: late.extend(values[0]) or read(text, values)
        )
        rows = claim(store, "fedcba9876543210", SLOTS)
    assert late == [row.pk for row in rows[-len(late) :]]
    assert SLOTS - len(late) >= ANSWER_MAX // SHORT_BYTES
    assert rows == [store.run(row.id) for row in rows]
    assert claim(store, "fedcba9876543210", SLOTS) == rows  # as after an answer that was lost


def test_claim_returns_every_field_of_a_new_run(store, db) -> None:
    """The short form of a row leaves out what has its usual value, and must not where it has not: every field that there is, or will be."""
    for field in sorted({*RunRow._fields} - FOUND_BY - SET_BY_THE_CLAIM):
        store.commit([Submit(field, "", "{}", "t", "s", queue="q")])
        value = UNUSUAL[db.execute(TYPE, (field,)).fetchone()[0]]
        db.execute(f"UPDATE runs SET {field} = %s WHERE id = %s", (value, field))
        (row,) = claim(store, f"by {field}", 1)
        assert getattr(row, field) == (value + 1 if field == "lives" else value)
        assert row == store.run(field)


def test_claim_returns_every_field_of_a_run_with_a_history(store) -> None:
    store.commit(
        [*(Submit(id, "", "{}", "t", "s", queue="q") for id in ("failed", "given", "cancelled"))]
    )
    store.commit([Cancel("cancelled", "not now"), Retry("cancelled", "again")])
    rows = claim(store, "t1", 5)
    assert len(rows) == 3
    assert {row.id: row for row in rows} == {row.id: store.run(row.id) for row in rows}
    by_id = {row.id: row for row in rows}
    store.commit(
        [
            Release(
                by_id["failed"].pk, by_id["failed"].fence, "no luck", interrupted=False, failed=True
            ),
            Release(by_id["given"].pk, by_id["given"].fence, "its worker drains"),
        ]
    )
    rows = claim(store, "t2", 5)
    assert {"failed", "given"} <= {row.id for row in rows}
    assert rows == [store.run(row.id) for row in rows]


def test_a_prefix_of_ids_is_looked_up_in_their_index(store, db):
    for part in range(20):
        store.commit([SubmitMany(submissions(ITEMS))])
        store.commit([Submit(f"mine-{part}", "w", "{}", "t", "00" * 16)])
    db.execute("ANALYZE runs")
    where = f"{sql.RUNS_WHERE['low']} AND {sql.RUNS_WHERE['high']}"
    statement = sql.RUNS.format(s="runs", where=where).replace("runs.runs", "runs")
    values = {"low": "mine-", "high": "mine.", "limit": 101}
    plan = "\n".join(row[0] for row in db.execute(f"EXPLAIN {statement}", values))
    assert "runs_id_key" in plan, plan
    assert "Index Cond: ((id >= 'mine-'::text) AND (id < 'mine.'::text))" in plan, plan
    found = [row.id for row in store.runs(RunQuery(prefix="mine-"))]
    assert found == [f"mine-{part}" for part in reversed(range(20))]


LISTS = {
    "runs_stopped": RunQuery(statuses=("parked",), limit=16),
    "runs_asking": RunQuery(statuses=("waiting", "running"), awaits_message=True, limit=16),
}


@pytest.mark.parametrize("index", LISTS)
def test_what_needs_a_person_is_found_by_an_index(store, db, index, monkeypatch):
    for _ in range(10):
        store.commit([SubmitMany(submissions(ITEMS))])
    db.execute("ANALYZE runs")
    asked = []
    monkeypatch.setattr(
        store, "_read", lambda *args, **options: asked.append((args, options)) or []
    )
    store.runs(LISTS[index])
    ((statement, values), options) = asked[0]
    text = statement.format(s="runs", **options).replace("runs.runs", "runs")
    plan = "\n".join(row[0] for row in db.execute(f"EXPLAIN {text}", values))
    assert f"Index Scan Backward using {index}" in plan or f"Scan using {index}" in plan, plan


def test_latest_ends_are_counted_by_their_indexes(store, db):
    for _ in range(10):
        store.commit([SubmitMany(submissions(ITEMS))])
    db.execute("ANALYZE runs")
    text = sql.ENDS.format(s="runs").replace("runs.runs", "runs")
    plan = "\n".join(
        row[0] for row in db.execute(f"EXPLAIN {text}", {"after": 1.0, "limit": 2_000})
    )
    assert "runs_ended" in plan, plan
    assert "runs_acked" in plan, plan
    assert "Seq Scan" not in plan, plan
