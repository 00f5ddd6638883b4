"""Names of schemas, passwords in addresses and the rights of a role."""

from collections.abc import Iterator

import psycopg
import pytest
from postgres_cost_tools import owned

from outlast.errors import SettingsError
from outlast.store.commands import (
    RegisterWorker,
)
from outlast.store.postgres.address import parse
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import connected, emptied, schema_of_this_process


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
def test_reserved_or_invalid_schema_name_is_refused(name) -> None:
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
