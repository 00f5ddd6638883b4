"""Check what every store promises: a pytest suite that you can run on your own store.

    from outlast.testing.conformance import DurableStoreConformance, MakeStore

    class TestMyStore(DurableStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path) -> MakeStore:
            return lambda clock: MyStore(tmp_path / "store", clock=clock)

`make_store(clock)` creates an unopened store. All calls in one test name the same location, and
every test has a new one. A store that lives only as long as its object, like `memory:`, uses
`StoreConformance` instead.
"""

import pytest

# Covers every submodule, and must come before they are imported.
pytest.register_assert_rewrite(__name__)

from outlast.testing.conformance.harness import MakeStore, ManualClock, StoreDriver  # noqa: E402
from outlast.testing.conformance.suite import (  # noqa: E402
    DurableStoreConformance,
    StoreConformance,
)

__all__ = ["DurableStoreConformance", "MakeStore", "ManualClock", "StoreConformance", "StoreDriver"]
