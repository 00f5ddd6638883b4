"""The file store keeps every promise of a store."""

import pytest

from outlast.testing.conformance import DurableStoreConformance, MakeStore
from support.quick_files import QuickFileStore


class TestFile(DurableStoreConformance):
    shared = False
    test_a_commit_elsewhere_notifies_here = None  # one process at a time: see test_file_opening.py
    test_a_publication_elsewhere_notifies_here = None

    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda clock: QuickFileStore(tmp_path / "outlast", clock=clock)
