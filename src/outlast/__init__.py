"""Outlast keeps AI agents alive through every kind of death.

from outlast import run, step, workflow

@step
async def research(topic: str) -> str: ...

@workflow
async def report(topic: str) -> str:
    return await research(topic)

print(run(report("tides"), id="report-1"))   # kill it anywhere, start it again
"""

from outlast.app.handle import Run, RunInfo
from outlast.app.outlast import Outlast, run
from outlast.define.inside import Current, current, now, random, receive, sleep, uuid
from outlast.define.step import Step, SyncStep, step
from outlast.define.workflow import Call, Workflow, workflow
from outlast.errors import (
    BadName,
    Conflict,
    Diverged,
    DuplicateName,
    Evicted,
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
    StepFailed,
    StepTimeout,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    UnknownRun,
    UnknownWorkflow,
    Unrecordable,
    WrongStatus,
)
from outlast.values.signature import Unrecorded

__version__ = "0.1.0"

__all__ = [
    "BadName", "Call", "Conflict", "Current", "Diverged", "DuplicateName", "Evicted", "LimitExceeded", "NotInRun",
    "NotInStep", "Outlast", "OutlastError", "Run", "RunCancelled", "RunDead", "RunError", "RunFailed", "RunInfo",
    "RunParked", "RunTimeout", "SettingsError", "Step", "StepFailed", "StepTimeout", "StoreBroken", "StoreError",
    "StoreTooNew", "StoreUnavailable", "SyncStep", "UnknownRun", "UnknownWorkflow", "Unrecordable", "Unrecorded",
    "Workflow", "WrongStatus", "__version__", "current", "now", "random", "receive", "run", "sleep", "step", "uuid", "workflow",
]  # fmt: skip
