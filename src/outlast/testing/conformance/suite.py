"""Combine every contract in one class."""

from __future__ import annotations

from outlast.testing.conformance.abandonment import AbandonmentContract
from outlast.testing.conformance.batches import EachContract
from outlast.testing.conformance.bulk_submissions import ManyContract
from outlast.testing.conformance.callers import CallerContract
from outlast.testing.conformance.claims import ClaimContract
from outlast.testing.conformance.concurrency import CrowdContract
from outlast.testing.conformance.dead_letters import LetterContract
from outlast.testing.conformance.deaths import DeathContract
from outlast.testing.conformance.decisions import DecisionContract
from outlast.testing.conformance.drains import DrainContract
from outlast.testing.conformance.durability import DurabilityContract, ReopeningContract
from outlast.testing.conformance.ends import EndContract
from outlast.testing.conformance.entries import EntryContract
from outlast.testing.conformance.executions import ExecutionContract
from outlast.testing.conformance.fences import FenceContract
from outlast.testing.conformance.heartbeats import PulseContract
from outlast.testing.conformance.items import ItemContract
from outlast.testing.conformance.key_crowd import KeyCrowdContract
from outlast.testing.conformance.key_limits import KeyLimitContract
from outlast.testing.conformance.key_turns import KeyTurnContract
from outlast.testing.conformance.limits import LimitContract
from outlast.testing.conformance.measures import MeasureContract
from outlast.testing.conformance.messages import MailContract
from outlast.testing.conformance.peeks import LookContract
from outlast.testing.conformance.prunes import PruneContract
from outlast.testing.conformance.queries import QueryContract
from outlast.testing.conformance.replacements import ReplacementContract
from outlast.testing.conformance.reports import ReportContract
from outlast.testing.conformance.requests import RequestContract
from outlast.testing.conformance.saves import SaveContract
from outlast.testing.conformance.session_changes import SessionChangeContract
from outlast.testing.conformance.session_crowd import SessionCrowdContract
from outlast.testing.conformance.session_ends import SessionEndContract
from outlast.testing.conformance.session_groups import SessionGroupContract
from outlast.testing.conformance.session_listing import SessionListingContract
from outlast.testing.conformance.session_model import SessionModelContract
from outlast.testing.conformance.session_owners import SessionOwnerContract
from outlast.testing.conformance.session_ranges import SessionRangeContract
from outlast.testing.conformance.session_records import SessionRecordContract
from outlast.testing.conformance.sessions import SessionContract
from outlast.testing.conformance.storms import StormContract
from outlast.testing.conformance.stream_model import StreamModelContract
from outlast.testing.conformance.stream_runs import StreamRunContract
from outlast.testing.conformance.streams import StreamContract
from outlast.testing.conformance.submissions import SubmissionContract
from outlast.testing.conformance.suspects import SuspectContract
from outlast.testing.conformance.undo_cancels import UndoByCancelContract
from outlast.testing.conformance.undo_children import UndoChildContract
from outlast.testing.conformance.undo_progress import UndoProgressContract
from outlast.testing.conformance.undoing import UndoContract
from outlast.testing.conformance.values import ValueContract
from outlast.testing.conformance.waits import WaitingContract
from outlast.testing.conformance.workers import WorkerContract


class StoreConformance(
    SubmissionContract,
    ReplacementContract,
    ManyContract,
    ClaimContract,
    LimitContract,
    KeyTurnContract,
    KeyLimitContract,
    KeyCrowdContract,
    EntryContract,
    ExecutionContract,
    SaveContract,
    FenceContract,
    EndContract,
    WaitingContract,
    RequestContract,
    UndoContract,
    UndoProgressContract,
    UndoByCancelContract,
    UndoChildContract,
    DecisionContract,
    AbandonmentContract,
    MailContract,
    WorkerContract,
    DeathContract,
    SuspectContract,
    StormContract,
    StreamContract,
    StreamRunContract,
    StreamModelContract,
    PulseContract,
    LetterContract,
    DrainContract,
    ReportContract,
    MeasureContract,
    ItemContract,
    EachContract,
    CallerContract,
    PruneContract,
    SessionContract,
    SessionChangeContract,
    SessionGroupContract,
    SessionOwnerContract,
    SessionRangeContract,
    SessionEndContract,
    SessionRecordContract,
    SessionListingContract,
    SessionModelContract,
    QueryContract,
    LookContract,
    ValueContract,
    CrowdContract,
    SessionCrowdContract,
    DurabilityContract,
):
    """Check what every store promises, including one that lives only as long as its object.

    Provide the fixture `make_store`.
    """


class DurableStoreConformance(ReopeningContract, StoreConformance):
    """Check a store that outlives its objects and may be open several times at once.

    Every production store is one.
    """
