"""The same names for sync programs. What waits blocks; everything else is the very same object.

    from outlast.sync import run, step, workflow

    @step
    def research(topic: str) -> str: ...

    @workflow
    def report(topic: str) -> str:
        return research(topic)

    print(run(report("tides"), id="report-1"))   # kill it anywhere, start it again

Inside a sync workflow, `run(call)` is a child run.
"""

from outlast import (
    BadName,
    Call,
    Conflict,
    Current,
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
    RunInfo,
    RunParked,
    RunTimeout,
    SettingsError,
    Step,
    StepFailed,
    StepTimeout,
    StoreBroken,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    SyncStep,
    UnknownRun,
    UnknownWorkflow,
    Unrecordable,
    Unrecorded,
    Workflow,
    WrongStatus,
    __version__,
    current,
    now,
    random,
    step,
    uuid,
    workflow,
)
from outlast.sync.app import Outlast, Run
from outlast.sync.inside import receive, run, sleep

__all__ = [
    "BadName", "Call", "Conflict", "Current", "Diverged", "DuplicateName", "Evicted", "LimitExceeded", "NotInRun",
    "NotInStep", "Outlast", "OutlastError", "Run", "RunCancelled", "RunDead", "RunError", "RunFailed", "RunInfo",
    "RunParked", "RunTimeout", "SettingsError", "Step", "StepFailed", "StepTimeout", "StoreBroken", "StoreError",
    "StoreTooNew", "StoreUnavailable", "SyncStep", "UnknownRun", "UnknownWorkflow", "Unrecordable", "Unrecorded",
    "Workflow", "WrongStatus", "__version__", "current", "now", "random", "receive", "run", "sleep", "step", "uuid", "workflow",
]  # fmt: skip
