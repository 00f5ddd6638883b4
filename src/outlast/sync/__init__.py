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

from outlast import (
    KEY,
    Abandoned,
    Backpressure,
    BadName,
    Call,
    CannotResume,
    Conflict,
    Current,
    Diverged,
    Draining,
    DrainReport,
    DuplicateName,
    Effect,
    EffectInfo,
    Evicted,
    Happened,
    LeaseLost,
    LimitExceeded,
    NotInRun,
    NotInStep,
    OutlastError,
    Progress,
    QueueInfo,
    RunCancelled,
    RunDead,
    RunError,
    RunFailed,
    RunInfo,
    RunParked,
    RunTimeout,
    SessionInfo,
    SettingsError,
    StaleFence,
    Step,
    StepFailed,
    StepTimeout,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    StreamStalled,
    SyncEffect,
    SyncStep,
    UnknownEffect,
    UnknownRun,
    Unrecordable,
    Unrecorded,
    VersionConflict,
    WorkerInfo,
    Workflow,
    WrongStatus,
    __version__,
    current,
    effect,
    now,
    progress,
    random,
    step,
    unit,
    uuid,
    workflow,
)
from outlast.sync.app import Outlast, Run
from outlast.sync.batch import each, map  # noqa: A004 - the design's word
from outlast.sync.context import compensate_with, receive, run, sleep
from outlast.sync.items import Item, Queue
from outlast.sync.sessions import Checkpoint, Session, checkpoint, session
from outlast.sync.streams import resume_stream

__all__ = [
    "KEY", "Abandoned", "Backpressure", "BadName", "Call", "CannotResume", "Checkpoint", "Conflict", "Current", "Diverged", "DrainReport", "Draining", "DuplicateName", "Effect", "EffectInfo", "Evicted", "Happened",
    "Item", "LeaseLost", "LimitExceeded", "NotInRun", "NotInStep", "Outlast", "OutlastError", "Progress", "Queue", "QueueInfo",
    "Run", "RunCancelled", "RunDead", "RunError", "RunFailed", "RunInfo", "RunParked", "RunTimeout", "Session", "SessionInfo", "SettingsError",
    "StaleFence", "Step", "StepFailed", "StepTimeout", "StoreBroken", "StoreError", "StoreTooNew", "StoreUnavailable", "StreamStalled",
    "SyncEffect", "SyncStep", "UnknownEffect", "UnknownRun", "Unrecordable", "Unrecorded", "VersionConflict", "WorkerInfo", "Workflow",
    "WrongStatus", "__version__", "checkpoint", "compensate_with", "current", "each", "effect", "map", "now", "progress", "random", "receive", "resume_stream", "run", "session", "sleep", "step", "unit", "uuid", "workflow",
]  # fmt: skip
