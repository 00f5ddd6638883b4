"""Outlast keeps AI agents alive through every kind of death.

    from outlast import run, step, workflow

    @step
    async def research(topic: str) -> str: ...

    @workflow
    async def report(topic: str) -> str:
        return await research(topic)

    print(run(report("tides"), id="report-1"))   # kill it anywhere, start it again

The same id goes on after the last recorded step.
"""

from outlast.app.checkpoint import Checkpoint
from outlast.app.handle import Run
from outlast.app.info import EffectInfo, QueueInfo, RunInfo, WorkerInfo
from outlast.app.items import Item, Queue
from outlast.app.outlast import Outlast, run
from outlast.app.session import Session, SessionInfo
from outlast.define.batch import each, map  # noqa: A004 - the design's word
from outlast.define.effect import KEY, Effect, Happened, SyncEffect, compensate_with, effect
from outlast.define.inside import Current, current, now, progress, random, receive, sleep, uuid
from outlast.define.session import checkpoint, session
from outlast.define.step import Step, SyncStep, step
from outlast.define.unit import unit
from outlast.define.workflow import Call, Workflow, workflow
from outlast.drain.report import DrainReport
from outlast.errors import (
    Abandoned,
    Backpressure,
    BadName,
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
    Unrecordable,
    VersionConflict,
    WrongStatus,
)
from outlast.replay.progress import Progress
from outlast.streams import resume_stream
from outlast.values.signature import Unrecorded

__version__ = "0.1.0"
"""The version of this library, as `outlast --version` says it."""

__all__ = [
    "KEY", "Abandoned", "Backpressure", "BadName", "Call", "CannotResume", "Checkpoint", "Conflict", "Current", "Diverged", "DrainReport", "Draining", "DuplicateName", "Effect", "EffectInfo", "Evicted", "Happened",
    "Item", "LeaseLost", "LimitExceeded", "NotInRun", "NotInStep", "Outlast", "OutlastError", "Progress", "Queue", "QueueInfo",
    "Run", "RunCancelled", "RunDead", "RunError", "RunFailed", "RunInfo", "RunParked", "RunTimeout", "Session", "SessionInfo", "SettingsError",
    "StaleFence", "Step", "StepFailed", "StepTimeout", "StoreBroken", "StoreError", "StoreTooNew", "StoreUnavailable", "StreamStalled",
    "SyncEffect", "SyncStep", "UnknownEffect", "UnknownRun", "Unrecordable", "Unrecorded", "VersionConflict", "WorkerInfo", "Workflow",
    "WrongStatus", "__version__", "checkpoint", "compensate_with", "current", "each", "effect", "map", "now", "progress", "random", "receive", "resume_stream", "run", "session", "sleep", "step", "unit", "uuid", "workflow",
]  # fmt: skip
