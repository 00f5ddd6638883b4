"""The SQLite store keeps every promise of a store, in a file and in memory."""

import os

import pytest

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore, StoreConformance
from outlast.testing.store_images import EmptyStore, empty_file


class TestSQLiteFile(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        file = empty_file(tmp_path / "outlast.db")
        return lambda clock: store_at(f"sqlite:///{file}", clock=clock)


if (
    os.environ.get("OUTLAST_TEST_STORES") == "all"
):  # the same commands on the same tables: `make stores`

    class TestSQLiteMemory(StoreConformance):
        @pytest.fixture
        def make_store(self) -> MakeStore:
            return lambda clock: EmptyStore(clock=clock)
