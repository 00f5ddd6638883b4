"""The Postgres store keeps every promise of a store."""

from collections.abc import Iterator

import pytest

from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance import DurableStoreConformance, MakeStore
from support.postgres_schemas import Sessions, emptied, schema_of_this_process


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url) as address:
        yield address


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    with Sessions().kept() as sessions:
        yield sessions


class TestPostgres(DurableStoreConformance):
    shared = True

    @pytest.fixture
    def make_store(self, schema, sessions) -> MakeStore:
        emptied(schema)
        return lambda clock: PostgresStore.at(schema, clock=clock)
