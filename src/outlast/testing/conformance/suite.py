"""Every promise in one class."""

from __future__ import annotations

from outlast.testing.conformance.claims import ClaimPromises
from outlast.testing.conformance.crowd import CrowdPromises
from outlast.testing.conformance.durability import DurabilityPromises
from outlast.testing.conformance.ends import EndPromises
from outlast.testing.conformance.entries import EntryPromises
from outlast.testing.conformance.fences import FencePromises
from outlast.testing.conformance.mail import MailPromises
from outlast.testing.conformance.prunes import PrunePromises
from outlast.testing.conformance.queries import QueryPromises
from outlast.testing.conformance.requests import RequestPromises
from outlast.testing.conformance.sessions import SessionPromises
from outlast.testing.conformance.submissions import SubmissionPromises
from outlast.testing.conformance.values import ValuePromises
from outlast.testing.conformance.workers import WorkerPromises


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
