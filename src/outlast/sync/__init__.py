"""Provide the names of `outlast` for sync programs. Calls that wait block.

    from outlast.sync import run, step, workflow

    @step
    def research(topic: str) -> str: ...

    @workflow
    def report(topic: str) -> str:
        return research(topic)

    print(run(report("tides"), id="report-1"))   # kill it anywhere, start it again

Everything that does not wait is the same object as in `outlast`. Inside a sync workflow,
`run(call)` is a child run.
"""

from typing import TYPE_CHECKING

from outlast.api.context import Current, current, now, progress, random, uuid
from outlast.api.effect import KEY, Effect, Happened, SyncEffect, effect
from outlast.api.lazy_names import SHARED, lazy_names
from outlast.api.resource import Resource, SyncResource, resource
from outlast.api.scope import scope
from outlast.api.session_info import SessionInfo
from outlast.api.step import Step, SyncStep, step
from outlast.api.unit import unit
from outlast.api.workflow import Call, Workflow, workflow
from outlast.codec.error_codec import ErrorCodec
from outlast.codec.signature import Unchecked, Unrecorded
from outlast.errors import (
    Abandoned,
    AlreadySubmitted,
    Backpressure,
    BadCursor,
    BadName,
    BudgetExhausted,
    CannotResume,
    Conflict,
    Diverged,
    Draining,
    DuplicateName,
    Evicted,
    LeaseLost,
    LimitExceeded,
    NotInRun,
    NotInStep,
    NotOwner,
    OutlastError,
    RunCancelled,
    RunDead,
    RunError,
    RunFailed,
    RunParked,
    RunTimeout,
    SettingsError,
    StaleFence,
    StepFailed,
    StepTimeout,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    StreamStalled,
    UnknownEffect,
    UnknownRun,
    UnknownSchedule,
    Unrecordable,
    VersionConflict,
    WrongStatus,
)
from outlast.execution.progress import Progress
from outlast.sync.app import Outlast
from outlast.sync.batch import each, map  # noqa: A004 - the design's word
from outlast.sync.context import compensate_with, receive, run, sleep, started_before
from outlast.sync.items import Item, Queue
from outlast.sync.publish import Output, publish
from outlast.sync.run_handle import Run
from outlast.sync.sessions import (
    Checkpoint,
    Session,
    SessionChange,
    checkpoint,
    session,
    update_sessions,
)
from outlast.version import __version__

if TYPE_CHECKING:
    from outlast.api.budget import Budget, BudgetUse, budget
    from outlast.api.limiter import Limiter, LimiterUse, limiter
    from outlast.api.schedule import Schedule, ScheduleInfo
    from outlast.engine.budgets import BudgetInfo
    from outlast.engine.bulk import BulkReport
    from outlast.engine.inspection import EffectInfo, QueueInfo, RunInfo, WorkerInfo
    from outlast.engine.limiters import LimiterInfo, LimitInfo
    from outlast.engine.watching.events import DataEvent, EndEvent, ResetEvent
    from outlast.shutdown.report import DrainReport
    from outlast.store.pauses import PausedWorkflow
    from outlast.sync.streams import resume_stream
    from outlast.sync.watch import Watch
else:
    __getattr__ = lazy_names(
        globals(),
        {**SHARED, "Watch": "outlast.sync.watch", "resume_stream": "outlast.sync.streams"},
    )

__all__ = [
    "KEY",
    "Abandoned",
    "AlreadySubmitted",
    "Backpressure",
    "BadCursor",
    "BadName",
    "Budget",
    "BudgetExhausted",
    "BudgetInfo",
    "BudgetUse",
    "BulkReport",
    "Call",
    "CannotResume",
    "Checkpoint",
    "Conflict",
    "Current",
    "DataEvent",
    "Diverged",
    "DrainReport",
    "Draining",
    "DuplicateName",
    "Effect",
    "EffectInfo",
    "EndEvent",
    "ErrorCodec",
    "Evicted",
    "Happened",
    "Item",
    "LeaseLost",
    "LimitExceeded",
    "LimitInfo",
    "Limiter",
    "LimiterInfo",
    "LimiterUse",
    "NotInRun",
    "NotInStep",
    "NotOwner",
    "Outlast",
    "OutlastError",
    "Output",
    "PausedWorkflow",
    "Progress",
    "Queue",
    "QueueInfo",
    "ResetEvent",
    "Resource",
    "Run",
    "RunCancelled",
    "RunDead",
    "RunError",
    "RunFailed",
    "RunInfo",
    "RunParked",
    "RunTimeout",
    "Schedule",
    "ScheduleInfo",
    "Session",
    "SessionChange",
    "SessionInfo",
    "SettingsError",
    "StaleFence",
    "Step",
    "StepFailed",
    "StepTimeout",
    "StoreBroken",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamStalled",
    "SyncEffect",
    "SyncResource",
    "SyncStep",
    "Unchecked",
    "UnknownEffect",
    "UnknownRun",
    "UnknownSchedule",
    "Unrecordable",
    "Unrecorded",
    "VersionConflict",
    "Watch",
    "WorkerInfo",
    "Workflow",
    "WrongStatus",
    "__version__",
    "budget",
    "checkpoint",
    "compensate_with",
    "current",
    "each",
    "effect",
    "limiter",
    "map",
    "now",
    "progress",
    "publish",
    "random",
    "receive",
    "resource",
    "resume_stream",
    "run",
    "scope",
    "session",
    "sleep",
    "started_before",
    "step",
    "unit",
    "update_sessions",
    "uuid",
    "workflow",
]  # fmt: skip
