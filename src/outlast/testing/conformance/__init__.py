"""What every store promises, as a pytest suite that anyone can run on a store of their own.

    from outlast.testing.conformance import DurableStoreConformance, MakeStore

    class TestMyStore(DurableStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path) -> MakeStore:
            return lambda clock: MyStore(tmp_path / "store", clock=clock)

`make_store(clock)` makes a store that is not opened yet. In one test every call names the same place, in another test a
new one. A store that lives and dies with its object, like `memory:`, takes `StoreConformance` instead.
"""

import pytest

pytest.register_assert_rewrite(__name__)  # and everything in it: before it is imported

from outlast.testing.conformance.harness import MakeStore, ManualClock, StoreDriver  # noqa: E402
from outlast.testing.conformance.suite import DurableStoreConformance, StoreConformance  # noqa: E402

__all__ = ["DurableStoreConformance", "MakeStore", "ManualClock", "StoreConformance", "StoreDriver"]
