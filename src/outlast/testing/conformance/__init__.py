"""What every store promises, as a pytest suite that anyone can run on a store of their own.

    from outlast.testing.conformance import MakeStore, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path) -> MakeStore:
            return lambda clock: MyStore(tmp_path / "store", clock=clock)

`make_store(clock)` makes a store that is not opened yet. In one test every call names the same place, in another test a
new one. A store that does not outlive its object says `durable = False`; one that only one object can use at a time says
`shared = False`.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "claims crowd durability ends entries fences mail prunes queries requests sessions submissions values workers"
        ).split()
    )
)

from outlast.testing.conformance.claims import ClaimPromises
from outlast.testing.conformance.crowd import CrowdPromises
from outlast.testing.conformance.durability import DurabilityPromises
from outlast.testing.conformance.ends import EndPromises
from outlast.testing.conformance.entries import EntryPromises
from outlast.testing.conformance.fences import FencePromises
from outlast.testing.conformance.harness import Desk, HandClock, MakeStore
from outlast.testing.conformance.mail import MailPromises
from outlast.testing.conformance.prunes import PrunePromises
from outlast.testing.conformance.queries import QueryPromises
from outlast.testing.conformance.requests import RequestPromises
from outlast.testing.conformance.sessions import SessionPromises
from outlast.testing.conformance.submissions import SubmissionPromises
from outlast.testing.conformance.values import ValuePromises
from outlast.testing.conformance.workers import WorkerPromises

__all__ = ["Desk", "HandClock", "MakeStore", "StoreConformance"]


class StoreConformance(
    SubmissionPromises,
    ClaimPromises,
    EntryPromises,
    FencePromises,
    EndPromises,
    RequestPromises,
    MailPromises,
    WorkerPromises,
    PrunePromises,
    SessionPromises,
    QueryPromises,
    ValuePromises,
    CrowdPromises,
    DurabilityPromises,
):
    """Every promise. Subclass it and give the fixture `make_store`."""
