"""Both faces of the SQLite store keep every promise of a store."""

import pytest

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore, StoreConformance


class TestSQLiteFile(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock: store_at(f"sqlite:///{tmp_path}/outlast.db", clock=clock)


class TestSQLiteMemory(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: store_at("memory:", clock=clock)
