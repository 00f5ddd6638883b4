"""The file store keeps every promise of a store."""

import pytest

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore


class TestFile(DurableStoreConformance):
    shared = False
    test_a_commit_elsewhere_rings_the_bell_here = None  # there is no elsewhere: see test_file_folder.py

    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock: store_at(f"file://{tmp_path}/outlast", clock=clock)
