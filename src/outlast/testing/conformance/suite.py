"""Every promise in one class."""

from __future__ import annotations

from outlast.testing.conformance.abandonment import AbandonmentPromises
from outlast.testing.conformance.claims import ClaimPromises
from outlast.testing.conformance.crowd import CrowdPromises
from outlast.testing.conformance.deaths import DeathPromises
from outlast.testing.conformance.decisions import DecisionPromises
from outlast.testing.conformance.drains import DrainPromises
from outlast.testing.conformance.durability import DurabilityPromises, ReopeningPromises
from outlast.testing.conformance.eaches import EachPromises
from outlast.testing.conformance.ends import EndPromises
from outlast.testing.conformance.entries import EntryPromises
from outlast.testing.conformance.fences import FencePromises
from outlast.testing.conformance.items import ItemPromises
from outlast.testing.conformance.letters import LetterPromises
from outlast.testing.conformance.limits import LimitPromises
from outlast.testing.conformance.looks import LookPromises
from outlast.testing.conformance.mail import MailPromises
from outlast.testing.conformance.many import ManyPromises
from outlast.testing.conformance.measures import MeasurePromises
from outlast.testing.conformance.prunes import PrunePromises
from outlast.testing.conformance.pulses import PulsePromises
from outlast.testing.conformance.queries import QueryPromises
from outlast.testing.conformance.reports import ReportPromises
from outlast.testing.conformance.requests import RequestPromises
from outlast.testing.conformance.saves import SavePromises
from outlast.testing.conformance.session_ends import SessionEndPromises
from outlast.testing.conformance.session_listing import SessionListingPromises
from outlast.testing.conformance.session_model import SessionModelPromises
from outlast.testing.conformance.session_records import SessionRecordPromises
from outlast.testing.conformance.sessions import SessionPromises
from outlast.testing.conformance.storms import StormPromises
from outlast.testing.conformance.submissions import SubmissionPromises
from outlast.testing.conformance.undoing import UndoPromises
from outlast.testing.conformance.values import ValuePromises
from outlast.testing.conformance.waits import WaitingPromises
from outlast.testing.conformance.workers import WorkerPromises


class StoreConformance(
    SubmissionPromises,
    ManyPromises,
    ClaimPromises,
    LimitPromises,
    EntryPromises,
    SavePromises,
    FencePromises,
    EndPromises,
    WaitingPromises,
    RequestPromises,
    UndoPromises,
    DecisionPromises,
    AbandonmentPromises,
    MailPromises,
    WorkerPromises,
    DeathPromises,
    StormPromises,
    PulsePromises,
    LetterPromises,
    DrainPromises,
    ReportPromises,
    MeasurePromises,
    ItemPromises,
    EachPromises,
    PrunePromises,
    SessionPromises,
    SessionEndPromises,
    SessionRecordPromises,
    SessionListingPromises,
    SessionModelPromises,
    QueryPromises,
    LookPromises,
    ValuePromises,
    CrowdPromises,
    DurabilityPromises,
):
    """What every store promises, also one that lives and dies with its object. Give the fixture `make_store`."""


class DurableStoreConformance(ReopeningPromises, StoreConformance):
    """The same for a store that outlives its objects and may be open in several at once: any that is used in earnest."""
