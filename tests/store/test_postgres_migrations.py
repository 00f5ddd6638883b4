"""The Postgres schema is created once, migrated under live workers, and refused if newer."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outlast.errors import StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.commands import Record, RegisterWorker, Submit
from outlast.store.postgres import migrate
from outlast.store.postgres.address import parse
from outlast.store.postgres.connection import Connection
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import NoStore, OlderStore
from outlast.store.rows import RunQuery
from support.cli import answer_in
from support.postgres_schemas import blocked_by, connected
from support.waiting import WAIT_SECONDS, wait_until

SHAPE = """
SELECT 'table', table_name, column_name, data_type || coalesce(collation_name, '') || is_nullable || coalesce(column_default, '')
FROM information_schema.columns WHERE table_schema = %(schema)s
UNION ALL SELECT 'index', tablename, indexname, replace(indexdef, %(schema)s || '.', '') FROM pg_indexes WHERE schemaname = %(schema)s
UNION ALL SELECT 'function', proname, pg_get_function_identity_arguments(oid), md5(prosrc) || provolatile::text FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
UNION ALL SELECT 'rows', 'meta', version::text, oldest::text FROM meta
ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def address(postgres_server, request) -> Iterator[str]:
    name = f"migrations_{abs(hash(request.node.name))}"
    yield f"{postgres_server.url}&schema={name}"
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def shape(address: str) -> list[tuple[str, ...]]:
    """Everything in a schema, without its name."""
    schema = parse(address).schema
    with connected(address) as db:
        rows = db.execute(SHAPE, {"schema": schema}).fetchall()
    return [
        tuple(str(part).replace(schema, "S") for part in row)
        for row in rows
        if row[0] != "function" or row[1] != f"key_{migrate.version()}"
    ]


def made(address: str) -> PostgresStore:
    store = PostgresStore.at(address)
    store.open()
    return store


def test_concurrent_opens_create_one_schema(address) -> None:
    start = threading.Barrier(6)

    def open_one(_: int) -> list[object]:
        start.wait(WAIT_SECONDS)
        store = made(address)
        try:
            return store.runs(RunQuery())
        finally:
            store.close()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(open_one, range(6))) == [[]] * 6
    with connected(address) as db:
        assert db.execute("SELECT count(*), max(version) FROM meta").fetchone() == (
            1,
            migrate.version(),
        )
        assert db.execute("SELECT count(*) FROM pulse").fetchone() == (1,)


def test_printed_sql_creates_the_same_schema_and_can_be_repeated(address, postgres_server) -> None:
    made(address).close()
    by_hand = address.replace("schema=migrations", "schema=by_hand")
    script = migrate.script(parse(by_hand).schema)
    try:
        for _ in range(2):
            with psycopg.connect(postgres_server.url, autocommit=True) as db:
                db.execute(
                    script
                )  # as psql does it: one statement after the other, with BEGIN and COMMIT of its own
        assert shape(by_hand) == shape(address)
        store = PostgresStore.at(f"{by_hand}&migrate=no")
        store.open()
        store.close()
    finally:
        with psycopg.connect(postgres_server.url, autocommit=True) as db:
            db.execute(f"DROP SCHEMA {parse(by_hand).schema} CASCADE")


def test_workers_go_on_during_a_migration(address) -> None:
    store = made(address)
    store.acquire_liveness("w")
    (submitted,) = store.commit(
        [RegisterWorker("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")]
    )[1:]
    row = submitted.row
    stop, recorded = threading.Event(), [0]

    def work() -> None:
        while not stop.is_set():
            assert store.commit([Record(row.pk, recorded[0] + 1, row.fence, "step", "k", 1.0)]) == [
                None
            ]
            recorded[0] += 1

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            for _ in range(5):
                with connected(address) as db:
                    db.execute(
                        "UPDATE meta SET functions = ''"
                    )  # as another release of this version left them
                made(address).close()
            wait_until(lambda: recorded[0] > 0 or working.done())
        finally:
            stop.set()
        working.result(WAIT_SECONDS)
    assert recorded[0] > 0
    assert len(store.journal(row.pk)) == recorded[0]
    store.close()


def test_second_migration_waits_and_workers_do_not(address) -> None:
    store = made(address)
    with connected(address) as first, ThreadPoolExecutor(1) as pool:
        first.execute("UPDATE meta SET functions = ''")
        first.execute("BEGIN")
        first.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('outlast/' || %s, 6074000))",
            (parse(address).schema,),
        )
        second = pool.submit(lambda: made(address).close())
        wait_until(lambda: blocked_by(first) == 1)
        assert store.commit([RegisterWorker("w", "host", 1, 60.0)]) == [None]
        assert not second.done()
        first.execute("COMMIT")
        second.result(WAIT_SECONDS)
    store.close()


def test_schema_of_a_newer_release_is_refused_and_left_alone(address) -> None:
    made(address).close()
    with connected(address) as db:
        db.execute("UPDATE meta SET version = version + 1")
    before = shape(address)
    for refuse in (lambda: made(address), lambda: PostgresStore.at(address).migrate()):
        with pytest.raises(StoreTooNew, match="upgrade"):
            refuse()
    assert shape(address) == before


def test_older_schema_is_refused_with_the_command_to_run_if_migrate_is_no(address) -> None:
    store = PostgresStore.at(f"{address}&migrate=no")
    with pytest.raises(StoreUnavailable, match="outlast migrate"):
        store.open()
    assert store.versions() == (0, migrate.version())
    store.migrate()
    assert store.versions() == (migrate.version(), migrate.version())
    store.open()
    store.close()


def test_read_only_open_neither_creates_nor_migrates_a_schema(address) -> None:
    store = PostgresStore.at(address)
    store.migrates = False
    with pytest.raises(NoStore):
        store.open()
    assert store.versions() == (0, migrate.version())
    made(address).close()
    store.open()
    store.close()
    with connected(address) as db:
        db.execute("UPDATE meta SET version = version - 1, functions = ''")
    before = shape(address)
    with pytest.raises((NoStore, OlderStore)):
        store.open()
    assert shape(address) == before


def test_every_function_that_reads_tables_is_volatile(address) -> None:
    """A STABLE function has the snapshot of its caller, so it would not see what changed while it waited for a lock."""
    made(address).close()
    with connected(address) as db:
        steady = db.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND provolatile <> 'v' ORDER BY 1"
        ).fetchall()
    pure = {
        "key",
        "texts",
        "refused",
        "waits",
        "times",
        "cancelled",
        "over_limit",
        "by_part",
        "exact",
        "answered",
        "past",
        "readiness",
        "refusal",
        "add_token",
    }
    assert {name for (name,) in steady} == {f"{name}_{migrate.version()}" for name in pure}


def test_removed_table_is_a_broken_store(address) -> None:
    store = made(address)
    with connected(address) as db:
        db.execute("DROP TABLE messages")
    with pytest.raises(StoreBroken):
        store.messages(1)
    store.close()


def test_migrate_command_migrates_and_reports_versions(address, tmp_path, capsys) -> None:
    def outlast(*words: str) -> str:
        answer = answer_in(tmp_path, ["migrate", "--store", address, *words], capsys)
        assert answer.code == 0, answer.err
        return answer.out

    script = outlast("--sql")
    assert script == migrate.script(parse(address).schema) + "\n"
    assert PostgresStore.at(address).versions()[0] == 0
    assert json.loads(outlast("--json"))["before"] == 0
    assert json.loads(outlast("--json"))["before"] == migrate.version()


def test_migration_lock_ends_with_its_transaction(address) -> None:
    db = Connection(parse(address))
    migrate.migrate(db)
    assert db.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    ) == [(0,)]
    db.drop()
